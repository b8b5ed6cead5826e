"""The keys that every connector has, before its own: Kafka's names, types, defaults, groups and order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pessoa import __version__
from pessoa.base.config_values import Value, at_least, one_of_ignoring_case
from pessoa.connect.converters import SIMPLE_HEADER
from pessoa.connect.definition import (
    BOOLEAN,
    CLASS,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    REQUIRED,
    SHORT,
    STRING,
    Key,
    Settings,
    Table,
    key,
)
from pessoa.connect.java_regex import pattern_complaint

if TYPE_CHECKING:
    from pessoa.connect.plugins import Plugins

COMMON, TRANSFORMS, PREDICATES, ERRORS = "Common", "Transforms", "Predicates", "Error Handling"
TOPIC_CREATION, EXACTLY_ONCE, OFFSETS = "Topic Creation", "Exactly Once Support", "offsets.topic"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _name_complaint(value: Value, _: Settings) -> str | None:
    if not str(value).strip():
        return "String may not be empty"
    return "String may not contain control sequences" if _CONTROL.search(str(value)) else None


def _alias_complaint(value: Value, _: Settings) -> str | None:
    return "Aliases may not be empty" if isinstance(value, tuple) and "" in value else None


def converter_keys(plugins: Plugins, worker: Mapping[str, str]) -> list[Key]:
    converters, headers = plugins.names("converter"), plugins.names("header_converter")
    rows = []
    for order, (side, title, default, names) in enumerate(
        (
            ("key", "Key converter", worker.get("key.converter"), converters),
            ("value", "Value converter", worker.get("value.converter"), converters),
            ("header", "Header converter", worker.get("header.converter", SIMPLE_HEADER), headers),
        )
    ):
        rows.append(
            key(f"{side}.converter", CLASS, default, LOW, f"The class that turns {side}s into bytes and back.",
                group=COMMON, order=6 + 2 * order, width="SHORT", display=f"{title} class", recommended=names)
        )  # fmt: skip
        rows.append(
            key(f"{side}.converter.plugin.version", STRING, __version__, LOW, f"The version of the {side} converter.",
                group=COMMON, order=7 + 2 * order, width="SHORT", display=f"{title} version",
                recommended=(__version__,))
        )  # fmt: skip
    return rows


def common_keys(plugins: Plugins, worker: Mapping[str, str], version: str) -> list[Key]:
    return [
        key("name", STRING, REQUIRED, _name_complaint, HIGH, "The connector's name, which no other connector has.",
            group=COMMON, order=1, width="MEDIUM", display="Connector name"),
        key("connector.class", STRING, REQUIRED, HIGH, "The connector's class: its full name, the last part of it, or "
            "that without Connector.", group=COMMON, order=2, width="LONG", display="Connector class"),
        key("connector.plugin.version", STRING, version, MEDIUM, "The version of the connector.",
            group=COMMON, order=3, width="MEDIUM", display="Connector version", recommended=(version,)),
        key("tasks.max", INT, 1, at_least(1), HIGH, "The most tasks that the connector may have.",
            group=COMMON, order=4, width="SHORT", display="Tasks max"),
        key("tasks.max.enforce", BOOLEAN, True, LOW, "Whether more tasks than tasks.max are a failure.",
            group=COMMON, order=5, width="SHORT", display="Enforce tasks max"),
        *converter_keys(plugins, worker),
        key("transforms", LIST, (), _alias_complaint, LOW,
            "Names for the transforms that records go through, in order.",
            group=TRANSFORMS, order=12, width="LONG", display="Transforms"),
        key("predicates", LIST, (), _alias_complaint, LOW, "Names for the predicates that transforms use.",
            group=PREDICATES, order=13, width="LONG", display="Predicates"),
        key("config.action.reload", STRING, "restart", one_of_ignoring_case("none", "restart"), LOW,
            "What to do when a value that comes from outside (a config provider) changes.",
            group=COMMON, order=14, width="MEDIUM", display="Reload Action"),
        key("errors.retry.timeout", LONG, 0, at_least(-1), MEDIUM, "For how long, in milliseconds, a failed "
            "operation is tried again; -1 for ever.", group=ERRORS, order=1, width="MEDIUM",
            display="Retry Timeout for Errors"),
        key("errors.retry.delay.max.ms", LONG, 60000, MEDIUM, "The longest pause between two attempts.",
            group=ERRORS, order=2, width="MEDIUM", display="Maximum Delay Between Retries for Errors"),
        key("errors.tolerance", STRING, "none", one_of_ignoring_case("none", "all"), MEDIUM,
            "none: the first record that "
            "cannot be handled fails the task; all: such records are skipped.", group=ERRORS, order=3, width="SHORT",
            display="Error Tolerance"),
        key("errors.log.enable", BOOLEAN, False, MEDIUM, "Whether every tolerated error is logged.",
            group=ERRORS, order=4, width="SHORT", display="Log Errors"),
        key("errors.log.include.messages", BOOLEAN, False, MEDIUM, "Whether the log shows the record as well.",
            group=ERRORS, order=5, width="SHORT", display="Log Error Details"),
    ]  # fmt: skip


def source_keys() -> list[Key]:
    return [
        key("topic.creation.groups", LIST, (), _alias_complaint, LOW,
            "Names of groups of topics with settings of their own.",
            group=TOPIC_CREATION, order=1, width="LONG", display="Topic Creation Groups"),
        key("exactly.once.support", STRING, "requested", one_of_ignoring_case("requested", "required"), MEDIUM,
            "Whether the connector must be able to deliver exactly once.", group=EXACTLY_ONCE, order=2, width="SHORT",
            display="Exactly once support"),
        key("transaction.boundary", STRING, "poll", one_of_ignoring_case("interval", "poll", "connector"), MEDIUM,
            "What makes a transaction.", group=EXACTLY_ONCE, order=3, width="SHORT", display="Transaction Boundary"),
        key("transaction.boundary.interval.ms", LONG, None, at_least(0), LOW, "How long a transaction is, if by time.",
            group=EXACTLY_ONCE, order=4, width="SHORT", display="Transaction boundary interval"),
        key("offsets.storage.topic", STRING, None, LOW, "Another topic for the offsets of this connector.",
            group=OFFSETS, order=1, width="LONG", display="Offsets topic"),
    ]  # fmt: skip


def sink_keys() -> list[Key]:
    return [
        key("topics", LIST, (), HIGH, "The topics to read.", group=COMMON, order=4, width="LONG", display="Topics"),
        key("topics.regex", STRING, "", pattern_complaint, HIGH,
            "A regular expression for the topics to read, instead of "
            "topics.", group=COMMON, order=4, width="LONG", display="Topics regex"),
        key("errors.deadletterqueue.topic.name", STRING, "", MEDIUM,
            "The topic for records that cannot be handled; none if "
            "empty.", group=ERRORS, order=6, width="MEDIUM", display="Dead Letter Queue Topic Name"),
        key("errors.deadletterqueue.topic.replication.factor", SHORT, 3, MEDIUM,
            "Its replicas, if it has to be created.",
            group=ERRORS, order=7, width="MEDIUM", display="Dead Letter Queue Topic Replication Factor"),
        key("errors.deadletterqueue.context.headers.enable", BOOLEAN, False, MEDIUM,
            "Whether headers say what was wrong.",
            group=ERRORS, order=8, width="MEDIUM", display="Enable Error Context Headers"),
    ]  # fmt: skip


def connector_keys(plugins: Plugins, worker: Mapping[str, str], kind: str, version: str) -> Table:
    rows = source_keys() if kind == "source" else sink_keys()
    return Table(common_keys(plugins, worker, version), rows)
