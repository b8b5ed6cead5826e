"""The compatibility table checked by independent libraries, because its verdicts were written by us:

    Avro        the checker of the `avro` package, which follows Java's SchemaCompatibility: every row, both directions
    JSON        the `jsonschema` package: a compatible schema accepts every sample that the other one accepts
    Protobuf    protobuf's runtime: a compatible schema reads every common field that the other one wrote

JSON and Protobuf are checked only for compatible rows: an incompatible schema may still accept all samples.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from google.protobuf.message_factory import GetMessageClass
from jsonschema import Draft7Validator
from jsonschema.validators import validator_for

from pessoa.serde.protobuf.linking import ProtoFile, link, read_proto
from tests.services.schema_registry.compatibility import avro_pairs, json_pairs, protobuf_pairs


def both_directions(pairs: Any) -> list[Any]:
    """Return (reader, writer, whether the reader can read) for each row in both directions."""
    rows = []
    for number, (old, new, backward, forward, why) in enumerate(pairs):
        rows.append(pytest.param(new, old, backward, id=f"{number} backward: {why}"))
        rows.append(pytest.param(old, new, forward, id=f"{number} forward: {why}"))
    return rows


# Avro.


@pytest.mark.parametrize(("reader", "writer", "can_read"), both_directions(avro_pairs.PAIRS))
def test_the_avro_package_agrees_with_the_compatibility_table(reader: str, writer: str, can_read: bool) -> None:
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    verdict = checker.get_compatibility(avro.schema.parse(reader), avro.schema.parse(writer))
    assert (verdict.compatibility is SchemaCompatibilityType.compatible) == can_read, verdict.messages


# JSON.

SMALL: list[Any] = [None, True, 0, 1, 5, 10, 1.5, -3, "", "a", "abc", "x" * 12, [], ["a"], [1], ["a", 1], [1, 1], {}]
SAMPLES: list[Any] = [
    *SMALL,
    *({"a": one} for one in SMALL),
    *({"b": one} for one in SMALL),
    *({"a": one, "b": two} for one, two in product(SMALL[:11], repeat=2)),
    {"a": "x", "b": 1, "c": True},
    {"a": {"a": "x"}, "b": {"b": 1}},
    [{"a": "x"}, {"a": "y"}],
    ["a", "b", "c"],
    [1, 2, 3, 4, 5, 6],
]


# Confluent's rule counts a property with a default as present; a validator does not.
BY_RULE = ("a default stands in for what was not required", "required, but there is a default")


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        pytest.param(*row.values[:2], id=row.id)
        for row in both_directions(json_pairs.PAIRS)
        if row.values[2] and not str(row.id).endswith(BY_RULE)
    ],
)
def test_a_compatible_json_schema_accepts_every_sample_that_the_other_accepts(reader: str, writer: str) -> None:
    takes, gives = (validator_for(json.loads(each), default=Draft7Validator) for each in (reader, writer))
    wide, narrow = takes(json.loads(reader)), gives(json.loads(writer))
    refused = [sample for sample in SAMPLES if narrow.is_valid(sample) and not wide.is_valid(sample)]
    assert not refused


# Protobuf.


def fill(message: Any, depth: int = 2) -> Any:
    """Set every field of a message (of a oneof the last one) and return the message."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry or depth == 0:
                continue
            target = getattr(message, field.name)
            fill(target.add() if field.is_repeated else target, depth - 1)
            if not field.is_repeated:
                target.SetInParent()
            continue
        value: Any = b"x" if field.type == field.TYPE_BYTES else "x" if field.type == field.TYPE_STRING else 1
        if field.enum_type is not None:
            value = field.enum_type.values[-1].number
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


def first_message(file: ProtoFile) -> Any:
    descriptor = file.pool.FindFileByName(file.proto.name)
    return GetMessageClass(next(iter(descriptor.message_types_by_name.values())))


@pytest.mark.parametrize(
    ("reader", "writer"),
    [pytest.param(*row.values[:2], id=row.id) for row in both_directions(protobuf_pairs.PAIRS) if row.values[2]],
)
def test_a_compatible_protobuf_schema_reads_every_common_field_that_the_other_wrote(reader: str, writer: str) -> None:
    ours, theirs = (first_message(link(read_proto(each))) for each in (reader, writer))
    written = fill(theirs())
    read = ours.FromString(written.SerializeToString())
    numbers = {field.number for field, _ in written.ListFields()}
    known = {field.number for field in ours.DESCRIPTOR.fields}
    assert numbers & known == {field.number for field, _ in read.ListFields()}
