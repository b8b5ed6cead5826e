"""Requests of a client without a valid token to a broker with OAUTHBEARER: attacks 16 to 20, and their cost.

The broker is a process of its own, whose memory is measured; the keys are at a URL on loopback that records requests.
During every attack a client with a valid token produces. At the end no file that the broker wrote contains a token.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse
from pessoa.wire.errors import ErrorCode
from tests.support.clients import POLL_S, TIMEOUT_S, until
from tests.support.crash_wire import Closed, Wire
from tests.support.logged_process import LoggedProcess, pessoa
from tests.support.sasl import ask, authenticate, shake_hands
from tests.support.tokens import AUDIENCE, ISSUER, IdentityProvider, Issuer, rsa_key, sealed_with_secret, unsigned

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from Linux's /proc")

MIB = 1024 * 1024
ANA, MALLORY = Issuer(), Issuer(key=rsa_key("mallory"))
REFUSED = b'{"status":"invalid_token"}'
# All tokens that were sent; no file that the broker writes may contain one.
SENT: list[str] = []


class Target(NamedTuple):
    port: int
    process: LoggedProcess
    provider: IdentityProvider
    producer: Producer

    def resident_bytes(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in text.splitlines())
        return int(fields["VmRSS"].split()[0]) * 1024

    def serves(self) -> None:
        """Assert that the producer of a logged-in client is served."""
        self.producer.produce("beside", b"value")
        assert self.producer.flush(TIMEOUT_S) == 0

    def client(self, token: str) -> dict[str, Any]:
        SENT.append(token)
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 3600),
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("target")


@pytest.fixture(scope="module")
def target(folder: Path) -> Iterator[Target]:
    with IdentityProvider(ANA).serving() as provider:
        prefix = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer."
        settings = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}jwks.endpoint.url": provider.url("/jwks"),
            f"{prefix}expected.audience": AUDIENCE,
            f"{prefix}expected.issuer": ISSUER,
            "pessoa.sasl.oauthbearer.allowed.urls": provider.url("/jwks"),
            "pessoa.logs": "access,agent,audit,authorizer,error,referrer",
            "log.dirs": str(folder / "data"),
        }
        words = [f"--set={name}={text}" for name, text in settings.items()]
        with LoggedProcess(pessoa("broker", *words), folder / "broker.log") as process:
            port = int(process.wait_for(r"listening on SASL_PLAINTEXT://127\.0\.0\.1:(\d+)")[1])
            process.wait_for("is ready")
            found = Target(port, process, provider, Producer({"bootstrap.servers": ""}))
            yield found._replace(producer=Producer(found.client(ANA.token())))
        check_what_was_written(folder)


def check_what_was_written(folder: Path) -> None:
    written = {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.stat().st_size < 64 * MIB
    }
    said = written[folder / "broker.log"].decode()
    assert "Traceback" not in said
    assert " ERROR " not in said
    assert SENT
    for token in SENT:
        # The claims are no secret; the signature and the whole token are.
        secret = (token.rpartition(".")[2] or token).encode()
        for path, content in written.items():
            assert len(secret) < 16 or secret not in content, path


@pytest.fixture(autouse=True)
def _others_are_served(target: Target) -> Iterator[None]:
    target.serves()
    yield
    target.serves()


def present(target: Target, token: str) -> tuple[int, bytes]:
    """Return the response to a token; after a refusal the connection must be closed."""
    SENT.append(token)
    with Wire(target.port) as wire:
        assert shake_hands(wire, "OAUTHBEARER").error_code == 0
        answer = authenticate(wire, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        if answer.auth_bytes:
            last = authenticate(wire, b"\x01")
            assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert last.error_message == REFUSED.decode()
            assert wire.is_closed()
        return answer.error_code, answer.auth_bytes


def test_a_valid_token_is_accepted(target: Target) -> None:
    assert present(target, ANA.token()) == (0, b"")


# Before the flood, which uses up the key fetches of a minute.


def test_a_token_signed_with_a_newly_added_key_of_the_issuer_is_accepted(target: Target) -> None:
    new = Issuer(key_id="new", key=rsa_key("new"))
    target.provider.key_set = json.dumps({"keys": [ANA.jwk(), new.jwk()]}).encode()
    try:
        until(lambda: present(target, new.token())[1], lambda refusal: refusal == b"", "the new key")
    finally:
        target.provider.key_set = ANA.key_set()
    assert present(target, ANA.token()) == (0, b"")


# Attacks 16 and 17.


def test_forged_tokens_are_refused_and_no_url_in_them_is_fetched(target: Target) -> None:
    before = list(target.provider.asked)
    evil = target.provider.url("/evil")
    forged = {
        "none": unsigned(ANA.claims()),
        "none, with a key id": ANA.sealed({**ANA.header(), "alg": "none"}, ANA.claims()),
        "public key as secret": sealed_with_secret(ANA.claims(), target.provider.key_set, {"kid": "first"}),
        "wrong signature": MALLORY.token(),
        "signature of another token": ".".join([*ANA.token(sub="root").split(".")[:2], ANA.token().split(".")[2]]),
        "no exp": ANA.token(exp=None),
        "no iat": ANA.token(iat=None),
        "expired": ANA.token(exp=int(time.time()) - 60),
        "other audience": ANA.token(aud="other"),
        "other issuer": ANA.token(iss="https://evil.test/"),
        "jku": MALLORY.token({"jku": evil}),
        "x5u": MALLORY.token({"x5u": evil}),
        "jwk": MALLORY.token({"jwk": MALLORY.jwk()}),
        "x5c": MALLORY.token({"x5c": ["MIIB"]}),
        "crit": ANA.token({"crit": ["b64"], "b64": False}),
        "url as key id": MALLORY.token({"kid": evil}),
        "path as key id": MALLORY.token({"kid": "../../../../etc/passwd"}),
    }
    for name, token in forged.items():
        assert present(target, token) == (0, REFUSED), name
    asked = target.provider.asked[len(before) :]
    assert set(asked) <= {"/jwks"}
    # For the two unknown key ids.
    assert len(asked) <= 2


# Attack 18.


def test_a_flood_of_unknown_key_ids_takes_bounded_memory_and_causes_few_key_fetches(target: Target) -> None:
    present(target, MALLORY.token({"kid": "warm"}))
    before, fetched = target.resident_bytes(), len(target.provider.asked)
    for number in range(100):
        assert present(target, MALLORY.token({"kid": f"flood-{number}-{'k' * 900}"})) == (0, REFUSED)
    assert target.resident_bytes() - before < 16 * MIB
    # 16 fetches a minute, and the test may take more than one minute.
    assert len(target.provider.asked) - fetched <= 3 * 16


@pytest.mark.parametrize("size", [1_001, 30_000, 100_000, 350_000])
def test_a_token_with_a_long_key_id_is_refused(target: Target, size: int) -> None:
    token = MALLORY.token({"kid": "k" * size})
    SENT.append(token)
    with Wire(target.port) as wire:
        shake_hands(wire, "OAUTHBEARER")
        answer = authenticate(wire, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED or answer.auth_bytes == REFUSED


def test_a_token_with_a_key_id_of_a_megabyte_closes_the_connection(target: Target) -> None:
    before = target.resident_bytes()
    with Wire(target.port) as wire:
        shake_hands(wire, "OAUTHBEARER")
        with pytest.raises((Closed, ConnectionError)):
            authenticate(wire, f"n,,\x01auth=Bearer {MALLORY.token({'kid': 'k' * MIB})}\x01\x01".encode())
    assert target.resident_bytes() - before < 16 * MIB


# Attack 19.


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url",
        "listener.name.sasl_plaintext.sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwks.endpoint.url",
        "pessoa.sasl.oauthbearer.allowed.urls",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class",
    ],
)
def test_alter_configs_cannot_change_where_the_broker_fetches_its_token_keys(target: Target, name: str) -> None:
    admin = AdminClient(target.client(ANA.token()))
    evil = target.provider.url("/evil")
    for value in (evil, "file:///etc/passwd"):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        with pytest.raises(KafkaException) as refused:
            admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert "/evil" not in target.provider.asked
    assert present(target, MALLORY.token()) == (0, REFUSED)


# Attack 20: requests after the end of a session, and renewal as another user.


def metadata(wire: Wire) -> int:
    answer = ask(wire, MetadataRequest(topics=[]), 1, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    return len(answer.brokers)


def log_in(wire: Wire, token: str) -> int:
    SENT.append(token)
    assert shake_hands(wire, "OAUTHBEARER").error_code == 0
    answer = authenticate(wire, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    return answer.session_lifetime_ms


def test_a_session_ends_when_its_token_expires(target: Target) -> None:
    with Wire(target.port) as wire:
        assert 0 < log_in(wire, ANA.token(exp=time.time() + 5)) <= 5000

        def is_served() -> bool:
            try:
                return metadata(wire) == 1
            except Closed:
                return False

        until(is_served, lambda served: not served, "the end of the session")


def test_a_session_is_renewed_only_with_a_token_of_the_same_subject(target: Target) -> None:
    with Wire(target.port) as wire:
        end_s = time.time() + 2
        log_in(wire, ANA.token(exp=end_s))
        assert log_in(wire, ANA.token()) > 2000
        until(lambda: (metadata(wire), time.time()), lambda found: found[1] > end_s + 0.5, "the end of the first token")
        assert metadata(wire) == 1
        other = ANA.token(sub="root")
        SENT.append(other)
        shake_hands(wire, "OAUTHBEARER")
        answer = authenticate(wire, f"n,,\x01auth=Bearer {other}\x01\x01".encode())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed()


def test_a_producer_with_short_lived_tokens_renews_its_session_and_loses_no_record(target: Target) -> None:
    issued: list[str] = []
    errors: list[KafkaError | None] = []

    def give(_: str) -> tuple[str, float]:
        end_s = time.time() + 3
        issued.append(ANA.token(exp=end_s))
        SENT.append(issued[-1])
        return issued[-1], end_s

    settings: dict[str, Any] = {**target.client(ANA.token()), "oauth_cb": give}
    producer = Producer(settings)

    def write() -> int:
        producer.produce("renewed", b"x", on_delivery=lambda error, _: errors.append(error))
        producer.poll(POLL_S)
        return len(issued)

    until(write, lambda count: count >= 4, "four tokens")
    assert producer.flush(TIMEOUT_S) == 0
    assert set(errors) == {None}
