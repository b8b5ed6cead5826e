"""Datagen: random records of an Avro schema, for tutorials and tests.

A schema's types say what a value is, and its property `arg.properties` what it looks like:

    {"type": "string", "arg.properties": {"regex": "User_[1-9]"}}       {"options": ["MALE", "FEMALE"]}
    {"range": {"min": 1, "max": 10}}     {"iteration": {"start": 1, "step": 10}}     {"length": 8}     {"odds": 0.3}

The n-th record follows from the seed and n alone, so a restart goes on where it was, and a run can be repeated.
Schemas with a name (`quickstart=users`) stand in `datagen_schemas.py`; one's own come as `schema.string` or
`schema.filename`.
"""

from __future__ import annotations

import json
import random
import time as clock
from collections.abc import Mapping, Sequence
from pathlib import Path

from pessoa.base.config_values import Value, at_least
from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.connect.connector import Offset, OffsetRefused, Offsets, Partition, SourceConnector, offset_number
from pessoa.connect.connectors.datagen_schemas import QUICKSTARTS
from pessoa.connect.connectors.regex_text import random_match
from pessoa.connect.converters.avro_converter import connect_schema
from pessoa.connect.data import ConnectValue, DataFailure, Record, Schema, Struct, Type, connect_value, from_plain
from pessoa.connect.definition import HIGH, LONG, REQUIRED, STRING, Config, Settings, Table, key
from pessoa.serde.avro.avro_schema import Array, AvroType, EnumType, Fixed, Map, Primitive, Union
from pessoa.serde.avro.avro_schema import Record as AvroRecord
from pessoa.serde.avro.parsing import parse_avro
from pessoa.serde.schema_problems import SchemaProblem

ITERATION, SEED, GENERATION = "current.iteration", "random.seed", "task.generation"
# The most records of one poll.
BURST = 2000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _one_schema(value: Value, settings: Settings) -> str | None:
    given = [name for name in ("quickstart", "schema.string", "schema.filename") if settings.get(name, "").strip()]
    if len(given) != 1:
        return "Set exactly one of quickstart, schema.string and schema.filename"
    if value and given == ["quickstart"] and str(value).lower() not in QUICKSTARTS:
        return f"there are {', '.join(QUICKSTARTS)}"
    return None


