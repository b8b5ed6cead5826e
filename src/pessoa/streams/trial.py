"""`app.test(…)`: the pipelines of an app on a few records, with Spark and without a cluster.

    out = app.test({"vendas": [("ana", {"valor": 12}), ("rui", {"valor": 3})]})
    assert [record.value for record in out["totais"]] == [{"count": 1}]

Records are given as values, as pairs of key and value, or as Record where time or headers matter. Without a time, each
is a second after the one before it, in all topics together. Bytes go in as they are, so a bad record can be tried too.

What a pipeline writes is there for the ones that read it. Avro and Protobuf are played as JSON with the same columns:
the registry is not what is tested.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pessoa.pipelines.in_memory import KafkaRecord
from pessoa.pipelines.plan import NOTHING, PRIMITIVES, Format, Node, PlanRefused, Sink, Source, every
from pessoa.pipelines.shapes import Shape
from pessoa.pipelines.stages import REGISTRY_FORMATS, with_inputs
from pessoa.serde import primitive_codecs

_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
# The names of the serde package for Kafka's primitive types.
_SERDES = {"int": "integer"}


@dataclasses.dataclass(frozen=True)
class Record:
    """An input or output record of a trial."""

    key: Any = None
    value: Any = None
    time: datetime.datetime | None = None
    headers: Mapping[str, bytes | None] = dataclasses.field(default_factory=dict)
    # Where its key has one: the start of its window.
    window_start: datetime.datetime | None = None


def as_record(given: object) -> Record:
    if isinstance(given, Record):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        return Record(*given)
    return Record(None, given)


def encode_records(
    topics: Mapping[str, Sequence[object]], sources: Mapping[str, Source]
) -> dict[str, list[KafkaRecord]]:
    """Return the records of all topics as bytes, in the formats of the sources that read them."""
    found: dict[str, list[KafkaRecord]] = {}
    number = 0
    for topic, given in topics.items():
        if topic not in sources:
            raise PlanRefused(f"no pipeline reads the topic {topic}; they read {', '.join(sources)}")
        source = sources[topic]
        found[topic] = []
        for record in map(as_record, given):
            time = record.time or _START + datetime.timedelta(seconds=number)
            number += 1
            found[topic].append(
                KafkaRecord(
                    topic,
                    to_bytes(source.key, record.key),
                    to_bytes(source.value, record.value),
                    round(time.timestamp() * 1000),
                    tuple(record.headers.items()),
                )
            )
    return found


def to_bytes(format_: Format, value: Any) -> bytes | None:
    if value is None or format_.kind == NOTHING:
        return None
    if isinstance(value, bytes):
        return value
    if format_.kind in PRIMITIVES:
        return primitive_codecs.encode(_SERDES.get(format_.kind, format_.kind), value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if format_.kind == "delimited":
        out = io.StringIO()
        writer = csv.writer(out, delimiter=format_.delimiter, lineterminator="")
        writer.writerow(value.values() if isinstance(value, Mapping) else value)
        return out.getvalue().encode()
    return json.dumps(value, default=_as_text).encode()


def _as_text(value: object) -> str:
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    return str(value)


def from_bytes(format_: Format, data: bytes | None) -> object:
    if data is None:
        return None
    if format_.kind in PRIMITIVES:
        return primitive_codecs.decode(_SERDES.get(format_.kind, format_.kind), data)
    if format_.kind == "delimited":
        return next(csv.reader([data.decode()], delimiter=format_.delimiter))
    return json.loads(data)


def decode_record(record: KafkaRecord, sink: Sink | None, made: Shape | None) -> Record:
    """Return the record that a sink wrote; without a sink (a dead letter) its key and value are bytes."""
    time = _START.fromtimestamp(record.timestamp_ms / 1000, datetime.UTC)
    headers = dict(record.headers)
    if sink is None or made is None:
        return Record(record.key, record.value, time, headers)
    key, start = record.key, None
    if made.window is not None and sink.windowed_key and key is not None:
        key, (start_ms,) = key[:-8], struct.unpack(">q", key[-8:])
        start = _START.fromtimestamp(start_ms / 1000, datetime.UTC)
        if made.window.kind == "session":
            key = key[:-8]
    return Record(from_bytes(sink.key, key), from_bytes(sink.value, record.value), time, headers, start)


def without_registry(plan: Node) -> Node:
    """Return the plan with JSON in place of formats that need a schema registry."""
    from pessoa.pipelines.plan import inputs

    whole = with_inputs(plan, tuple(without_registry(each) for each in inputs(plan)))
    if isinstance(whole, Source | Sink):
        return msgspec.structs.replace(whole, key=_as_json(whole.key), value=_as_json(whole.value))
    return whole


def _as_json(format_: Format) -> Format:
    return Format("json", format_.columns) if format_.kind in REGISTRY_FORMATS else format_


def sources_of(plans: Iterable[Node]) -> dict[str, Source]:
    return {node.topic: node for plan in plans for node in every(plan) if isinstance(node, Source)}


def in_order(sinks: Sequence[Sink]) -> list[Sink]:
    """Return the sinks in an order in which a topic is written before it is read. Raises PlanRefused for a cycle."""
    waiting, ordered = list(sinks), []
    while waiting:
        written = {sink.topic for sink in waiting}
        ready = [sink for sink in waiting if not written & set(sources_of([sink]))]
        if not ready:
            raise PlanRefused("the pipelines feed each other in a circle, so no batch of records ever ends")
        ordered += ready
        waiting = [sink for sink in waiting if sink not in ready]
    return ordered
