"""Attacks 1 to 3 and 24: costs that a client causes before it has logged in. Idle connections have a file of their own,
because they need a fresh broker."""

from __future__ import annotations

import socket
import ssl
import subprocess
from contextlib import ExitStack
from random import Random
from struct import pack
from threading import Timer

import pytest

from pessoa.broker.api_table import broker_rows
from pessoa.net.handshakes import MAX_AT_ONCE
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.errors import ErrorCode
from tests.attacks.attack_stage import (
    ADMIN,
    CAPPED,
    LOGIN,
    MUTUAL,
    OPEN,
    SECURED,
    AttackStage,
)  # fmt: skip
from tests.attacks.attack_wires import LOOPBACK, TlsWire, client_hello, connect
from tests.support.certificates import Authority
from tests.support.crash_wire import TIMEOUT_S, Closed, framed
from tests.support.sasl import authenticate, shake_hands

MAX_BEFORE_LOGIN = 524_288
BEFORE_LOGIN = (18, 17, 36)

# Frame sizes, and lengths inside of a frame that reach beyond it: mechanism, token, varint, tags, client id, array.
LENGTHS = (
    *(pack(">i", size) + bytes(100) for size in (0x7FFFFFFF, MAX_BEFORE_LOGIN + 1, -1, -(1 << 31))),
    framed(pack(">hhihh", 17, 1, 7, -1, 0x7FFF)),
    framed(pack(">hhihi", 36, 0, 7, -1, 0x7FFFFFFF)),
    framed(pack(">hhihb", 36, 2, 7, -1, 0) + b"\xff\xff\xff\xff\x0f"),
    framed(pack(">hhihb", 18, 3, 7, -1, 0) + b"\xff\xff\xff\xff\x0f" * 20),
    framed(pack(">hhih", 17, 1, 7, 0x7FFF)),
    framed(pack(">hhihi", 3, 0, 7, -1, 1_000_000_000)),
)


def test_attack_1_announced_lengths_before_the_login_take_memory_only_for_the_bytes_sent(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    with stage.attack(1, request, max_mib=16):
        for _ in range(10):
            for data in LENGTHS:
                for wire in (stage.shaken(), stage.plain(LOGIN)):
                    with wire:
                        wire.send(data)
                        assert wire.is_closed()
        with ExitStack() as stack:
            # Frames of the largest allowed size, of which only the beginning is sent.
            for _ in range(200):
                stack.enter_context(stage.plain(LOGIN)).send(pack(">i", MAX_BEFORE_LOGIN) + bytes(1024))
            stage.serves(20)


def test_attack_2_half_open_handshakes_and_logins_end_and_connections_are_capped(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    hello = client_hello(stage.trust)
    with stage.attack(2, request, max_mib=64), ExitStack() as stack:
        half_open = [stack.enter_context(connect(stage.ports[SECURED])) for _ in range(MAX_AT_ONCE + 100)]
        for one in half_open:
            one.sendall(hello)
        for one in half_open[:100]:
            # Only so many handshakes may be in progress: the broker has closed the oldest.
            while one.recv(65_536):
                pass
        for number in range(200):
            wire = stack.enter_context(stage.plain(LOGIN))
            if number % 2:
                shake_hands(wire, "SCRAM-SHA-512")
                authenticate(wire, b"n,,n=ana,r=x")
        capped = [stack.enter_context(connect(stage.ports[OPEN], CAPPED)) for _ in range(30)]
        closed = [one for one in capped[10:] if _is_closed(one)]
        assert len(closed) == 20, "an address has as many connections as max.connections.per.ip allows"


def _is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


def test_attack_3_no_api_is_served_before_the_login(stage: AttackStage, request: pytest.FixtureRequest) -> None:
    with stage.attack(3, request, max_mib=16):
        for row in broker_rows():
            if row.key in BEFORE_LOGIN:
                continue
            for is_shaken in (False, True):
                with stage.plain(LOGIN) as wire:
                    if is_shaken:
                        shake_hands(wire, "SCRAM-SHA-256")
                    wire.send(framed(pack(">hhih", row.key, row.versions.last, 7, -1) + bytes(64)))
                    with pytest.raises(Closed):
                        wire.frame()
        with stage.shaken() as wire, pytest.raises(Closed):
            stage.create_topic(wire, "made-before-the-login")
        with stage.as_user(ADMIN) as admin:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="made-before-the-login")])
            [topic] = admin.ask(asked, MetadataResponse, 9).topics
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_fuzzed_bytes_of_logins_are_answered_or_closed(stage: AttackStage, request: pytest.FixtureRequest) -> None:
    """TLS handshakes are fuzzed in tests/conformance/test_tls_attacks.py."""
    rng = Random(20)
    tokens = [b"\0ana\0wrong", b"n,,n=ana,r=abc", b"n,,n=ana,r=abc,tokenauth=true", b"c=biws,r=abc,p=AAAA", b""]
    with stage.attack("on logins", request, max_mib=16):
        for number in range(600):
            with stage.plain(LOGIN) if number % 20 else stage.shaken() as wire:
                frames = [_handshake(rng), *(_token(rng, tokens) for _ in range(rng.randrange(1, 4)))]
                wire.send(b"".join(_mutated(rng, frame) for frame in frames))
                # The broker may wait for the rest of an announced frame; the client disconnects.
                wire.send_what_fits(b"", 1.0)


