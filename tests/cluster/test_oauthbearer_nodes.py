"""Three brokers that log in to each other and to their controllers with bearer tokens, while the keys are replaced."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.testing import Cluster
from tests.support.clients import TIMEOUT_S, until
from tests.support.tokens import Issuer, rsa_key

FIRST, SECOND = Issuer(), Issuer(key_id="second", key=rsa_key("second"))
# So long does a session last, also one between nodes.
SESSION_MS = 3000


class Stage(NamedTuple):
    cluster: Cluster
    keys: Path
    token: Path

    def client(self, issuer: Issuer) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (issuer.token(), time.time() + 3600),
        }


def replace(path: Path, text: str) -> None:
    """Replace the file atomically, as an operator who changes a secret does."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(text)
    fresh.replace(path)


def key_set(*issuers: Issuer) -> str:
    return json.dumps({"keys": [one.jwk() for one in issuers]})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("tokens")
    keys, token = folder / "jwks.json", folder / "node.jwt"
    replace(keys, key_set(FIRST))
    replace(token, FIRST.token(sub="node"))
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.token.endpoint.url": f"file://{token}",
        "pessoa.sasl.oauthbearer.allowed.files": f"{keys},{token}",
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    with Cluster(brokers=3, settings=settings) as cluster:
        yield Stage(cluster, keys, token)


def write_for(stage: Stage, topic: str, issuer: Issuer, duration_s: float) -> None:
    """Write to all replicas for so long, at least once; no write may fail."""
    failures: list[KafkaError | None] = []
    producer = Producer({**stage.client(issuer), "acks": "all"})
    end_s = time.monotonic() + duration_s

    def write() -> float:
        producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        return time.monotonic()

    until(write, lambda now_s: now_s > end_s, "the end of writing")
    assert set(failures) == {None}


def test_nodes_continue_while_keys_and_tokens_are_replaced(stage: Stage) -> None:
    admin = AdminClient(stage.client(FIRST))
    topic = NewTopic("replicated", 3, 3, config={"min.insync.replicas": "3"})
    admin.create_topics([topic])["replicated"].result(TIMEOUT_S)
    write_for(stage, "replicated", FIRST, 0)
    replace(stage.keys, key_set(FIRST, SECOND))
    replace(stage.token, SECOND.token(sub="node"))
    # From now on a session that is renewed with the old token is refused.
    replace(stage.keys, key_set(SECOND))
    write_for(stage, "replicated", SECOND, 3 * SESSION_MS / 1000)
    admin = AdminClient(stage.client(SECOND))
    made = admin.create_topics([NewTopic("after", 3, 3)])
    made["after"].result(TIMEOUT_S)
