"""A REST proxy that forwards the bearer tokens of its callers: brokers authenticate and authorise each caller.

The broker has ACLs, a listener with OAUTHBEARER, and one without authentication with which the tests prepare topics.
The proxy verifies tokens with the keys of two issuers, the broker only with those of the first: a token of the second
issuer is accepted by the proxy and must be refused by the broker.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from pessoa.rest_proxy.caller_clients import MAX_TOKENS_OF_ONE
from pessoa.rest_proxy.proxy_app import rest_proxy_app
from pessoa.rest_proxy.proxy_config import from_properties
from pessoa.testing import Broker
from pessoa.web.asgi_app import App
from pessoa.web.serving import ThreadedServer
from tests.apache.broker import reserve_port
from tests.services.rest_proxy.stage import PATIENCE, V2, V2_BINARY
from tests.support.clients import unique, until
from tests.support.tokens import AUDIENCE, ISSUER, Issuer, rsa_key

TRUSTED = Issuer()
UNKNOWN_TO_BROKERS = Issuer(key_id="second", key=rsa_key("unknown to brokers"))
FOREIGN = Issuer(key=rsa_key("foreign"))
# Long enough for a first request on a busy machine; tests wait for the token to expire.
SHORT_S = 20


class Caller:
    """An HTTP client that sends a bearer token; the token may be replaced."""

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False)
        self.token = token

    def send(self, method: str, path: str, body: object = None, content_type: str = V2) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", "content-type": content_type, "accept": "*/*"}
        return self._http.request(method, path, headers=headers, content=None if body is None else json.dumps(body))

    def produce(self, topic: str, value: str = "aGVsbG8=") -> httpx.Response:
        return self.send("POST", f"/topics/{topic}", {"records": [{"value": value}]}, V2_BINARY)

    def close(self) -> None:
        self._http.close()


class Stage(NamedTuple):
    url: str
    callers: list[Caller]
    topics: dict[str, str]

    def caller(self, token: str) -> Caller:
        self.callers.append(Caller(self.url, token))
        return self.callers[-1]

    def metrics(self) -> str:
        """Return the metrics of the proxy; the request uses no Kafka client of a caller, so it renews no token."""
        login = {"Authorization": f"Bearer {TRUSTED.token()}"}
        return httpx.get(f"{self.url}/metrics", headers=login, timeout=PATIENCE, trust_env=False).text

    def metric(self, name: str) -> float:
        [line] = [each for each in self.metrics().splitlines() if each.startswith(f"{name} ")]
        return float(line.split()[1])

    def caller_named(self, name: str, ends_at_s: int | None = None) -> Caller:
        ends = {} if ends_at_s is None else {"exp": ends_at_s}
        return self.caller(TRUSTED.token(None, sub=name, **ends))


def allow(principal: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{principal}", "*", operation, AclPermissionType.ALLOW
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """Start a broker; return its address for clients with tokens, its address without authentication, and a folder."""
    folder = tmp_path_factory.mktemp("bearer-callers")
    keys = TRUSTED.write(folder / "jwks.json")
    callers, inner = reserve_port(), reserve_port()
    prefix = "listener.name.callers.oauthbearer.sasl.oauthbearer."
    settings = {
        "listeners": f"CALLERS://127.0.0.1:{callers},INNER://127.0.0.1:{inner},CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "CALLERS:SASL_PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INNER",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}jwks.endpoint.url": f"file:{keys}",
        f"{prefix}expected.audience": AUDIENCE,
        f"{prefix}expected.issuer": ISSUER,
        "pessoa.sasl.oauthbearer.allowed.files": str(keys),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:proxy",
    }
    with Broker(settings):
        yield f"127.0.0.1:{callers}", f"127.0.0.1:{inner}", folder


@pytest.fixture(scope="module")
def stage(cluster: tuple[str, str, Path]) -> Iterator[Stage]:
    servers, inner, folder = cluster
    keys = folder / "of-the-proxy.json"
    keys.write_text(json.dumps({"keys": [TRUSTED.jwk(), UNKNOWN_TO_BROKERS.jwk()]}))
    (folder / "token").write_text(TRUSTED.token(sub="proxy"))
    admin = AdminClient({"bootstrap.servers": inner})
    topics = {name: unique(f"of-{name}") for name in ("ana", "rui")}
    for future in admin.create_topics([NewTopic(each, 1, 1) for each in topics.values()]).values():
        future.result(PATIENCE)
    allowed = [
        allow(name, ResourceType.TOPIC, topic, operation)
        for name, topic in topics.items()
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
    ] + [allow("ana", ResourceType.GROUP, "*", AclOperation.READ)]
    for made in admin.create_acls(allowed).values():
        made.result(PATIENCE)
    settings = {
        "client.security.protocol": "SASL_PLAINTEXT",
        "client.sasl.mechanism": "OAUTHBEARER",
        "client.sasl.oauthbearer.token.endpoint.url": f"file:{folder / 'token'}",
        "oauthbearer.jwks.endpoint.url": f"file:{keys}",
        "oauthbearer.expected.audience": AUDIENCE,
        "oauthbearer.expected.issuer": ISSUER,
        "confluent.rest.auth.propagate.method": "JETTY_AUTH",
        "pessoa.caller.clients.max": "6",
    }
    config = from_properties({"bootstrap.servers": servers, "schema.registry.url": "http://127.0.0.1:1", **settings})

    async def make() -> App:
        return rest_proxy_app(config)

    with ThreadedServer(make) as server:
        proxy = Stage(server.url, [], topics)
        try:
            yield proxy
        finally:
            for each in proxy.callers:
                each.close()


def test_each_caller_may_do_only_what_its_own_acls_allow(stage: Stage) -> None:
    ana, rui = stage.caller_named("ana"), stage.caller_named("rui")
    for caller, own, other in ((ana, "ana", "rui"), (rui, "rui", "ana")):
        assert caller.produce(stage.topics[own]).status_code == 200
        refused = caller.produce(stage.topics[other])
        assert refused.status_code in (403, 404), refused.text
        # Configs are read by our own client, the list of topics by librdkafka.
        shown = caller.send("GET", f"/topics/{stage.topics[own]}")
        assert shown.json()["configs"]
        assert caller.send("GET", "/topics").json() == [stage.topics[own]]


def test_rest_proxy_refuses_a_token_with_a_foreign_key_another_audience_or_a_past_expiry(stage: Stage) -> None:
    for token in (FOREIGN.token(), TRUSTED.token(exp=int(time.time()) - 100), TRUSTED.token(aud="other")):
        refused = stage.caller(token).produce(stage.topics["ana"])
        assert refused.status_code == 401
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    # Also within the allowed clock skew.
    assert stage.caller_named("ana", int(time.time()) - 1).produce(stage.topics["ana"]).status_code == 401


def test_a_token_that_the_proxy_accepts_and_the_brokers_refuse_gets_401(stage: Stage) -> None:
    assert stage.caller_named("ana").produce(stage.topics["ana"]).status_code == 200
    forged = stage.caller(UNKNOWN_TO_BROKERS.token(sub="ana", exp=int(time.time()) + 7200))
    assert forged.send("GET", f"/topics/{stage.topics['ana']}/partitions").status_code == 401
    assert forged.produce(stage.topics["ana"]).status_code == 401
    assert forged.send("POST", f"/consumers/{unique('group')}", {"format": "binary"}).status_code == 401


def records(caller: Caller, uri: str) -> list[dict[str, Any]]:
    answer = caller.send("GET", f"{uri}/records", content_type=V2_BINARY)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def subscribe_consumer(caller: Caller, topic: str) -> str:
    wanted = {"format": "binary", "auto.offset.reset": "earliest", "fetch.min.bytes": 0}
    made = caller.send("POST", f"/consumers/{unique('group')}", wanted)
    assert made.status_code == 200, made.text
    uri = str(made.json()["base_uri"])
    assert caller.send("POST", f"{uri}/subscription", {"topics": [topic]}).status_code == 204
    return uri


def test_a_consumer_instance_continues_with_a_refreshed_token_and_ends_when_its_only_token_expires(
    stage: Stage,
) -> None:
    ends_at_s = int(time.time()) + SHORT_S
    ana = stage.caller_named("ana", ends_at_s)
    # The principal eva has only this token.
    left_alone = subscribe_consumer(stage.caller_named("eva", ends_at_s), stage.topics["rui"])
    uri = subscribe_consumer(ana, stage.topics["ana"])
    ana.token = TRUSTED.token(sub="ana")
    assert ana.produce(stage.topics["ana"], "Zmlyc3Q=").status_code == 200
    until(lambda: records(ana, uri), lambda found: found != [], "a record with the first token")
    count = stage.metric("rest_proxy_consumer_instances")
    until(
        lambda: stage.metric("rest_proxy_consumer_instances"), lambda now: now == count - 1, "the end of one consumer"
    )
    assert time.time() >= ends_at_s
    assert stage.caller_named("eva").send("GET", f"{left_alone}/subscription").status_code == 404
    assert ana.produce(stage.topics["ana"], "c2Vjb25k").status_code == 200
    until(
        lambda: [each["value"] for each in records(ana, uri)],
        lambda found: "c2Vjb25k" in found,
        "a record after the first token has ended",
    )
    assert ana.send("DELETE", uri).status_code == 204


def test_a_caller_cannot_read_or_delete_the_consumer_instance_of_another_principal(stage: Stage) -> None:
    uri = subscribe_consumer(stage.caller_named("ana"), stage.topics["ana"])
    rui = stage.caller_named("rui")
    assert rui.send("GET", f"{uri}/records", content_type=V2_BINARY).status_code == 404
    assert rui.send("DELETE", uri).status_code == 404
    assert stage.caller_named("ana").send("DELETE", uri).status_code == 204


def test_the_number_of_caller_clients_is_bounded_and_tokens_are_never_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = [TRUSTED.token(sub="ana", nonce=number) for number in range(MAX_TOKENS_OF_ONE + 2)]
    for token in tokens:
        assert stage.caller(token).produce(stage.topics["ana"]).status_code == 200
    assert 1 <= stage.metric("rest_proxy_callers") <= 6
    written = caplog.text + stage.metrics()
    assert not [token for token in tokens if token in written or token.rpartition(".")[2] in written]


def test_a_produce_stream_ends_when_the_token_of_its_caller_expires(stage: Stage) -> None:
    """A later token of the same principal does not prolong a stream that began with an earlier token."""
    ana = stage.caller_named("ana")
    assert ana.produce(stage.topics["ana"]).status_code == 200
    [cluster] = ana.send("GET", "/v3/clusters").json()["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}/topics/{stage.topics['ana']}/records"
    where = urlsplit(stage.url)
    ends_at_s = int(time.time()) + 10
    token = TRUSTED.token(None, sub="ana", exp=ends_at_s)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=PATIENCE) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 999\r\n"
        record = b'{"value":{"type":"JSON","data":1}}'
        connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + record)
        said = b""
        while b"408" not in said:
            part = connection.recv(1000)
            assert part, said
            said += part
    assert b'"error_code":200' in said
    assert time.time() >= ends_at_s - 1
