"""Apply Apache's transforms and ours to the same records, and compare the results as JsonConverter writes them.

Each case is a transform, its settings and a record, with a schema or without. These must be equal: topic, key, value
with schema, headers, whether the record is dropped, and whether it is refused (not the message of the error).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.connect.converters.json_converter import JsonConverter
from pessoa.connect.data import STRING, DataFailure, Header, Record
from pessoa.connect.plugins import Plugins
from tests.connect.apache_connect import judge

PACKAGE = "org.apache.kafka.connect.transforms."
ENVELOPE = JsonConverter({"schemas.enable": "true"})
MOMENT_MS = 1_700_000_000_123


def field(name: str, kind: str, /, *, optional: bool = False, **facts: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": optional, **facts}


def struct(fields: list[dict[str, Any]], payload: dict[str, Any] | None, /, **facts: Any) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": fields, "optional": False, **facts}, "payload": payload}


def bare(payload: Any) -> dict[str, Any]:
    return {"schema": None, "payload": payload}


def typed(kind: str, payload: Any, /, **facts: Any) -> dict[str, Any]:
    return {"schema": {"type": kind, "optional": False, **facts}, "payload": payload}


TIMESTAMP: dict[str, Any] = {"name": "org.apache.kafka.connect.data.Timestamp", "version": 1}
DATE: dict[str, Any] = {"name": "org.apache.kafka.connect.data.Date", "version": 1}
ORDER_FIELDS = [
    field("id", "int32"),
    field("name", "string", optional=True),
    field("price", "double"),
    field("many", "int64"),
    field("is_new", "boolean"),
    field("when", "int64", **TIMESTAMP),
    field("level", "string", optional=True, default="low"),
    field(
        "address",
        "struct",
        optional=True,
        fields=[field("city", "string"), field("zip", "int32", optional=True)],
    ),
]
ORDER = struct(
    ORDER_FIELDS,
    {
        "id": 300, "name": "vinho", "price": 3.75, "many": 5_000_000_000, "is_new": True, "when": MOMENT_MS,
        "level": "high", "address": {"city": "Porto", "zip": 4000},
    },
    name="Order",
)  # fmt: skip
ORDER_WITH_NULLS = struct(
    ORDER_FIELDS,
    {
        "id": 1, "name": None, "price": -0.5, "many": -1, "is_new": False, "when": 0, "level": None, "address": None,
    },
)  # fmt: skip
LOOSE = bare({"id": 300, "name": "vinho", "price": 3.75, "is_new": True, "address": {"city": "Porto"}, "tags": [1, 2]})
LOOSE_TIME = bare({"when": MOMENT_MS, "text": "2024-02-29 13:14:15.016", "none": None})
VALUES = {"order": ORDER, "nulls": ORDER_WITH_NULLS, "loose": LOOSE, "none": None}

Case = tuple[str, dict[str, str], Any]


def on_all(name: str, config: dict[str, str]) -> list[Case]:
    return [(name, config, value) for value in VALUES.values()]


CASES: list[Case] = [
    *on_all("Cast$Value", {"spec": "id:int8,price:int32,many:int32,is_new:string"}),
    *on_all("Cast$Value", {"spec": "id:string,price:string,many:float32,is_new:int64,when:string"}),
    *on_all("Cast$Value", {"spec": "when:int64,price:boolean,id:float64"}),
    ("Cast$Value", {"spec": "int8"}, typed("int32", 300)),
    ("Cast$Value", {"spec": "string"}, typed("double", 1e10)),
    ("Cast$Value", {"spec": "boolean"}, bare("True")),
    ("Cast$Value", {"spec": "int32"}, bare("12x")),
    ("Cast$Value", {"spec": "float32"}, bare("1.1")),
    ("Cast$Key", {"spec": "int16"}, ORDER),
    *on_all("ExtractField$Value", {"field": "name"}),
    *on_all("ExtractField$Value", {"field": "level"}),
    *on_all("ExtractField$Value", {"field": "missing"}),
    *on_all("ExtractField$Value", {"field": "address.city", "field.syntax.version": "V2"}),
    *on_all("Flatten$Value", {}),
    *on_all("Flatten$Value", {"delimiter": "_"}),
    *on_all("HeaderFrom$Value", {"fields": "id,name", "headers": "h1,h2", "operation": "copy"}),
    *on_all("HeaderFrom$Value", {"fields": "price", "headers": "p", "operation": "move"}),
    *on_all("HoistField$Value", {"field": "inside"}),
    *on_all("HoistField$Key", {"field": "inside"}),
    *on_all("InsertField$Value", {"topic.field": "t", "partition.field": "p!", "offset.field": "o?"}),
    *on_all("InsertField$Value", {"timestamp.field": "ts", "static.field": "s", "static.value": "fixed"}),
    *on_all("MaskField$Value", {"fields": "name,price,many,is_new,when"}),
    *on_all("MaskField$Value", {"fields": "name", "replacement": "***"}),
    *on_all("MaskField$Value", {"fields": "id", "replacement": "7"}),
    *on_all("MaskField$Value", {"fields": "id", "replacement": "x"}),
    *on_all("ReplaceField$Value", {"exclude": "name,price"}),
    *on_all("ReplaceField$Value", {"include": "id,level", "renames": "id:key,level:rank"}),
    *on_all("ReplaceField$Value", {"include": "id,name", "exclude": "name"}),
    *on_all("SetSchemaMetadata$Value", {"schema.name": "New", "schema.version": "3"}),
    *on_all("ValueToKey", {"fields": "id,name"}),
    *on_all("ValueToKey", {"fields": "missing"}),
    *on_all("Filter", {}),
    *on_all("DropHeaders", {"headers": "trace,other"}),
    *[("InsertHeader", {"header": "h", "value.literal": text}, ORDER)
      for text in ("12", "1200", "70000", "5000000000", "1.5", "true", "text", "null", "[1,2]", '{"a":1}',
      "2024-01-31")],
    *on_all("RegexRouter", {"regex": "(.*)-(.*)", "replacement": "$2_$1"}),
    *on_all("RegexRouter", {"regex": "nothing", "replacement": "x"}),
    *on_all("RegexRouter", {"regex": "(?<a>t).*", "replacement": "${a}-\\$1"}),
    *on_all("TimestampRouter", {"topic.format": "${topic}/${timestamp}",
    "timestamp.format": "yyyy-MM-dd'T'HH:mm:ss.SSS"}),
    *on_all("TimestampRouter", {"timestamp.format": "EEE d MMM yy, hh:mm a Z"}),
    *on_all("TimestampConverter$Value", {"field": "when", "target.type": "string",
    "format": "yyyy-MM-dd HH:mm:ss.SSS"}),
    *on_all("TimestampConverter$Value", {"field": "when", "target.type": "unix", "unix.precision": "seconds"}),
    *on_all("TimestampConverter$Value", {"field": "when", "target.type": "unix", "unix.precision": "nanoseconds"}),
    *on_all("TimestampConverter$Value", {"field": "when", "target.type": "Date"}),
    *on_all("TimestampConverter$Value", {"field": "when", "target.type": "Time"}),
    ("TimestampConverter$Value", {"field": "when", "target.type": "Timestamp"}, LOOSE_TIME),
    ("TimestampConverter$Value",
     {"field": "text", "target.type": "unix", "format": "yyyy-MM-dd HH:mm:ss.SSS"}, LOOSE_TIME),
    ("TimestampConverter$Value",
     {"field": "text", "target.type": "Timestamp", "format": "dd.MM.yyyy"}, LOOSE_TIME),
    ("TimestampConverter$Value", {"field": "none", "target.type": "Timestamp"}, LOOSE_TIME),
    ("TimestampConverter$Value", {"target.type": "string", "format": "yyyy"}, typed("int64", MOMENT_MS, **TIMESTAMP)),
    ("TimestampConverter$Value", {"target.type": "Timestamp"}, typed("int32", 19000, **DATE)),
    ("TimestampConverter$Value", {"target.type": "Timestamp"}, typed("int64", MOMENT_MS)),
    ("TimestampConverter$Value", {"target.type": "Timestamp", "format": "yyyyMMddHHmmss"}, typed("string",
    "20240229131415")),
]  # fmt: skip
KEY = typed("string", "k")


def ours(case: Case) -> dict[str, Any]:
    name, config, given = case
    key_schema, key = ENVELOPE.from_bytes("t", json.dumps(KEY).encode())
    value_schema, value = ENVELOPE.from_bytes("t", None if given is None else json.dumps(given).encode())
    trace = (Header("trace", STRING, "abc"),)
    record = Record("t-1", 3, key_schema, key, value_schema, value, trace, MOMENT_MS, 42)
    try:
        changed = Plugins().transform(PACKAGE + name)(config).apply(record)
        if changed is None:
            return {"dropped": True}
        return {
            "topic": changed.topic,
            "key": written(changed.key_schema, changed.key),
            "value": written(changed.value_schema, changed.value),
            "headers": {each.key: written(each.schema, each.value) for each in changed.headers},
        }
    except (DataFailure, ConfigProblem):
        return {"error": True}


def written(schema: Any, value: Any) -> Any:
    data = ENVELOPE.to_bytes("t", schema, value)
    return None if data is None else json.loads(data)


@pytest.mark.apache
def test_apaches_transforms_and_ours_give_equal_results_for_every_case(
    record_property: Callable[[str, object], None],
) -> None:
    lines = [
        json.dumps({"class": PACKAGE + name, "config": config, "topic": "t-1", "key": KEY, "value": value,
                    "timestamp": MOMENT_MS})
        for name, config, value in CASES
    ]  # fmt: skip
    theirs = [json.loads(line) for line in judge("\n".join(lines) + "\n").splitlines()]
    assert len(theirs) == len(CASES)
    different = []
    for case, answer in zip(CASES, theirs, strict=True):
        expected = {"error": True} if "error" in answer else answer
        if ours(case) != expected:
            different.append(f"{case}\n  theirs {answer}\n  ours   {ours(case)}")
    record_property("compared", f"{len(CASES)} cases of {len({name for name, _, _ in CASES})} transforms with Apache's")
    assert not different, "\n".join(different)
