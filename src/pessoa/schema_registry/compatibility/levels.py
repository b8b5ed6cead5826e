"""The seven levels, and what a check under one of them says.

    NONE                  everything goes
    BACKWARD              the new schema reads what the latest wrote       consumers are upgraded first
    FORWARD               the latest reads what the new one writes         producers are upgraded first
    FULL                  both
    …_TRANSITIVE          the same against every version, not the latest alone

A schema of another type than an earlier one is incompatible at every level but NONE.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Level(StrEnum):
    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))


def parse_level(text: str) -> Level | None:
    try:
        return Level(text.upper())
    except ValueError:
        return None


class Comparable(Protocol):
    """A parsed schema, with what a compatibility check needs of it."""

    @property
    def schema_type(self) -> str:
        """The type of the schema: AVRO, JSON or PROTOBUF."""

    @property
    def text(self) -> str:
        """The canonical text, for the message."""

    def findings(self, writer: Comparable, *, is_new: bool, is_lenient: bool) -> list[str]:
        """Return the reasons why this schema cannot read data that `writer` wrote; `is_new` says which of the two is
        the new one."""


class Earlier(NamedTuple):
    version: int
    schema: Comparable


def check_level(
    level: Level, new: Comparable, earlier: Sequence[Earlier], *, is_lenient: bool = False
) -> tuple[str, ...]:
    """Return the incompatibilities as sentences; none if the new schema may follow. `earlier` is newest first."""
    if level is Level.NONE:
        return ()
    for previous in earlier if level.is_transitive else earlier[:1]:
        found = _compare_pair(level, new, previous.schema, is_lenient)
        if found:
            return (
                *found,
                f"{{oldSchemaVersion: {previous.version}}}",
                f"{{oldSchema: '{previous.schema.text}'}}",
                f"{{validateFields: 'false', compatibility: '{level}'}}",
            )
    return ()


def _compare_pair(level: Level, new: Comparable, old: Comparable, is_lenient: bool) -> list[str]:
    if new.schema_type != old.schema_type:
        sentence = f"The schema is of type {new.schema_type}, the earlier one of type {old.schema_type}"
        return [f"{{errorType:'SCHEMA_TYPE_CHANGED', description:'{sentence}'}}"]
    found: list[str] = []
    if level.is_backward:
        found += new.findings(old, is_new=True, is_lenient=is_lenient)
    if level.is_forward:
        found += old.findings(new, is_new=False, is_lenient=is_lenient)
    return list(dict.fromkeys(found))
