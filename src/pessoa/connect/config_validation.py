"""Validation of a connector's configuration: the response of `validate`, and why a connector is refused.

The keys come from four places: those of every connector, those that its transforms and predicates bring, those of the
converters that it names, and its own. Each key is checked alone; then come the checks between keys.

Checked are the values that references to config providers lead to; shown are the references (config_references.py).
Names are taken as they stand: connector.class, and the aliases in transforms and predicates, which become keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from pessoa import __version__
from pessoa.base.config_values import ConfigProblem, split_list
from pessoa.client.registry_client import URL
from pessoa.connect.common_keys import COMMON, connector_keys
from pessoa.connect.config_references import resolve_references
from pessoa.connect.connector import Connector
from pessoa.connect.data import DataFailure
from pessoa.connect.definition import (
    BOOLEAN,
    CLASS,
    HIGH,
    MEDIUM,
    REQUIRED,
    STRING,
    CheckedKey,
    KeyReport,
    Table,
    key,
)
from pessoa.connect.plugins import Plugins, UnknownPlugin
from pessoa.connect.predicates import Predicate
from pessoa.connect.transforms.transform import Transform
from pessoa.web.problems import HttpProblem
from pessoa.web.settings import settings_below

HINT = "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
OVERRIDES = ("producer.override.", "consumer.override.", "admin.override.")


class Validation(TypedDict):
    """The answer of `/connector-plugins/{plugin}/config/validate`."""

    name: str
    error_count: int
    groups: list[str]
    configs: list[CheckedKey]


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    groups: list[str]
    reports: list[KeyReport]

    @property
    def error_count(self) -> int:
        return sum(len(report.errors) for report in self.reports)

    def answer(self) -> Validation:
        return {
            "name": self.name,
            "error_count": self.error_count,
            "groups": self.groups,
            "configs": [report.answer() for report in self.reports],
        }

    def refuse_if_wrong(self) -> None:
        errors = [error for report in self.reports for error in report.errors]
        if errors:
            sentence = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
            raise HttpProblem(400, "\n".join([sentence, *errors, HINT]))


def connector_class(plugins: Plugins, settings: Mapping[str, str | None]) -> type[Connector]:
    """Return the class that a configuration names; 400 if there is none."""
    name = settings.get("connector.class")
    if not name:
        shown = ", ".join(f"{key}={text}" for key, text in settings.items())
        raise HttpProblem(400, f"Connector config {{{shown}}} contains no connector type")
    try:
        return plugins.connector(name)
    except UnknownPlugin as unknown:
        raise HttpProblem(400, str(unknown)) from None


def validate(plugins: Plugins, worker: Mapping[str, str], settings: Mapping[str, str | None]) -> Verdict:
    kind = connector_class(plugins, settings)
    given = {name: text for name, text in settings.items() if text is not None}
    references = resolve_references(worker, given)
    texts = references.texts
    common = connector_keys(plugins, worker, kind.TYPE, kind.VERSION)
    reports = {report.key.name: report for report in common.validate(texts)}
    groups = list(common.groups)
    for part in ("transforms", "predicates"):
        for alias in split_list(texts.get(part, "")):
            group = f"{part.capitalize()}: {alias}"
            groups.append(group)
            reports |= _plugin_reports(plugins, part, alias, texts, group)
    _check_predicates(texts, reports)
    for side in ("key", "value", "header"):
        reports |= _converter_reports(plugins, worker, side, texts, reports)
    _check_topics(kind.TYPE, texts, reports)
    adapted = dict(kind.adapted(texts))
    own = {report.key.name: report for report in kind.CONFIG.validate(adapted)}
    groups += [group for group in kind.CONFIG.groups if group not in groups]
    reports |= own
    if not any(report.errors for report in reports.values()):
        # Blanks around a value are ignored everywhere.
        for name, complaint in kind.check({name: text.strip() for name, text in adapted.items()}).items():
            reports[name].errors.append(complaint)
    _check_overrides(texts, reports)
    references.hide_values(reports, kind.adapted(given))
    return Verdict(given["connector.class"], groups, list(reports.values()))


# Transforms and predicates.


def _plugin_reports(
    plugins: Plugins, part: str, alias: str, texts: Mapping[str, str], group: str
) -> dict[str, KeyReport]:
    prefix = f"{part}.{alias}."
    is_transform = part == "transforms"
    title = "Transformation" if is_transform else "Predicate"
    names = plugins.names("transformation" if is_transform else "predicate")
    rows = [
        key(f"{prefix}type", CLASS, REQUIRED, HIGH, f"The class of {alias}.", group=group, order=0, width="LONG",
            display=f"{title} type for {alias}", recommended=names),
        key(f"{prefix}plugin.version", STRING, __version__, HIGH, f"The version of {alias}.", group=group, order=1,
            width="LONG", display=f"{title} version for {alias}", recommended=(__version__,)),
    ]  # fmt: skip
    name = texts.get(f"{prefix}type")
    found, complaint = _plugin_class(plugins, part, name)
    own = [*(found.CONFIG if found is not None else ()), *(_PREDICATE_KEYS if is_transform else ())]
    reports = Table(rows).validate(texts) + Table(Table(own).with_prefix(prefix, group, 2)).validate(texts)
    by_name = {report.key.name: report for report in reports}
    type_report = by_name[f"{prefix}type"]
    if complaint is not None:
        type_report.errors.append(f"Invalid value {name} for configuration {prefix}type: {complaint}")
    elif found is not None:
        type_report.value = next(full for full in names if full == name or full.endswith(f".{name}"))
        if not any(report.errors for report in reports):
            type_report.errors += _errors_of(found, settings_below(texts, prefix))
    return by_name


_PREDICATE_KEYS = (
    key("negate", BOOLEAN, False, MEDIUM, "Whether the transform applies where the predicate does not.",
        display="negate"),
    key("predicate", STRING, None, MEDIUM, "The name of the predicate that decides about this transform.",
        display="predicate"),
)  # fmt: skip


def _plugin_class(
    plugins: Plugins, part: str, name: str | None
) -> tuple[type[Transform | Predicate] | None, str | None]:
    """Return the class of a transform or predicate, or what is wrong with its name."""
    if name is None:
        return None, None
    try:
        return plugins.transform(name) if part == "transforms" else plugins.predicate(name), None
    except UnknownPlugin as unknown:
        return None, str(unknown)


def _errors_of(kind: type[Transform | Predicate], settings: Mapping[str, str]) -> list[str]:
    """Return the errors that the connector class reports for settings that are valid one by one."""
    try:
        kind(settings)
    except (ConfigProblem, DataFailure, ValueError) as wrong:
        return [str(wrong)]
    return []


def _check_predicates(texts: Mapping[str, str], reports: dict[str, KeyReport]) -> None:
    known = split_list(texts.get("predicates", ""))
    for alias in split_list(texts.get("transforms", "")):
        report = reports[f"transforms.{alias}.predicate"]
        if report.value is not None and report.value not in known:
            report.errors.append(
                f"Invalid value {report.value} for configuration transforms.{alias}.predicate: "
                f"The predicate is not in predicates={','.join(known)}"
            )
        elif report.value is None and f"transforms.{alias}.negate" in texts:
            reports[f"transforms.{alias}.negate"].errors.append(
                f"The transform {alias} has a negate setting and no predicate"
            )


# Converters.


def _converter_reports(
    plugins: Plugins, worker: Mapping[str, str], side: str, texts: Mapping[str, str], reports: dict[str, KeyReport]
) -> dict[str, KeyReport]:
    name = texts.get(f"{side}.converter")
    if name is None:
        return {}
    report = reports[f"{side}.converter"]
    try:
        kind = plugins.header_converter(name) if side == "header" else plugins.converter(name)
    except UnknownPlugin as unknown:
        report.errors.append(f"Invalid value {name} for configuration {side}.converter: {unknown}")
        return {}
    prefix = f"{side}.converter."
    rows = Table(kind.CONFIG.with_prefix(prefix, f"{COMMON}: {side}.converter"))
    # The worker's registry serves a connector that names none (record_converters.py).
    of_worker = {key: worker[key] for key in (f"{prefix}{URL}",) if key in worker}
    return {row.key.name: row for row in rows.validate({**of_worker, **texts})}


# Between keys.


def _check_topics(kind: str, texts: Mapping[str, str], reports: dict[str, KeyReport]) -> None:
    if kind != "sink":
        return
    topics, pattern = split_list(texts.get("topics", "")), texts.get("topics.regex", "")
    if topics and pattern:
        sentence = "topics and topics.regex are mutually exclusive options, but both are set."
    elif not topics and not pattern:
        sentence = "Must configure one of topics or topics.regex"
    else:
        sentence = ""
    if sentence:
        reports["topics"].errors.append(sentence)
        reports["topics.regex"].errors.append(sentence)
    letters = texts.get("errors.deadletterqueue.topic.name", "")
    if letters and letters in topics:
        reports["topics"].errors.append(
            f"The DLQ topic '{letters}' may not be included in the list of topics ('topics={','.join(topics)}') "
            f"consumed "
            "by the connector"
        )


def _check_overrides(texts: Mapping[str, str], reports: dict[str, KeyReport]) -> None:
    """Report the settings of clients with the values that were given: librdkafka checks them when clients are made."""
    for name, text in texts.items():
        if name.startswith(OVERRIDES) and name not in reports:
            reports[name] = KeyReport(key(name, STRING, None, MEDIUM, ""), text)
