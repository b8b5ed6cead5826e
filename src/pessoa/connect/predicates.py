"""Predicates: conditions on a record that decide whether a transform applies to it.

predicates=p        predicates.p.type=org.apache.kafka.connect.transforms.predicates.TopicNameMatches
transforms.a.predicate=p        transforms.a.negate=true
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pessoa.base.config_values import NOT_EMPTY
from pessoa.connect.data import Record
from pessoa.connect.definition import HIGH, REQUIRED, STRING, Config, Table, key
from pessoa.connect.java_regex import JavaPattern, pattern_complaint


class Predicate(ABC):
    CONFIG: ClassVar[Table] = Table()

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.configure(self.CONFIG.parse(settings))

    def configure(self, config: Config) -> None:  # noqa: B027
        """Prepare for records with these settings."""

    @abstractmethod
    def test(self, record: Record) -> bool: ...


class TopicNameMatches(Predicate):
    CONFIG = Table(
        key(
            "pattern", STRING, REQUIRED, NOT_EMPTY, pattern_complaint, "A Java regular expression for the topic's name."
        )
    )

    def configure(self, config: Config) -> None:
        self._pattern: re.Pattern[str] = JavaPattern(config.string("pattern")).compiled

    def test(self, record: Record) -> bool:
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    CONFIG = Table(key("name", STRING, REQUIRED, NOT_EMPTY, HIGH, "The header's name."))

    def configure(self, config: Config) -> None:
        self._name = config.string("name")

    def test(self, record: Record) -> bool:
        return any(header.key == self._name for header in record.headers)


class RecordIsTombstone(Predicate):
    def test(self, record: Record) -> bool:
        return record.value is None


_PACKAGE = "org.apache.kafka.connect.transforms.predicates."
PREDICATES: dict[str, type[Predicate]] = {
    _PACKAGE + kind.__name__: kind for kind in (HasHeaderKey, RecordIsTombstone, TopicNameMatches)
}
