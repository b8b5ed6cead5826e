"""Requests of a client that has not logged in to a broker that requires a login, and what they cost the broker.

The broker is a process of its own, whose memory is measured. During every attack a client that has logged in produces.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import pack
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from pessoa.broker.api_table import broker_rows
from pessoa.security.sasl.scram import ScramClientExchange
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.errors import ErrorCode
from tests.support.clients import TIMEOUT_S
from tests.support.crash_wire import Closed, Wire, framed
from tests.support.logged_process import LoggedProcess, pessoa
from tests.support.sasl import (
    PASSWORD,
    USER,
    add_scram_users,
    ask,
    authenticate,
    client_settings,
    server_settings,
    shake_hands,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from Linux's /proc")

MIB = 1024 * 1024
LIMIT = 524_288
OWN = (18, 17, 36)


class Target(NamedTuple):
    port: int
    process: LoggedProcess
    producer: Producer

    def resident_bytes(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in text.splitlines())
        return int(fields["VmRSS"].split()[0]) * 1024

    def serves(self) -> None:
        """Assert that the producer of a logged-in client is served."""
        self.producer.produce("beside", b"value")
        assert self.producer.flush(TIMEOUT_S) == 0


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("target")
    settings = {
        **server_settings(),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "log.dirs": str(folder / "data"),
    }
    words = [f"--set={name}={text}" for name, text in settings.items()]
    with LoggedProcess(pessoa("broker", *words), folder / "broker.log") as process:
        port = int(process.wait_for(r"listening on SASL_PLAINTEXT://127\.0\.0\.1:(\d+)")[1])
        process.wait_for("is ready")
        servers = f"127.0.0.1:{port}"
        add_scram_users(client_settings(servers))
        yield Target(port, process, Producer(client_settings(servers)))
        said = process.said
    assert "Traceback" not in said
    assert " ERROR " not in said
    assert PASSWORD not in said


@pytest.fixture(autouse=True)
def _others_are_served(target: Target) -> Iterator[None]:
    target.serves()
    yield
    target.serves()


# Attack 1: lengths.


@pytest.mark.parametrize("size", [0x7FFFFFFF, LIMIT + 1, -1, -(1 << 31)])
@pytest.mark.parametrize("is_shaken", [False, True])
def test_a_frame_that_is_announced_too_large_closes_the_connection(target: Target, size: int, is_shaken: bool) -> None:
    with Wire(target.port) as wire:
        if is_shaken:
            shake_hands(wire, "PLAIN")
        wire.send(pack(">i", size) + b"x" * 100)
        assert wire.is_closed()


@pytest.mark.parametrize(
    "frame",
    [
        # SaslHandshake with a mechanism of 32767 bytes, SaslAuthenticate with a token of 2 GiB, and as a varint.
        pytest.param(pack(">hhihh", 17, 1, 7, -1, 0x7FFF), id="mechanism"),
        pytest.param(pack(">hhihi", 36, 0, 7, -1, 0x7FFFFFFF), id="token"),
        pytest.param(pack(">hhihb", 36, 2, 7, -1, 0) + b"\xff\xff\xff\xff\x0f", id="compact token"),
        pytest.param(pack(">hhih", 36, 2, 7, -1) + b"\xff\xff\xff\xff\x0f" * 100, id="tags"),
        pytest.param(pack(">hhih", 17, 1, 7, 0x7FFF), id="client id"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\0\x12", id="half a header"),
    ],
)
def test_lengths_inside_a_frame_that_reach_beyond_it_close_the_connection(target: Target, frame: bytes) -> None:
    before = target.resident_bytes()
    for _ in range(50):
        with Wire(target.port) as wire:
            if frame[:2] == b"\0\x24":
                shake_hands(wire, "PLAIN")
            wire.send(framed(frame))
            assert wire.is_closed()
    assert target.resident_bytes() - before < 16 * MIB


def test_half_sent_frames_of_the_largest_size_take_only_memory_for_the_bytes_sent(target: Target) -> None:
    """A hundred connections that announce half a MiB each and send a KiB."""
    before = target.resident_bytes()
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(target.port)) for _ in range(100)]
        for wire in wires:
            wire.send(pack(">i", LIMIT) + bytes(1024))
        target.serves()
        assert target.resident_bytes() - before < 16 * MIB


def test_requests_behind_a_failed_login_are_not_read_while_its_response_is_delayed(target: Target) -> None:
    before = target.resident_bytes()
    with ExitStack() as stack:
        for _ in range(50):
            wire = stack.enter_context(Wire(target.port))
            shake_hands(wire, "PLAIN")
            wrong = pack(">hhihi", 36, 0, 7, -1, 9) + b"\0ana\0wron"
            wire.send(framed(wrong) + framed(wrong) * 1000)
        target.serves()
        assert target.resident_bytes() - before < 32 * MIB


# Attack 2: connections that never finish their login.


def test_connections_that_only_begin_a_login_do_not_block_other_clients(target: Target) -> None:
    before = target.resident_bytes()
    with ExitStack() as stack:
        for number in range(300):
            wire = stack.enter_context(Wire(target.port))
            if number % 3:
                shake_hands(wire, "SCRAM-SHA-512")
            if number % 3 == 2:
                authenticate(wire, b"n,,n=ana,r=x")
        target.serves()
        assert target.resident_bytes() - before < 64 * MIB


# Attack 3: other requests.


@pytest.mark.parametrize("is_shaken", [False, True])
def test_every_other_api_before_the_login_closes_the_connection(target: Target, is_shaken: bool) -> None:
    for row in broker_rows():
        if row.key in OWN:
            continue
        with Wire(target.port) as wire:
            if is_shaken:
                shake_hands(wire, "SCRAM-SHA-256")
            wire.send(framed(pack(">hhih", row.key, row.versions.last, 7, -1) + bytes(64)))
            with pytest.raises(Closed):
                wire.frame()


def test_api_versions_is_answered_once_before_the_login(target: Target) -> None:
    with Wire(target.port) as wire:
        answer = ask(wire, ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert isinstance(answer, ApiVersionsResponse)
        offered = {int(row.key) for row in broker_rows() if row.is_offered is None}
        assert {one.api_key for one in answer.api_keys} == offered
        wire.send(framed(pack(">hhih", 18, 0, 8, -1)))
        assert wire.is_closed()


# Attack 6: the authorization id of another user.


@pytest.mark.parametrize(
    ("mechanism", "token"), [("PLAIN", f"node\0{USER}\0{PASSWORD}"), ("SCRAM-SHA-256", f"n,a=node,n={USER},r=x")]
)
def test_an_authorization_id_of_another_user_is_refused(target: Target, mechanism: str, token: str) -> None:
    with Wire(target.port) as wire:
        shake_hands(wire, mechanism)
        answer = authenticate(wire, token.encode())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "authorization id" in (answer.error_message or "")
        assert wire.is_closed()


# Attack 14: finding out which users exist.


def first_answer(target: Target, name: str) -> tuple[int, bytes]:
    with Wire(target.port) as wire:
        shake_hands(wire, "SCRAM-SHA-256")
        answer = authenticate(wire, f"n,,n={name},r=abc".encode())
        return answer.error_code, answer.auth_bytes


def test_a_scram_login_of_an_unknown_user_is_answered_like_one_with_a_wrong_password(target: Target) -> None:
    (code, known), (other_code, unknown) = first_answer(target, USER), first_answer(target, "nobody")
    assert code == other_code == 0
    # librdkafka has made the users of this cluster, with salts of random bytes.
    shape = [(part[:2], len(part)) for part in known.split(b",")]
    assert [(part[:2], len(part)) for part in unknown.split(b",")] == shape
    assert known.rpartition(b",")[2] == unknown.rpartition(b",")[2]
    assert unknown.split(b",")[1] == first_answer(target, "nobody")[1].split(b",")[1]
    ends = []
    for name in (USER, "nobody"):
        with Wire(target.port) as wire:
            shake_hands(wire, "SCRAM-SHA-256")
            exchange = ScramClientExchange("SCRAM-SHA-256", name, "wrong", "abc")
            last = authenticate(wire, exchange.final(authenticate(wire, exchange.first()).auth_bytes))
            ends.append((last.error_code, last.error_message, last.auth_bytes, wire.is_closed()))
    assert ends[0] == ends[1]
    assert ends[0][0] == ErrorCode.SASL_AUTHENTICATION_FAILED


# Attack 15: the nonce.


@pytest.mark.parametrize("nonce", ["abc", "abcother", "other"])
def test_a_final_message_with_another_nonce_is_refused(target: Target, nonce: str) -> None:
    with Wire(target.port) as wire:
        shake_hands(wire, "SCRAM-SHA-512")
        exchange = ScramClientExchange("SCRAM-SHA-512", USER, PASSWORD, "abc")
        final = exchange.final(authenticate(wire, exchange.first()).auth_bytes).decode()
        proof = final.rpartition(",p=")[2]
        answer = authenticate(wire, f"c=biws,r={nonce},p={proof}".encode())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed()
