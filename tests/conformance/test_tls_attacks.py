"""Attacks on a TLS listener: a broker process is sent partial handshakes and random bytes, and its memory is measured.

A connection in its handshake may cost the bytes that it has sent, at most 256 KiB, and OpenSSL's state for it, about
50 KiB; there are at most 512 such connections. A thousand half-open ones took 25 MiB, random bytes took under 1 MiB.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaError, Producer

from pessoa.net.handshakes import MAX_AT_ONCE
from tests.apache.broker import reserve_port
from tests.support.certificates import Authority
from tests.support.clients import until
from tests.support.logged_process import LoggedProcess, pessoa
from tests.support.tls_settings import TlsFiles, librdkafka

TIMEOUT_S = 60
MIB = 1024 * 1024
HALF_OPEN = 1_000
FUZZED = 1_500

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from Linux's /proc")


class Victim:
    def __init__(self, folder: Path) -> None:
        self.files = TlsFiles(folder, Authority("the authority of a test"))
        self.port = reserve_port()
        settings = {
            **self.files.node(self.files.issue("broker-1")),
            "listeners": f"CLIENT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:0",
            "log.dirs": str(folder / "data"),
        }
        words = [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]
        self.log = folder / "broker.log"
        self.process = LoggedProcess(pessoa("broker", *words), self.log)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return int(fields["VmRSS"].split()[0]) * 1024

    def serves(self) -> None:
        """Assert that a well-behaved client can produce a record."""
        delivered: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{self.port}", **librdkafka(self.files)})
        producer.produce("canary", b"tweet", on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        assert delivered == [None]

    def has_no_bugs(self) -> None:
        assert "Traceback" not in self.log.read_text()


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    victim = Victim(tmp_path_factory.mktemp("victim"))
    try:
        victim.process.start()
        until(victim.log.read_text, lambda text: "listening on CLIENT" in text, "the broker listens")
        victim.serves()
        yield victim
        victim.serves()
        victim.has_no_bugs()
    finally:
        victim.process.close()


def client_hello(files: TlsFiles) -> bytes:
    context = ssl.create_default_context(cafile=str(files.trust))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_a_thousand_half_open_handshakes_take_little_memory_and_do_not_block_other_clients(victim: Victim) -> None:
    hello = client_hello(victim.files)
    before = victim.resident_bytes()
    with ExitStack() as stack:
        half_open = [stack.enter_context(victim.connect()) for _ in range(HALF_OPEN)]
        for number, one in enumerate(half_open):
            # Some send nothing, some a part of the ClientHello, and some all of it and do not continue.
            one.sendall((b"", hello[:50], hello)[number % 3])
        victim.serves()
        assert victim.resident_bytes() - before < 64 * MIB
        # Only so many handshakes may be in progress: the broker has closed the oldest, at any step.
        for one in half_open[: HALF_OPEN - MAX_AT_ONCE - 3]:
            while one.recv(65_536):
                pass
        # The others are closed when their time for the handshake ends.
        for one in half_open[HALF_OPEN - MAX_AT_ONCE - 3 :]:
            while one.recv(65_536):
                pass
    victim.serves()


def test_fuzzed_tls_handshakes_leak_no_memory_and_cause_no_exception(victim: Victim) -> None:
    rng, hello = Random(17), client_hello(victim.files)
    send_and_close(victim, [mutated(rng, hello) for _ in range(100)])
    before = victim.resident_bytes()
    send_and_close(victim, [mutated(rng, hello) for _ in range(FUZZED)])
    victim.serves()
    assert victim.resident_bytes() - before < 32 * MIB
    victim.has_no_bugs()


def send_and_close(victim: Victim, attacks: list[bytes]) -> None:
    for data in attacks:
        with victim.connect() as wire:
            try:
                wire.sendall(data)
            except ConnectionError:
                continue


def mutated(rng: Random, hello: bytes) -> bytes:
    match rng.randrange(5):
        case 0:
            return rng.randbytes(rng.randrange(1, 2_000))
        case 1:
            # A TLS record of any type and size.
            kind, size = rng.choice((20, 21, 22, 23, 24, 255)), rng.randrange(65_536)
            return bytes((kind, 3, rng.randrange(5))) + size.to_bytes(2, "big") + rng.randbytes(rng.randrange(size + 1))
        case 2:
            return hello[: rng.randrange(len(hello))] + rng.randbytes(rng.randrange(300))
        case 3:
            return hello * rng.randrange(2, 6)
    changed = bytearray(hello)
    for _ in range(rng.randrange(1, 8)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def test_random_bytes_after_the_tls_handshake_close_the_connection(victim: Victim) -> None:
    rng = Random(18)
    context = ssl.create_default_context(cafile=str(victim.files.trust))
    for _ in range(30):
        with victim.connect() as plain:
            raw = socket.socket(fileno=socket.dup(plain.fileno()))
            with raw, context.wrap_socket(plain, server_hostname="localhost") as secured:
                kind = rng.choice((20, 21, 22, 23))
                body = rng.randbytes(rng.randrange(1, 16_000))
                raw.sendall(bytes((kind, 3, 3)) + len(body).to_bytes(2, "big") + body)
                # The record does not decrypt: the broker sends an alert and closes the connection.
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    assert secured.recv(1) != b""
    victim.serves()
    victim.has_no_bugs()


def test_a_megabyte_sent_before_the_handshake_ends_is_not_kept_in_memory(victim: Victim) -> None:
    before = victim.resident_bytes()
    with ExitStack() as stack:
        for _ in range(100):
            wire = stack.enter_context(victim.connect())
            try:
                # Records that OpenSSL would have to keep: pieces of a handshake message that never ends.
                wire.sendall(b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(16_380))
                for _ in range(64):
                    wire.sendall(b"\x16\x03\x01\x40\x00" + bytes(16_384))
            except ConnectionError:
                pass
        assert victim.resident_bytes() - before < 48 * MIB
    victim.serves()
