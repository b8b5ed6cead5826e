"""Hostile requests to the schema registry and the REST proxy; other clients are still served.

Each test is one attack over HTTP: it is answered with a client error (4xx), or accepted, in bounded time, and the
service still answers afterwards.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from pessoa.rest_proxy import consumer_instances
from pessoa.testing.broker import Broker
from pessoa.web.serving import ThreadedServer
from tests.services.rest_proxy.stage import proxy_in_front_of
from tests.services.schema_registry.serving import registry

# Enough for a busy machine; without the limits that are tested here these attacks took minutes, or did not end.
BOUNDED_S = 60.0
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def server(broker: Broker) -> Iterator[ThreadedServer]:
    with registry(broker.bootstrap_servers) as server:
        yield server


@pytest.fixture
def http(server: ThreadedServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=BOUNDED_S) as client:
        yield client
        assert client.get("/subjects").status_code == 200


def register(http: httpx.Client, kind: str, schema: Any, subject: str | None = None) -> httpx.Response:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return http.post(
        f"/subjects/{subject or uuid4().hex}/versions", json={"schemaType": kind, "schema": text}, headers=JSON
    )


def avro_defaults(depth: int) -> dict[str, Any]:
    """Return a record schema in which each level has two fields of the level below, each with a default."""
    fields: list[Any] = [{"name": "f0", "type": {"type": "record", "name": "R0", "fields": []}}]
    for level in range(1, depth):
        inner: list[Any] = [{"name": name, "type": f"R{level - 1}", "default": {}} for name in ("x", "y")]
        fields.append({"name": f"f{level}", "type": {"type": "record", "name": f"R{level}", "fields": inner}})
    return {"type": "record", "name": "Top", "fields": fields}


def test_an_avro_schema_whose_defaults_double_at_each_level_is_registered_in_bounded_time(http: httpx.Client) -> None:
    assert register(http, "AVRO", avro_defaults(40)).status_code == 200


def test_an_avro_record_type_that_is_its_own_default_is_refused(http: httpx.Client) -> None:
    itself = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "R", "default": {}}]}
    assert register(http, "AVRO", itself).status_code == 422


def test_a_json_schema_pattern_that_matches_in_exponential_time_is_reported_as_incompatible(http: httpx.Client) -> None:
    subject = uuid4().hex
    old = {"type": "object", "properties": {"a" * 40 + "!": {}}, "additionalProperties": False}
    new = {"type": "object", "patternProperties": {"(a+)+$": {}}, "additionalProperties": False}
    assert register(http, "JSON", old, subject).status_code == 200
    assert register(http, "JSON", new, subject).status_code == 409


@pytest.mark.parametrize("keyword", ["$ref", "$schema"])
def test_registry_never_connects_to_a_url_in_a_json_schema(http: httpx.Client, keyword: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        register(http, "JSON", {keyword: f"http://127.0.0.1:{listening.getsockname()[1]}/draft-07"})
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_comparing_deeply_nested_anyof_schemas_ends_in_bounded_time_as_incompatible(http: httpx.Client) -> None:
    def schema(leaf: str) -> dict[str, Any]:
        known: dict[str, Any] = {"d0": {"type": leaf}}
        for level in range(1, 30):
            below = {"$ref": f"#/definitions/d{level - 1}"}
            known[f"d{level}"] = {"anyOf": [{"type": "object", "properties": {name: below}} for name in "abc"]}
        return {"definitions": known, "allOf": [{"$ref": "#/definitions/d29"}]}

    subject = uuid4().hex
    assert register(http, "JSON", schema("string"), subject).status_code == 200
    assert register(http, "JSON", schema("integer"), subject).status_code == 409


def test_a_protobuf_schema_with_thousands_of_fields_and_reserved_numbers_is_registered_in_bounded_time(
    http: httpx.Client,
) -> None:
    fields = "".join(f"int32 f{number} = {number};" for number in range(1, 2001))
    reserved = ",".join(str(number) for number in range(20_000, 24_000))
    text = f'syntax = "proto3"; message M {{ {fields} reserved {reserved}; }}'
    assert register(http, "PROTOBUF", text).status_code == 200


def test_a_protobuf_schema_with_thousands_of_optional_fields_is_registered_in_bounded_time(http: httpx.Client) -> None:
    fields = "".join(f"optional int32 f{number} = {number};" for number in range(1, 4001))
    assert register(http, "PROTOBUF", f'syntax = "proto3"; message M {{ {fields} }}').status_code == 200


def test_a_protobuf_schema_with_thousands_of_unknown_imports_is_refused_in_bounded_time(http: httpx.Client) -> None:
    imports = "".join(f'import "f{number}.proto";' for number in range(20_000))
    answer = register(http, "PROTOBUF", f'syntax = "proto3"; {imports} message M {{ }}')
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("JSON", r'{"title": "\ud800"}'),
        ("AVRO", r'{"type": "string", "note": "\ud800"}'),
        ("JSON", '{"maximum": NaN}'),
        ("JSON", '{"maximum": ' + "9" * 5000 + "}"),
        ("JSON", '{"not":' * 3000 + "{}" + "}" * 3000),
        ("PROTOBUF", 'syntax = "proto3"; import "schema.proto"; message M {}'),
    ],
    ids=["half a character", "half a character in Avro", "not a number", "long number", "deep", "imports itself"],
)
def test_a_schema_text_that_cannot_be_stored_is_refused(http: httpx.Client, kind: str, text: str) -> None:
    assert register(http, kind, text).status_code == 422


def test_a_body_above_the_size_limit_is_refused_by_its_content_length(
    server: ThreadedServer, http: httpx.Client
) -> None:
    head = "POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUNDED_S) as connection:
        connection.sendall(f"{head}Content-Length: 99999999999\r\n\r\n".encode())
        assert b" 413 " in connection.recv(100)


def test_an_incomplete_request_does_not_delay_other_clients(server: ThreadedServer, http: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        assert http.get("/subjects").status_code == 200


def test_pipelined_requests_on_one_connection_are_answered_in_order(server: ThreadedServer, http: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUNDED_S) as connection:
        paths = ("/schemas/types", "/nowhere", "/schemas/types")
        last = len(paths) - 1
        for number, path in enumerate(paths):
            close = "Connection: close\r\n" if number == last else ""
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{close}\r\n".encode())
        answered = b"".join(iter(lambda: connection.recv(65536), b""))
    statuses = [part[:3] for part in answered.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404", b"200"]


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "a%0d%0aX-Evil:%201", "%00", "%ff%fe"])
def test_a_subject_name_with_special_characters_never_becomes_a_response_header(http: httpx.Client, name: str) -> None:
    answer = http.post(f"/subjects/{name}/versions", json={"schema": '"string"'}, headers=JSON)
    assert answer.status_code in (200, 422)
    assert "x-evil" not in answer.headers


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[" * 100_000, b'{"schema": 1e999}', b"nul"])
def test_a_malformed_registration_body_is_refused(http: httpx.Client, body: bytes) -> None:
    assert http.post("/subjects/s/versions", content=body, headers=JSON).status_code in (400, 422)


def test_other_clients_are_served_while_a_long_schema_is_parsed(server: ThreadedServer, http: httpx.Client) -> None:
    long = {"properties": {f"p{number}": {"type": "string"} for number in range(6000)}}
    answered = 0
    sending = threading.Thread(target=register, args=(http, "JSON", long))
    with httpx.Client(base_url=server.url, timeout=BOUNDED_S) as other:
        sending.start()
        while sending.is_alive():
            assert other.get("/schemas/types").status_code == 200
            answered += 1
    # A client that had to wait until the schema is parsed would be answered once.
    assert answered > 2


def test_other_clients_are_served_while_long_schemas_are_compared(server: ThreadedServer, http: httpx.Client) -> None:
    def long(kind: str) -> dict[str, Any]:
        return {"properties": {f"p{number}": {"type": kind} for number in range(1500)}}

    subject = uuid4().hex
    assert register(http, "JSON", long("string"), subject).status_code == 200
    answered = 0
    sending = threading.Thread(target=register, args=(http, "JSON", long("integer"), subject))
    with httpx.Client(base_url=server.url, timeout=BOUNDED_S) as other:
        sending.start()
        while sending.is_alive():
            assert other.get("/schemas/types").status_code == 200
            answered += 1
    assert answered > 2


def test_rest_proxy_refuses_consumer_instances_above_the_maximum(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_instances, "MAX_INSTANCES", 2)
    with proxy_in_front_of(broker.bootstrap_servers) as rest:
        statuses = [rest.send("POST", f"/consumers/{uuid4().hex}", {"format": "json"}).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
