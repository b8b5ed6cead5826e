"""The writer's handling of acknowledgements."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.client.topic_creation import TopicUnavailable
from pessoa.schema_registry.registry_config import Config
from pessoa.schema_registry.registry_records import NoopKey, Record
from pessoa.schema_registry.schemas_topic import Writer


class Acknowledging:
    """A producer whose delivery reports have these offsets."""

    def __init__(self, offsets: list[int | None]) -> None:
        self._offsets = offsets
        self._told: list[Callable[[None, Any], None]] = []

    def begin_transaction(self) -> None:
        pass

    def produce(self, topic: str, *, on_delivery: Callable[[None, Any], None], **_: object) -> None:
        self._told.append(on_delivery)

    def commit_transaction(self, timeout_s: float) -> None:
        for told, offset in zip(self._told, self._offsets, strict=True):
            told(None, SimpleNamespace(offset=lambda at=offset: at))

    def poll(self, timeout_s: float) -> None:
        pass


def write(offsets: list[int | None]) -> int:
    writer = Writer(Config(bootstrap_servers="127.0.0.1:9092"), {})
    producer: Any = Acknowledging(offsets)
    writer._producer = producer
    return writer._write([Record(NoopKey(), None)] * len(offsets))


def test_only_the_last_acknowledgement_has_to_name_an_offset() -> None:
    assert write([None, 8]) == 8


def test_a_last_acknowledgement_without_an_offset_makes_the_topic_unavailable() -> None:
    with pytest.raises(TopicUnavailable):
        write([None])
