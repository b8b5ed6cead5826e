"""Scalars in fields of another type, converted as Jackson does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pessoa.rest_proxy.request_values import decoded, decoder
from pessoa.rest_proxy.v2.v2_bodies import CreateConsumer, Partitions, Positions, Produce
from pessoa.rest_proxy.v3.config_endpoints import AlterConfigs
from pessoa.rest_proxy.v3.record_endpoints import Batch, Record
from pessoa.rest_proxy.v3.topic_endpoints import CreateTopic
from pessoa.web.problems import HttpProblem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"0"', 0),
        ('" 7 "', 7),
        ('"-3"', -3),
        ('"+3"', 3),
        ('""', None),
        ('"null"', None),
        ("null", None),
        ("7.9", 7),
        ("1e2", 100),
        ("7", 7),
    ],
)
def test_an_integer_may_be_given_as_text_or_with_a_zero_fraction(text: str, expected: int | None) -> None:
    body = f'{{"records":[{{"value":"1","partition":{text}}}],"value_schema_id":{text}}}'.encode()
    found = decoded(body, decoder(Produce))
    assert (found.records[0].partition, found.value_schema_id) == (expected, expected)
    # The value of a record belongs to no field of ours, and is not coerced.
    assert bytes(found.records[0].value) == b'"1"'


@pytest.mark.parametrize("text", ['"x"', '"7.5"', '"0x7"', "true", "[7]", "{}", '"' + "9" * 5000 + '"', "1e999999999"])
def test_a_value_that_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        decoded(f'{{"records":[{{"partition":{text}}}]}}'.encode(), decoder(Produce))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [('"true"', True), ('"True"', True), ('"FALSE"', False), ("1", True), ("0", False), ("true", True)],
)
def test_a_boolean_may_be_given_as_text_or_as_a_number(text: str, expected: bool) -> None:
    body = f'{{"topic_name":"t","partitions_count":"3","validate_only":{text}}}'.encode()
    found = decoded(body, decoder(CreateTopic))
    assert (found.validate_only, found.partitions_count) == (expected, 3)


@pytest.mark.parametrize("text", ['"yes"', '"tRUE"', "1.5", "[]"])
def test_a_value_that_is_no_boolean_is_refused(text: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        decoded(f'{{"topic_name":"t","validate_only":{text}}}'.encode(), decoder(CreateTopic))
    assert refused.value.status == 400


@pytest.mark.parametrize(("text", "expected"), [("1000", "1000"), ("1.50", "1.50"), ("true", "true"), ('"7"', "7")])
def test_a_string_may_be_given_as_a_number_or_a_boolean(text: str, expected: str) -> None:
    body = f'{{"data":[{{"name":"retention.ms","value":{text}}}],"validate_only":"true"}}'.encode()
    found = decoded(body, decoder(AlterConfigs))
    assert (found.data[0].value, found.validate_only) == (expected, True)


@pytest.mark.parametrize(
    ("kind", "body", "look", "expected"),
    [
        (Partitions, '{"partitions":[{"topic":5,"partition":"1"}]}', "partitions.0.topic", "5"),
        (Positions, '{"offsets":[{"topic":"t","partition":"1","offset":"12"}]}', "offsets.0.offset", 12),
        (CreateConsumer, '{"name":7,"auto.commit.enable":false}', "name", "7"),
        (CreateConsumer, '{"name":7,"auto.commit.enable":"false"}', "auto_commit_enable", "false"),
        (Record, '{"partition_id":"2","value":{"type":"JSON","data":1}}', "partition_id", 2),
        (Record, '{"value":{"schema_id":"4","data":"1"},"partition_id":0}', "value.schema_id", 4),
        (Record, '{"timestamp":1700000000}', "timestamp", "1700000000"),
        (Batch, '{"entries":[{"id":1,"partition_id":"0"}]}', "entries.0.id", "1"),
    ],
)
def test_every_request_body_accepts_scalars_of_another_type(kind: Any, body: str, look: str, expected: object) -> None:
    found: Any = decoded(body.encode(), decoder(kind))
    for step in look.split("."):
        found = found[int(step)] if step.isdigit() else getattr(found, step)
    assert found == expected


def test_other_validation_errors_are_reported_unchanged() -> None:
    for body, status in (
        (b'{"records":[{"partition":"0","valur":1}]}', 422),
        (b'{"value_schema_id":"1"}', 422),
        (b'{"records":"x"}', 400),
        (b'{"records":[{"partition":"0"},', 400),
    ):
        with pytest.raises(HttpProblem) as refused:
            decoded(body, decoder(Produce))
        assert refused.value.status == status, body


def test_the_value_of_a_record_is_not_coerced() -> None:
    value = b'{"n":1.50,"big":123456789012345678901234567890,"s":"\\u00e9"}'
    found = decoded(b'{"records":[{"value":' + value + b',"partition":"0"}]}', decoder(Produce))
    assert bytes(found.records[0].value) == value
    assert msgspec.json.decode(found.records[0].value)["n"] == 1.5