class DatagenConnector(SourceConnector):
    NAMES = ("io.confluent.kafka.connect.datagen.DatagenConnector",)
    CONFIG = Table(
        key("kafka.topic", STRING, REQUIRED, HIGH, "The topic that records go to."),
        key("max.interval", LONG, 500, at_least(0), HIGH, "The longest time between two records, in milliseconds."),
        key("iterations", LONG, -1, HIGH, "How many records each task makes; -1 without end."),
        key("schema.string", STRING, "", HIGH, "An Avro schema."),
        key("schema.filename", STRING, "", HIGH, "A file with an Avro schema."),
        key("schema.keyfield", STRING, "", HIGH, "The field that becomes the key; no key if empty."),
        key("quickstart", STRING, "", _one_schema, HIGH, "The name of a schema that is there.",
            recommended=tuple(QUICKSTARTS)),
        key("random.seed", LONG, None, HIGH, "What chance begins with; another for every start if not set."),
        key("task.id", LONG, 0, HIGH, "Set for each task by itself."),
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        try:
            generator = _generator(settings)
        except (SchemaProblem, DataFailure, OSError) as wrong:
            return {_schema_key(settings): f"the schema cannot be used: {wrong}"}
        field = settings.get("schema.keyfield", "")
        if field and generator.schema.field(field) is None:
            return {"schema.keyfield": f"the schema has no field {field}"}
        return {}

    @classmethod
    def tasks(cls, settings: Mapping[str, str], max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{**settings, "task.id": str(number)} for number in range(max_tasks)]

    @classmethod
    def check_offset(cls, partition: Partition, offset: Offset) -> None:
        if "task.id" not in partition or not isinstance(offset.get(ITERATION), int):
            raise OffsetRefused(f"a partition is {{'task.id': 0}}, and an offset has the number '{ITERATION}'")

    def start(self, config: Config, offsets: Offsets) -> None:
        texts = {name: config.string(name) for name in ("quickstart", "schema.string", "schema.filename")}
        self._generator = _generator(texts)
        self._topic = config.string("kafka.topic")
        self._interval_s = config.integer("max.interval") / 1000
        self._end = config.integer("iterations")
        self._partition = {"task.id": config.integer("task.id")}
        offset = offsets.of(self._partition)
        self._count = offset_number(offset, ITERATION)
        self._generation = offset_number(offset, GENERATION, -1) + 1
        if config["random.seed"] is not None:
            self._seed = config.integer("random.seed")
        elif offset.get(SEED) is not None:
            self._seed = offset_number(offset, SEED)
        else:
            self._seed = random.SystemRandom().getrandbits(48)
        quick = QUICKSTARTS.get(texts["quickstart"].lower())
        self._key_field = config.string("schema.keyfield") or (quick.key if quick else "")
        self._due_at = clock.monotonic()

    def poll(self) -> list[Record]:
        records: list[Record] = []
        while len(records) < BURST and (self._end < 0 or self._count < self._end):
            if self._interval_s:
                if clock.monotonic() < self._due_at:
                    break
                self._due_at += random.uniform(0, self._interval_s)
            records.append(self._record())
        return records

    def _record(self) -> Record:
        number, self._count = self._count, self._count + 1
        chance = random.Random(f"{self._seed}/{self._partition['task.id']}/{number}")
        value = self._generator.value(chance, number)
        key_schema = self._generator.schema.field(self._key_field) if self._key_field else None
        return Record(
            self._topic,
            key_schema=key_schema,
            key=value[self._key_field] if key_schema is not None else None,
            value_schema=self._generator.schema,
            value=value,
            source_partition=self._partition,
            source_offset={GENERATION: self._generation, ITERATION: self._count, SEED: self._seed},
        )


def _schema_key(settings: Mapping[str, str]) -> str:
    return next((name for name in ("schema.string", "schema.filename") if settings.get(name)), "quickstart")


def _generator(settings: Mapping[str, str]) -> Generator:
    if settings.get("schema.string"):
        return Generator(settings["schema.string"])
    if settings.get("schema.filename"):
        return Generator(Path(settings["schema.filename"]).read_text(encoding="utf-8"))
    return Generator(json.dumps(QUICKSTARTS[settings["quickstart"].lower()].schema))


class Generator:
    """Random values of one Avro schema."""

    def __init__(self, text: str) -> None:
        self._avro = parse_avro(text)[0]
        self.schema: Schema = connect_schema(self._avro)
        if self.schema.type is not Type.STRUCT:
            raise DataFailure("the schema is no record")

    def value(self, chance: random.Random, number: int) -> Struct:
        made = _make_value(self._avro, self.schema, chance, number)
        if not isinstance(made, dict):
            raise DataFailure("the options of the record are no records")
        return made


def _make_value(avro: AvroType, schema: Schema, chance: random.Random, number: int) -> ConnectValue:
    properties = {} if isinstance(avro, Union) else avro.properties
    arguments = properties.get("arg.properties")
    if not isinstance(arguments, dict):
        arguments = {}
    if "options" in arguments:
        return connect_value(chance.choice(_options(arguments["options"])))
    match avro:
        case AvroRecord():
            pairs = zip(avro.fields, schema.fields, strict=True)
            return {one.name: _make_value(each.type, one.schema, chance, number) for each, one in pairs}
        case Union(branches=branches):
            chosen = chance.choice(branches)
            return None if chosen.kind == "null" else _make_value(chosen, schema, chance, number)
        case Array():
            assert schema.values is not None
            return [
                _make_value(avro.items, schema.values, chance, number) for _ in range(_length(arguments, chance, 3))
            ]
        case Map():
            assert schema.values is not None
            names = [_make_key(arguments, chance) for _ in range(_length(arguments, chance, 3))]
            return {name: _make_value(avro.values, schema.values, chance, number) for name in names}
        case EnumType():
            return chance.choice(avro.symbols)
        case Fixed():
            return chance.randbytes(avro.size)
        case Primitive():
            return from_plain(schema, _make_primitive(avro.kind, arguments, chance, number))


def _make_primitive(kind: str, arguments: JsonObject, chance: random.Random, number: int) -> ConnectValue:
    if "iteration" in arguments:
        return _count_up(kind, arguments["iteration"], number)
    limits = arguments.get("range")
    match kind:
        case "int" | "long":
            low, high = int(_number(limits, "min", 0)), int(_number(limits, "max", (1 << 31) - 1))
            return chance.randrange(low, max(high, low + 1))
        case "float" | "double":
            return chance.uniform(float(_number(limits, "min", 0.0)), float(_number(limits, "max", 1.0)))
        case "boolean":
            return chance.random() < _number(arguments, "odds", 0.5)
        case "bytes":
            return chance.randbytes(_length(arguments, chance, 8))
        case "null":
            return None
    if "regex" in arguments:
        return random_match(str(arguments["regex"]), chance)
    return "".join(chance.choice(_LETTERS) for _ in range(_length(arguments, chance, 8)))


def _number(facts: JsonValue, name: str, default: float) -> float:
    found = facts.get(name, default) if isinstance(facts, dict) else default
    if not isinstance(found, int | float):
        raise DataFailure(f"{name} is no number: {found}")
    return found


def _count_up(kind: str, facts: JsonValue, number: int) -> ConnectValue:
    start, step = _number(facts, "start", 0), _number(facts, "step", 1)
    # Without an end it goes on for ever.
    restart = _number(facts, "restart", start)
    value = _number(facts, "initial", start) + step * number
    if restart != start:
        value = start + (value - start) % (restart - start)
    return str(value) if kind == "string" else float(value) if kind in ("float", "double") else int(value)


def _length(arguments: JsonObject, chance: random.Random, default: int) -> int:
    length = arguments.get("length")
    if isinstance(length, dict):
        return chance.randrange(int(_number(length, "min", 0)), int(_number(length, "max", default)) + 1)
    return int(_number(arguments, "length", default))


def _make_key(arguments: JsonObject, chance: random.Random) -> str:
    keys = arguments.get("keys", {})
    if isinstance(keys, dict) and "options" in keys:
        return str(chance.choice(_options(keys["options"])))
    return "".join(chance.choice(_LETTERS) for _ in range(6))


def _options(options: JsonValue) -> Sequence[JsonValue]:
    if not isinstance(options, list) or not options:
        raise DataFailure("options is a list of values")
    return options
