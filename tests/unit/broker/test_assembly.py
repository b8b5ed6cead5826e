"""A started broker that gets requests over a real socket."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pessoa.broker.api_table import broker_rows
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.envelope import EnvelopeRequest
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import request_frame
from tests.support.logged_process import LoggedProcess, pessoa

TIMEOUT_S = 120
ENVELOPE = EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=b"")


def command(directory: Path, port: int) -> list[str]:
    settings = (f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={directory}")
    return pessoa("broker", *(word for one in settings for word in ("--set", one)))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[LoggedProcess, int]]:
    with LoggedProcess(command(tmp_path / "broker", 0), tmp_path / "broker.log") as process:
        process.wait_for(" is ready")
        yield process, int(process.wait_for(r"listening on PLAINTEXT://127\.0\.0\.1:(\d+)")[1])


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        yield connection


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, f"the broker closed the connection after {len(data)} of {size} bytes"
        data += part
    return data


def answer(connection: socket.socket) -> bytes:
    return exactly(connection, int.from_bytes(exactly(connection, 4), "big"))


def api_versions(version: int, correlation_id: int = 7) -> bytes:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1") if version >= 3 else None
    return b"".join(request_frame(request or ApiVersionsRequest(), version, correlation_id, "tester"))


@pytest.mark.parametrize("version", range(5))
def test_a_broker_answers_api_versions_in_every_version(broker: tuple[LoggedProcess, int], version: int) -> None:
    with connected(broker[1]) as connection:
        connection.sendall(api_versions(version))
        data = answer(connection)
    assert int.from_bytes(data[:4], "big") == 7
    response = ApiVersionsResponse.decode(data[4:], version)
    assert response.error_code == ErrorCode.NONE
    assert [(entry.api_key, entry.min_version, entry.max_version) for entry in response.api_keys] == [
        (row.key, *row.advertised) for row in broker_rows() if row.is_offered is None
    ]


def test_a_newer_api_versions_is_answered_in_version_0_with_our_range(
    broker: tuple[LoggedProcess, int],
) -> None:
    frame = bytearray(api_versions(4))
    frame[6:8] = (99).to_bytes(2, "big")
    with connected(broker[1]) as connection:
        connection.sendall(frame)
        response = ApiVersionsResponse.decode(answer(connection)[4:], 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(e.api_key, e.min_version, e.max_version) for e in response.api_keys] == [(18, 0, 4)]


def test_pipelined_requests_are_answered_in_order_however_they_arrive(
    broker: tuple[LoggedProcess, int],
) -> None:
    stream = b"".join(api_versions(3, number) for number in range(20))
    with connected(broker[1]) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(stream), 13):
            connection.sendall(stream[start : start + 13])
        seen = [int.from_bytes(answer(connection)[:4], "big") for _ in range(20)]
    assert seen == list(range(20))


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), id="TLS hello"),
        pytest.param(b"\xff\xff\xff\xff", id="negative size"),
        pytest.param(b"\x00\x00\x00\x00", id="empty frame"),
        pytest.param(b"".join(request_frame(ENVELOPE, 0, 1, None)), id="API not served"),
        pytest.param(b"\x00\x00\x00\x08\x7f\xff\x00\x00\x00\x00\x00\x01", id="unknown API"),
        pytest.param(b"\x00\x00\x00\x0a\x00\x12\x00\x03\x00\x00\x00\x01\x00\x50", id="header cut short"),
    ],
)
def test_a_client_that_breaks_the_protocol_is_disconnected_and_others_are_served(
    broker: tuple[LoggedProcess, int], hostile: bytes
) -> None:
    with connected(broker[1]) as other, connected(broker[1]) as connection:
        connection.sendall(hostile)
        assert connection.recv(1) == b""
        other.sendall(api_versions(3))
        assert answer(other)


def test_a_silent_connection_with_half_a_frame_does_not_hold_up_others(broker: tuple[LoggedProcess, int]) -> None:
    with connected(broker[1]) as silent, connected(broker[1]) as other:
        silent.sendall(b"\x00\x00\x10\x00\x00\x12")
        other.sendall(api_versions(0))
        assert answer(other)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_exits_with_code_0_on_sigterm_and_sigint(
    broker: tuple[LoggedProcess, int], number: signal.Signals
) -> None:
    process, port = broker
    with connected(port) as connection:
        assert process.stop(number) == 0
        assert connection.recv(1) == b""


def test_a_port_in_use_gives_one_error_line_and_exit_code_1(broker: tuple[LoggedProcess, int], tmp_path: Path) -> None:
    second = subprocess.run(command(tmp_path / "second", broker[1]), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert second.returncode == 1
    assert "cannot listen" in second.stderr
    assert "Traceback" not in second.stderr


def test_damaged_metadata_gives_one_error_line_and_exit_code_1(tmp_path: Path) -> None:
    metadata = tmp_path / "broker" / "__cluster_metadata-0"
    metadata.mkdir(parents=True)
    (metadata.parent / "meta.properties").write_text(
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=" + "B" * 21 + "A"
    )
    for damage, sentence in ((b"{", "could vote twice"), (b"", "an empty file says nothing")):
        (metadata / "quorum-state").write_bytes(damage)
        run = subprocess.run(command(tmp_path / "broker", 0), capture_output=True, text=True, timeout=TIMEOUT_S)
        assert run.returncode == 1
        assert sentence in run.stderr
        assert "Traceback" not in run.stderr


def test_a_broker_waits_at_its_start_for_another_that_still_uses_its_log_directory(
    broker: tuple[LoggedProcess, int], tmp_path: Path
) -> None:
    first, _ = broker
    with LoggedProcess(command(tmp_path / "broker", 0), tmp_path / "second.log") as second:
        second.wait_for("waiting up to 30 s for it to stop")
        assert first.stop() == 0
        second.wait_for(" is ready")


def test_a_broker_that_waits_for_a_log_directory_can_be_stopped(
    broker: tuple[LoggedProcess, int], tmp_path: Path
) -> None:
    with LoggedProcess(command(tmp_path / "broker", 0), tmp_path / "second.log") as second:
        second.wait_for("another broker is at work in")
        assert second.stop() == 0
    assert broker[0].is_running


def test_a_broker_that_waits_for_its_quorum_can_be_stopped(tmp_path: Path) -> None:
    # The ports of the other two voters are closed.
    voters = "controller.quorum.voters=1@127.0.0.1:1,2@127.0.0.1:2,3@127.0.0.1:3"
    words = [*command(tmp_path, 0), "--set", voters, "--cluster-id", "A" * 22]
    with LoggedProcess(words, tmp_path.with_name("waiting.log")) as process:
        process.wait_for("listening on PLAINTEXT")
        assert process.stop() == 0
