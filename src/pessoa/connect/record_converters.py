"""The converters of a connector for keys, values and headers; what fails goes to its ErrorTolerance.

A connector's own `key.converter` comes with its settings (`key.converter.schemas.enable`); without one, the worker's
is used, with the worker's. The registry of the worker's converters, and the worker's login there, serve those of a
connector that names no other registry: the login is for that address alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pessoa.client.librdkafka import serialiser_settings
from pessoa.client.registry_client import URL
from pessoa.connect.converters import SIMPLE_HEADER
from pessoa.connect.converters.converter import Converter
from pessoa.connect.data import Header, Record
from pessoa.connect.error_tolerance import ErrorTolerance
from pessoa.connect.plugins import Plugins
from pessoa.web.settings import settings_below

if TYPE_CHECKING:
    from pessoa.pipelines.python_sink import KafkaRow

Headers = list[tuple[str, bytes | None]]
DEFAULT = "org.apache.kafka.connect.json.JsonConverter"


class RecordConverters:
    def __init__(
        self, settings: Mapping[str, str], worker: Mapping[str, str], plugins: Plugins, tolerance: ErrorTolerance
    ) -> None:
        self._tolerance = tolerance
        self._key_name, self._key = _converter(settings, worker, plugins, "key")
        self._value_name, self._value = _converter(settings, worker, plugins, "value")
        self._header_name, self._header = _converter(settings, worker, plugins, "header")

    def to_bytes(self, record: Record) -> tuple[bytes | None, bytes | None, Headers]:
        run, topic = self._tolerance.run, record.topic
        key = run("KEY_CONVERTER", self._key_name,
                  lambda: self._key.to_bytes(topic, record.key_schema, record.key))  # fmt: skip
        value = run("VALUE_CONVERTER", self._value_name,
                    lambda: self._value.to_bytes(topic, record.value_schema, record.value))  # fmt: skip
        headers: Headers = []
        for header in record.headers:
            work = partial(self._header.to_bytes, topic, header.schema, header.value)
            headers.append((header.key, run("HEADER_CONVERTER", self._header_name, work)))
        return key, value, headers

    def from_row(self, row: KafkaRow) -> Record:
        run, topic = self._tolerance.run, row.topic
        key_schema, key = run("KEY_CONVERTER", self._key_name, lambda: self._key.from_bytes(topic, row.key))
        value_schema, value = run("VALUE_CONVERTER", self._value_name, lambda: self._value.from_bytes(topic, row.value))
        headers = []
        for name, data in row.headers:
            work = partial(self._header.from_bytes, topic, data)
            schema, one = run("HEADER_CONVERTER", self._header_name, work)
            headers.append(Header(name, schema, one))
        return Record(
            topic, row.partition, key_schema, key, value_schema, value, tuple(headers), row.timestamp_ms, row.offset,
            origin=row,
        )  # fmt: skip


def _converter(
    settings: Mapping[str, str], worker: Mapping[str, str], plugins: Plugins, side: str
) -> tuple[str, Converter]:
    prefix = f"{side}.converter"
    source = settings if prefix in settings else worker
    name = source.get(prefix, SIMPLE_HEADER if side == "header" else DEFAULT)
    kind = plugins.header_converter(name) if side == "header" else plugins.converter(name)
    given = settings_below(source, f"{prefix}.")
    if source is settings and side != "header":
        given = with_registry_of_worker(given, settings_below(worker, f"{prefix}."))
    return name, kind(given, is_key=side == "key")


def with_registry_of_worker(given: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a converter, with the worker's registry and login unless they name another registry."""
    registry = serialiser_settings(worker)
    is_same = given.get(URL, registry.get(URL)) == registry.get(URL)
    return {**registry, **given} if is_same else dict(given)
