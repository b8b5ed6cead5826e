"""Hostile requests to the REST proxy; other clients are still served.

Each test is one attack: it is answered with a client error (4xx), or accepted, and writes nothing; the proxy answers
afterwards.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from pessoa.testing.broker import Broker
from tests.services.rest_proxy.stage import V2, V2_BINARY, V2_JSON, Rest, proxy_in_front_of
from tests.services.schema_registry.serving import registry

PATIENCE_S = 60.0
LIMIT = 1_000_000
JSON_SCHEMA = "application/vnd.kafka.jsonschema.v2+json"


@pytest.fixture(scope="module")
def proxy() -> Iterator[Rest]:
    with (
        Broker() as broker,
        registry(broker.bootstrap_servers) as schemas,
        proxy_in_front_of(
            broker.bootstrap_servers, schema_registry_url=schemas.url, pessoa_request_max_bytes=str(LIMIT)
        ) as rest,
    ):
        yield rest


@pytest.fixture(scope="module")
def topic(proxy: Rest) -> str:
    return proxy.topic()


@pytest.fixture
def rest(proxy: Rest, topic: str) -> Iterator[Rest]:
    yield proxy
    assert proxy.get("/topics").status_code == 200
    assert proxy.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 0


def send_refused(rest: Rest, topic: str, body: Any, content_type: str = V2_JSON, **headers: str) -> tuple[int, str]:
    """Send a produce request that must be refused with a short answer; return its status and message."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = rest.send("POST", f"/topics/{topic}", data, content_type, **headers)
    assert 400 <= answer.status_code < 500, answer.text[:300]
    assert len(answer.content) < 5000
    return answer.status_code, answer.json()["message"]


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deeply_nested_json_is_refused(rest: Rest, topic: str, opening: bytes) -> None:
    assert send_refused(rest, topic, b'{"records":[{"value":' + opening * 100_000)[0] == 400


def test_a_gzip_bomb_as_request_body_is_refused(rest: Rest, topic: str) -> None:
    bomb = gzip.compress(b'{"records":[{"value":"' + b"x" * 50_000_000)
    assert send_refused(rest, topic, bomb, content_encoding="gzip")[0] in (400, 415)


def test_a_body_above_the_size_limit_is_refused_with_a_content_length_and_in_chunks(rest: Rest, topic: str) -> None:
    assert send_refused(rest, topic, b" " * (LIMIT + 1))[0] == 413
    address = ("127.0.0.1", int(rest.url.rpartition(":")[2]))
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        head = (
            f"POST /topics/{topic} HTTP/1.1\r\nHost: x\r\nContent-Type: {V2_JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(head.encode())
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        with contextlib.suppress(ConnectionError):
            for _ in range(LIMIT // 65536 + 2):
                connection.sendall(chunk)
        assert b" 413 " in connection.recv(1000)


def test_an_incomplete_produce_request_writes_nothing(rest: Rest, topic: str) -> None:
    address = ("127.0.0.1", int(rest.url.rpartition(":")[2]))
    body = b'{"records":[{"value":1},{"value":2}'
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        head = f"POST /topics/{topic} HTTP/1.1\r\nHost: x\r\nContent-Type: {V2_JSON}\r\nContent-Length: 100\r\n\r\n"
        connection.sendall(head.encode() + body)


@pytest.mark.parametrize("value", ["a", "ab", "a===", "ab\n==", "é", "****", "=" * 1000, 5, {"a": 1}])
def test_a_produce_request_with_an_invalid_base64_value_is_refused_and_writes_nothing(
    rest: Rest, topic: str, value: Any
) -> None:
    good = {"value": "aGVsbG8="}
    assert send_refused(rest, topic, {"records": [good, {"value": value}]}, V2_BINARY)[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"records":[]}',
        b'{"records":{}}',
        b'{"records":[null]}',
        b'{"records":[{"value":\xed\xa0\x80}]}',
        b'{"records":[{"value":1e99999,"partition":99999999999999999999}]}',
        b'{"records":[{"value":1,"partition":-1}]}',
        b'{"records":[{"value":1,"secret":2}]}',
        b'{"records":[{"value":1}],"records":3}',
    ],
)
def test_an_invalid_produce_body_is_refused(rest: Rest, topic: str, body: bytes) -> None:
    assert send_refused(rest, topic, body)[0] in (400, 422)


def body_with_schema(schema: Any, value: Any) -> dict[str, Any]:
    return {"value_schema": json.dumps(schema), "records": [{"value": value}]}


def nested_choices(depth: int) -> dict[str, Any]:
    known: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, depth):
        known[f"d{level}"] = {"anyOf": [{"$ref": f"#/definitions/d{level - 1}"}] * 2}
    return {"definitions": known, "allOf": [{"$ref": f"#/definitions/d{depth - 1}"}]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 5000 + "!"),
        ({"patternProperties": {"^(a|a)*$": False}, "additionalProperties": False}, {"a" * 5000 + "!": 1}),
        ({"pattern": "(?=(a+)+$)b"}, "a" * 100),
        (nested_choices(40), 1),
        ({"allOf": [{"$ref": "#"}]}, 1),
        ({"uniqueItems": True}, [{"a": number} for number in range(3000)] + [{"a": 0}]),
    ],
    ids=["pattern", "names", "looking ahead", "choices", "circle", "items"],
)
def test_a_record_that_is_expensive_to_validate_against_its_schema_is_refused_in_bounded_time(
    rest: Rest, topic: str, schema: Any, value: Any
) -> None:
    status, _ = send_refused(rest, f"{topic}", body_with_schema(schema, value), JSON_SCHEMA)
    assert status == 422


@pytest.mark.parametrize("pattern", ["(", "(" * 5000, "(?=(a+)+$)b", r"(a|b)*\1", "\x00(", "\\p{L}{1000}" * 300])
def test_an_invalid_or_expensive_topic_pattern_is_refused(rest: Rest, pattern: str) -> None:
    consumer = rest.consumer()
    assert consumer.post("/subscription", {"topic_pattern": pattern}).status_code == 422
    consumer.delete()


def test_a_topic_pattern_with_nested_quantifiers_is_accepted_and_matches_its_topic(rest: Rest, topic: str) -> None:
    consumer = rest.consumer()
    assert consumer.post("/subscription", {"topic_pattern": f"^((({topic})+)+)+$"}).status_code == 204
    assert consumer.get("/subscription").json() == {"topics": [topic]}
    consumer.delete()


@pytest.mark.parametrize("name", ["%00", "a%0d%0aX: 1", "%2e%2e%2f", "x" * 300, "%ff"])
def test_an_invalid_topic_name_in_the_path_gets_a_4xx_response(rest: Rest, name: str) -> None:
    for path in (f"/topics/{name}", f"/topics/{name}/partitions", f"{rest.cluster}/topics/{name}"):
        assert 400 <= rest.get(path).status_code < 500


def test_unused_consumer_instances_can_all_be_deleted(rest: Rest) -> None:
    taken = [rest.send("POST", f"/consumers/{uuid4().hex}", {"format": "binary"}, V2) for _ in range(20)]
    assert {answer.status_code for answer in taken} == {200}
    for answer in taken:
        assert rest.send("DELETE", answer.json()["base_uri"]).status_code == 204
