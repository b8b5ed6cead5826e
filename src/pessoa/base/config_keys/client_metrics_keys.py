"""What can be set for a subscription to the metrics of clients (KIP-714): which metrics, which clients, how often."""

from __future__ import annotations

from collections.abc import Mapping

from pessoa.base.config_table import INT, LIST, ConfigKey, ConfigTable, key, no_value
from pessoa.base.config_values import ENTRIES, ConfigProblem, split_list
from pessoa.base.linear_regex import InvalidRegex, LinearRegex, linear_regex

# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    key("metrics", LIST, (), ENTRIES, "The metrics to push, by the beginnings of their names; * is all of them."),
    key("match", LIST, (), ENTRIES,
        "Which clients push them, as conditions like client_id=<pattern>; empty is every client."),
    key("interval.ms", INT, 300000, "How often clients push them."),
)
# fmt: on

CLIENT_METRICS_CONFIGS = ConfigTable("client metrics", KEYS)

INTERVAL_MIN_MS = 100
INTERVAL_MAX_MS = 60 * 60 * 1000
# What a pattern may take when it is compiled and matched.
_PATTERN_BYTES = 64 * 1024

# What a condition of `match` can be about.
MATCHERS = """
    client_instance_id client_id client_software_name client_software_version client_source_address client_source_port
""".split()


def validate_client_metrics_configs(configs: Mapping[str, str | None]) -> ConfigProblem | None:
    """Return the first problem with the settings of one subscription; None if there is none."""
    for name, text in configs.items():
        problem = no_value(name) if text is None else _problem(name, text)
        if problem is not None:
            return problem
    return None


def _problem(name: str, text: str) -> ConfigProblem | None:
    if name not in CLIENT_METRICS_CONFIGS:
        return ConfigProblem(name, text, "there is no such client metrics configuration", is_invalid_request=True)
    try:
        value = CLIENT_METRICS_CONFIGS.parse(name, text)
    except ConfigProblem as problem:
        return problem
    if name == "interval.ms":
        assert isinstance(value, int)
        if not INTERVAL_MIN_MS <= value <= INTERVAL_MAX_MS:
            why = f"it must be between {INTERVAL_MIN_MS} and {INTERVAL_MAX_MS}"
            return ConfigProblem(name, text, why, is_invalid_request=True)
    if name == "match":
        try:
            match_patterns(text)
        except ConfigProblem as problem:
            return problem
    return None


def match_patterns(text: str) -> dict[str, LinearRegex]:
    """Return the regular expression for each of `MATCHERS` that the setting `match` names; the last one if it names
    a matcher twice. Raises ConfigProblem."""
    patterns = {}
    for condition in split_list(text):
        about, pattern = _parts(condition)
        if about not in MATCHERS:
            why = f"{condition!r} is not a condition like {MATCHERS[1]}=<pattern>, about one of {', '.join(MATCHERS)}"
            raise ConfigProblem("match", text, why)
        try:
            patterns[about] = linear_regex(pattern, _PATTERN_BYTES)
        except (InvalidRegex, UnicodeEncodeError) as error:
            why = f"{pattern!r} is not a regular expression of RE2: {error}"
            raise ConfigProblem("match", text, why) from None
    return patterns


def _parts(condition: str) -> tuple[str, str]:
    """Split a condition at "=" as Java does, which drops empty parts at the end; return empty texts unless two parts
    remain."""
    parts = condition.rstrip("=").split("=")
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else ("", "")
