"""Predicates: questions about a record that decide whether a transform applies to it.

predicates=p        predicates.p.type=org.apache.kafka.connect.transforms.predicates.TopicNameMatches
transforms.a.predicate=p        transforms.a.negate=true
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pessoa.base.config_values import NOT_EMPTY, Value
from pessoa.connect.data import Record
from pessoa.connect.definition import HIGH, REQUIRED, STRING, Table, key
from pessoa.connect.java_regex import JavaPattern, pattern_complaint


def _is_pattern(value: Value, _: Mapping[str, str]) -> str | None:
    return pattern_complaint(value)


class Predicate(ABC):
    CONFIG: ClassVar[Table] = Table()

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.configure(self.CONFIG.parse(settings))

    def configure(self, config: dict[str, Any]) -> None:  # noqa: B027
        """Take what is needed from typed settings."""

    @abstractmethod
    def test(self, record: Record) -> bool: ...


class TopicNameMatches(Predicate):
    CONFIG = Table(
        key("pattern", STRING, REQUIRED, NOT_EMPTY, _is_pattern, "A Java regular expression for the topic's name.")
    )

    def configure(self, config: dict[str, Any]) -> None:
        self._pattern: re.Pattern[str] = JavaPattern(config["pattern"]).compiled

    def test(self, record: Record) -> bool:
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    CONFIG = Table(key("name", STRING, REQUIRED, NOT_EMPTY, HIGH, "The header's name."))

    def configure(self, config: dict[str, Any]) -> None:
        self._name: str = config["name"]

    def test(self, record: Record) -> bool:
        return any(header.key == self._name for header in record.headers)


class RecordIsTombstone(Predicate):
    def test(self, record: Record) -> bool:
        return record.value is None


_PACKAGE = "org.apache.kafka.connect.transforms.predicates."
PREDICATES: dict[str, type[Predicate]] = {
    _PACKAGE + kind.__name__: kind for kind in (HasHeaderKey, RecordIsTombstone, TopicNameMatches)
}
