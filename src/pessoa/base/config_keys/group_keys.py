"""What can be set for one group (KIP-848, KIP-932, KIP-1071).

Each key has its default in the broker's key of the same name with `group.` before it, where there is one. The broker
also says between which bounds a group may choose, and those are checked against the broker's configuration at hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS, BROKER_DEFAULTS
from pessoa.base.config_table import BOOLEAN, INT, STRING, ConfigKey, ConfigTable, Settings, key
from pessoa.base.config_values import ConfigProblem, Rule, Value, at_least, one_of

# A duration as ISO 8601 and java.time.Duration write it, and not negative.
_DURATION = re.compile(
    r"P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{0,9})?S)?)?", re.IGNORECASE
)
_BY_DURATION = "by_duration:"


def _is_offset_reset(value: Value) -> bool:
    if not isinstance(value, str):
        return False
    if value.startswith(_BY_DURATION):
        return _DURATION.fullmatch(value.removeprefix(_BY_DURATION)) is not None
    return value in ("earliest", "latest")


OFFSET_RESET = Rule("earliest, latest or by_duration: and a duration like PT1H or P7D", _is_offset_reset)

# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    key("consumer.session.timeout.ms", INT, 45000, at_least(1), "A member that is silent for this long is removed."),
    key("consumer.heartbeat.interval.ms", INT, 5000, at_least(1), "How often members are told to send heartbeats."),
    key("consumer.assignment.interval.ms", INT, 1000, at_least(0), "The least time between two assignments."),
    key("share.session.timeout.ms", INT, 45000, at_least(1), "A member that is silent for this long is removed."),
    key("share.heartbeat.interval.ms", INT, 5000, at_least(1), "How often members are told to send heartbeats."),
    key("share.assignment.interval.ms", INT, 1000, at_least(0), "The least time between two assignments."),
    key("share.auto.offset.reset", STRING, "latest", OFFSET_RESET,
        "Where a share group begins: latest, earliest, or by_duration:<how long ago>."),
    key("share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"),
        "Whether the group sees records of open and aborted transactions."),
    key("share.record.lock.duration.ms", INT, 30000, at_least(1000),
        "How long a record is reserved for the consumer that it was delivered to."),
    key("share.delivery.count.limit", INT, 5, at_least(2), "How often a record is delivered before it is given up."),
    key("share.partition.max.record.locks", INT, 2000, at_least(100),
        "How many records of a partition may be reserved at once."),
    key("share.renew.acknowledge.enable", BOOLEAN, True, "Whether a consumer may extend the reservation of a record."),
    key("streams.session.timeout.ms", INT, 45000, at_least(1), "A member that is silent for this long is removed."),
    key("streams.heartbeat.interval.ms", INT, 5000, at_least(1), "How often members are told to send heartbeats."),
    key("streams.assignment.interval.ms", INT, 1000, at_least(0), "The least time between two assignments."),
    key("streams.num.standby.replicas", INT, 0, at_least(0), "How many standby copies each task has."),
    key("streams.initial.rebalance.delay.ms", INT, 3000, at_least(0),
        "How long an empty group waits for more members before its first assignment."),
)
# fmt: on

GROUP_CONFIGS = ConfigTable("group", KEYS)

_HAS_BOUNDS = """
    consumer.session.timeout.ms consumer.heartbeat.interval.ms consumer.assignment.interval.ms
    share.session.timeout.ms share.heartbeat.interval.ms share.assignment.interval.ms
    share.record.lock.duration.ms share.delivery.count.limit share.partition.max.record.locks
    streams.session.timeout.ms streams.heartbeat.interval.ms streams.assignment.interval.ms
    streams.num.standby.replicas
""".split()


def broker_key(name: str) -> str | None:
    """Return the broker's key that holds the default for a group's key; None if the broker has no such key."""
    candidate = f"group.{name}"
    return candidate if candidate in BROKER_CONFIGS else None


def group_value(name: str, configs: Mapping[str, str], broker: Settings = BROKER_DEFAULTS) -> Value:
    """Return the value of a key for a group that has these settings: its own, else the broker's default."""
    if name in configs:
        return GROUP_CONFIGS.parse(name, configs[name])
    default = broker_key(name)
    return GROUP_CONFIGS[name].default if default is None else broker.value(default)


def validate_group_configs(
    configs: Mapping[str, str | None], broker: Settings = BROKER_DEFAULTS
) -> ConfigProblem | None:
    """Return the first problem with the settings of one group; None if there is none."""
    problem = GROUP_CONFIGS.problem(configs)
    if problem is not None:
        return problem
    given = {name: text for name, text in configs.items() if text is not None}
    for name in _HAS_BOUNDS:
        problem = _check_bounds(name, given, broker) if name in given else None
        if problem is not None:
            return problem
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in given or heartbeat in given) and not _is_below(
            group_value(heartbeat, given, broker), group_value(session, given, broker)
        ):
            why = f"it must be more than {heartbeat}, which is {group_value(heartbeat, given, broker)}"
            return ConfigProblem(session, str(group_value(session, given, broker)), why)
    return None


def _check_bounds(name: str, given: Mapping[str, str], broker: Settings) -> ConfigProblem | None:
    kind, _, suffix = name.partition(".")
    if name == "streams.num.standby.replicas":
        lowest, highest = None, "group.streams.max.standby.replicas"
    else:
        lowest, highest = f"group.{kind}.min.{suffix}", f"group.{kind}.max.{suffix}"
    value = GROUP_CONFIGS.parse(name, given[name])
    if lowest is not None and _is_below(value, broker.value(lowest)):
        return ConfigProblem(name, given[name], f"it must be at least {lowest}, which is {broker.value(lowest)}")
    if _is_below(broker.value(highest), value):
        return ConfigProblem(name, given[name], f"it must be at most {highest}, which is {broker.value(highest)}")
    return None


def _is_below(one: Value, other: Value) -> bool:
    assert isinstance(one, int)
    assert isinstance(other, int)
    return one < other
