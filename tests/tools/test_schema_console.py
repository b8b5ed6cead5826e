"""The console tools with schemas, on a broker and a registry, with the commands of tutorials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pessoa.testing import Broker
from tests.apache.tool_server import Outcome
from tests.services.schema_registry.serving import registry
from tests.tools.test_console import run

SCHEMAS = {
    "avro": '{"type":"record","name":"Fruit","fields":[{"name":"name","type":"string"},{"name":"count","type":"int"}]}',
    "json-schema": '{"type":"object","properties":{"name":{"type":"string"},"count":{"type":"integer"}},'
    '"required":["name"]}',
    "protobuf": 'syntax = "proto3"; message Fruit { string name = 1; int32 count = 2; }',
}


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    with Broker() as broker, registry(broker.bootstrap_servers) as server:
        yield broker.bootstrap_servers, server.url


def produce(kind: str, addresses: tuple[str, str], lines: str) -> Outcome:
    servers, url = addresses
    return run(f"kafka-{kind}-console-producer", "--broker-list", servers, "--topic", f"fruit-{kind}",
               "--property", f"schema.registry.url={url}", "--property", f"value.schema={SCHEMAS[kind]}",
               stdin=lines)  # fmt: skip


@pytest.mark.parametrize("kind", SCHEMAS)
def test_json_lines_are_produced_with_a_schema_and_consumed_as_the_same_json(
    kind: str, addresses: tuple[str, str]
) -> None:
    servers, url = addresses
    lines = '{"name":"fig","count":3}\n{"name":"plum","count":7}\n'
    done = produce(kind, addresses, lines)
    assert (done.code, done.err) == (0, "")
    words = ("--bootstrap-server", servers, "--topic", f"fruit-{kind}", "--from-beginning", "--max-messages", "2",
             "--timeout-ms", "100000")  # fmt: skip
    with_schema = run(f"kafka-{kind}-console-consumer", *words, "--formatter-property", f"schema.registry.url={url}")
    assert with_schema == Outcome(0, lines, "Processed a total of 2 messages\n")
    plain = run("kafka-console-consumer", *words)
    assert plain.out.encode().startswith(b"\0\0\0\0"), "the magic byte and the id stand before the payload"


def test_the_producer_names_the_line_that_does_not_fit_the_schema(addresses: tuple[str, str]) -> None:
    done = produce("avro", addresses, '{"name":5}\n')
    assert done.code == 1
    assert "SerializationException: Error serializing line number 1: " in done.err


def test_the_producer_names_the_registry_that_cannot_be_reached(addresses: tuple[str, str]) -> None:
    done = produce("avro", (addresses[0], "http://127.0.0.1:1"), '{"name":"fig","count":3}\n')
    assert done.code == 1
    assert "the schema registry at http://127.0.0.1:1 cannot be reached" in done.err