def _handshake(rng: Random) -> bytes:
    mechanism = rng.choice((b"PLAIN", b"SCRAM-SHA-256", b"SCRAM-SHA-512", b"OAUTHBEARER", b"GSSAPI", b"\xff\xfe"))
    return framed(pack(">hhihh", 17, rng.choice((0, 1)), 7, -1, len(mechanism)) + mechanism)


def _token(rng: Random, tokens: list[bytes]) -> bytes:
    token = bytearray(rng.choice(tokens) or rng.randbytes(rng.randrange(64)))
    for _ in range(rng.randrange(3)):
        if token:
            token[rng.randrange(len(token))] = rng.randrange(256)
    return framed(pack(">hhihi", 36, rng.choice((0, 1)), 8, -1, len(token)) + token)


def _mutated(rng: Random, frame: bytes) -> bytes:
    if rng.random() < 0.5:
        return frame
    changed = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def test_attack_24_old_tls_versions_renegotiation_and_foreign_certificates_are_refused(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    foreign = Authority("another").certify("mallory").write(stage.files.folder / "foreign.pem")
    with stage.attack(24, request, max_mib=16):
        for version in ("tls1", "tls1_1"):
            assert "Cipher is (NONE)" in _openssl(stage, SECURED, f"-{version}", "-cipher", "ALL:@SECLEVEL=0")
        assert "RENEGOTIATING" in (said := _openssl(stage, SECURED, "-tls1_2", typed="R\n"))
        assert "no renegotiation" in said or "wrong version" in said or "unexpected message" in said, said
        for key_store in (None, foreign):
            # With TLS 1.3 the client's handshake is done before the server has checked its certificate.
            with TlsWire(stage.ports[MUTUAL], stage.trust, key_store) as wire, pytest.raises((Closed, ssl.SSLError)):
                wire.receive(1)


def _openssl(stage: AttackStage, listener: str, *words: str, typed: str = "") -> str:
    """Return the output of openssl's client. Its input stays open: at the end of its input it would not wait for the
    server."""
    command = ["openssl", "s_client", "-connect", f"{LOOPBACK}:{stage.ports[listener]}", *words]
    with subprocess.Popen(
        [*command, "-CAfile", str(stage.trust)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as client:  # fmt: skip
        assert client.stdin is not None
        assert client.stdout is not None
        overdue = Timer(TIMEOUT_S, client.kill)
        overdue.start()
        try:
            client.stdin.write(typed)
            client.stdin.flush()
            return client.stdout.read()
        finally:
            overdue.cancel()
            client.kill()
