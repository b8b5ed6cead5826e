"""TLS over real sockets, on asyncio's loop and on uvloop's: frames, principals, limits, failed handshakes."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio.trsock import TransportSocket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest
import uvloop

from pessoa.base.clock import ManualClock
from pessoa.net import handshakes, tls
from pessoa.net.channel import Channel, ChannelFailed
from pessoa.net.connection import Connection
from pessoa.net.listener import Listener
from pessoa.net.network import SystemNetwork
from pessoa.net.pending import Pending
from pessoa.net.tls import PeerRefused, ServerTls
from pessoa.net.tls_network import TlsNetwork
from pessoa.security.tls.contexts import client_context, server_context
from pessoa.security.tls.distinguished_name import subject_of
from pessoa.security.tls.settings import TlsSettings
from pessoa.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from pessoa.wire.frames import Buffer, response_frame
from tests.support.certificates import Authority, Issued

TIMEOUT_S = 60
AUTHORITY = Authority("the authority of a test")
FOREIGN = Authority("another")


def settings_of(issued: Issued | None, **more: str) -> TlsSettings:
    settings = TlsSettings(truststore_type="PEM", truststore_certificates=AUTHORITY.pem, **more)
    if issued is None:
        return settings
    return replace(
        settings, keystore_type="PEM", keystore_key=issued.key_pem(), keystore_certificate_chain=issued.chain_pem
    )


BROKER = AUTHORITY.certify("broker")


def principal_of(certificate: bytes | None) -> str:
    name = "ANONYMOUS" if certificate is None else subject_of(certificate)
    if name == "CN=nobody":
        raise PeerRefused("this user is not let in")
    return f"User:{name}"


def server_tls(**more: str) -> ServerTls:
    return ServerTls(server_context(settings_of(BROKER, **more)), principal_of)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def echo(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
    if data[start:end] == b"who am I":
        return [framed(connection.principal.encode())]
    # In many parts, small and large.
    body = bytes(data[start:end])
    return [
        len(body).to_bytes(4, "big"),
        body[:10],
        body[10:20],
        *(body[at : at + 50_000] for at in range(20, len(body), 50_000)),
    ]


Scenario = Callable[[Listener], Awaitable[None]]
Run = Callable[[Scenario, ServerTls], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(scenario: Scenario, with_tls: ServerTls) -> None:
        async def main() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                try:
                    async with Listener("127.0.0.1", 0, echo, drain_seconds=1.0, tls=with_tls) as listener:
                        await scenario(listener)
                finally:
                    while WRITERS:
                        WRITERS[-1].close()
                        with suppress(OSError):
                            await WRITERS.pop().wait_closed()

        new_loop = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())

    return run


WRITERS: list[asyncio.StreamWriter] = []
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(listener: Listener, issued: Issued | None = None, **more: str) -> Streams:
    return await dial(listener, client_context(settings_of(issued, **more)))


async def dial(listener: Listener, context: ssl.SSLContext | None = None) -> Streams:
    streams = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
    # Its writer is closed at the end of the test.
    WRITERS.append(streams[1])
    return streams


async def answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def ask(streams: Streams, body: bytes) -> bytes:
    streams[1].write(framed(body))
    return await answer(streams[0])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (the condition is in another object's set)
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_frames_of_every_size_go_through_unchanged(run: Run, protocol: str) -> None:
    async def scenario(listener: Listener) -> None:
        streams = await connect(listener, enabled_protocols=protocol)
        for size in (0, 1, 19, 16_383, 16_384, 16_385, 65_536, 300_001, 5_000_000):
            body = bytes(range(256)) * (size // 256 + 1)
            assert await ask(streams, body[:size]) == body[:size]
        streams[1].close()

    run(scenario, server_tls())


def test_pipelined_frames_are_answered_in_order(run: Run) -> None:
    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(b"".join(framed(b"%d" % number) for number in range(5000)))
        assert [await answer(reader) for _ in range(5000)] == [b"%d" % number for number in range(5000)]
        writer.close()

    run(scenario, server_tls())


def test_the_tls_principal_is_the_name_in_the_client_certificate(run: Run) -> None:
    async def scenario(listener: Listener) -> None:
        assert await ask(await connect(listener, AUTHORITY.certify("ana")), b"who am I") == b"User:CN=ana"
        assert await ask(await connect(listener), b"who am I") == b"User:ANONYMOUS"

    run(scenario, server_tls(client_auth="requested"))


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize(
    ("issued", "alert"),
    [
        (None, "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE"),
        (FOREIGN.certify("ana"), "UNKNOWN_CA"),
        (AUTHORITY.certify("ana", days=-1), "CERTIFICATE_EXPIRED"),
    ],
)
def test_a_client_without_a_good_certificate_gets_an_alert_and_is_served_nothing(
    run: Run, protocol: str, issued: Issued | None, alert: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(listener: Listener) -> None:
        with pytest.raises(ssl.SSLError, match=alert):
            # With TLS 1.3 a client only learns of it when it reads.
            await ask(await connect(listener, issued, enabled_protocols=protocol), b"who am I")
        await until(lambda: not listener.connections)

    caplog.set_level(logging.INFO)
    run(scenario, server_tls(client_auth="required"))
    assert "the TLS handshake failed" in caplog.text


def resume(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
    """Send a request over a connection that may resume a TLS 1.2 session; return the response, empty if it was
    closed, and the connection's session."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as secured,
    ):
        assert secured.session_reused is (session is not None)
        secured.sendall(framed(b"who am I"))
        return secured.recv(1000)[4:], secured.session


def test_a_session_of_tls_1_2_is_not_resumed_with_a_certificate_that_has_expired(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(listener: Listener) -> None:
        context = client_context(settings_of(AUTHORITY.certify("ana", days=1), enabled_protocols="TLSv1.2"))
        name, session = await asyncio.to_thread(resume, listener.port, context, None)
        assert name == b"User:CN=ana"
        assert (await asyncio.to_thread(resume, listener.port, context, session))[0] == b"User:CN=ana"
        listener.clock = ManualClock(listener.clock.now_ms() + 2 * 86_400_000)
        with suppress(OSError):
            assert (await asyncio.to_thread(resume, listener.port, context, session))[0] == b""

    caplog.set_level(logging.INFO)
    run(scenario, server_tls(client_auth="required"))
    assert "expired" in caplog.text


def test_a_tls_client_whose_principal_is_refused_is_disconnected(run: Run) -> None:
    async def scenario(listener: Listener) -> None:
        with pytest.raises((asyncio.IncompleteReadError, OSError)):
            await ask(await connect(listener, AUTHORITY.certify("nobody")), b"who am I")

    run(scenario, server_tls(client_auth="required"))


def test_a_tls_listener_disconnects_a_peer_that_sends_plain_text_or_noise_at_once(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(listener: Listener) -> None:
        for noise in (framed(b"who am I"), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70_000)):
            reader, writer = await dial(listener)
            writer.write(noise)
            # An alert, and the end.
            assert len(await reader.read()) < 100
            writer.close()
        await until(lambda: not listener.connections)

    caplog.set_level(logging.INFO)
    run(scenario, server_tls())
    assert "does the peer speak TLS?" in caplog.text


def test_a_listener_that_closes_sends_close_notify(run: Run) -> None:
    reading: list[asyncio.Task[bytes]] = []

    async def scenario(listener: Listener) -> None:
        streams = await connect(listener)
        assert await ask(streams, b"x") == b"x"
        half_open = await dial(listener)
        await until(lambda: len(listener.connections) == 2)
        async with asyncio.TaskGroup() as group:
            # Without the alert that says goodbye this would be an error: an attacker could have cut the connection.
            reading.extend(group.create_task(reader.read()) for reader, _ in (streams, half_open))
            for one in list(listener.connections):
                one.drain()

    run(scenario, server_tls())
    assert [one.result() for one in reading] == [b"", b""]


def test_a_tls_listener_answers_close_notify_with_close_notify(run: Run) -> None:
    async def scenario(listener: Listener) -> None:
        def part() -> None:
            context = client_context(settings_of(None))
            with socket.create_connection(("127.0.0.1", listener.port), TIMEOUT_S / 2) as plain:
                secured = context.wrap_socket(plain, server_hostname="127.0.0.1")
                secured.sendall(framed(b"x"))
                assert secured.recv(5) == framed(b"x")
                # Waits for the other side's goodbye, as clients on asyncio's loop do when they close.
                secured.unwrap().close()

        await asyncio.to_thread(part)
        await until(lambda: not listener.connections)

    run(scenario, server_tls())


def test_new_connections_use_a_new_certificate_and_open_ones_continue(run: Run) -> None:
    async def scenario(listener: Listener) -> None:
        old = await connect(listener)
        other = AUTHORITY.certify("broker, renewed")
        listener.tls = ServerTls(server_context(settings_of(other)), principal_of)
        new = await connect(listener)
        shown = new[1].get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert subject_of(shown) == r"CN=broker\, renewed"
        for streams in (old, new):
            assert await ask(streams, b"x") == b"x"

    run(scenario, server_tls())


# Limits.


def test_a_tls_handshake_that_exceeds_its_time_limit_is_aborted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "_SWEEP_MS", 20)

    async def scenario(listener: Listener) -> None:
        good = await connect(listener)
        monkeypatch.setattr(handshakes, "TIMEOUT_MS", 100)
        silent = await dial(listener)
        half = await dial(listener)
        half[1].write(b"\x16\x03\x01\x02\x00\x01")
        assert await silent[0].read() == b""
        assert await half[0].read() == b""
        await until(lambda: len(listener.connections) == 1)
        assert await ask(good, b"x") == b"x"

    run(scenario, server_tls())


def test_when_there_are_too_many_handshakes_the_oldest_is_aborted_and_an_honest_client_connects(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "MAX_AT_ONCE", 20)

    async def scenario(listener: Listener) -> None:
        half_open = [await dial(listener) for _ in range(60)]
        await until(lambda: len(listener.connections) <= 20)
        assert await ask(await connect(listener), b"x") == b"x"
        assert await half_open[0][0].read() == b""

    run(scenario, server_tls())


def test_a_peer_that_sends_on_without_finishing_its_handshake_is_closed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_MAX_HANDSHAKE_BYTES", 20_000)

    async def scenario(listener: Listener) -> None:
        reader, writer = await dial(listener)
        # A record of TLS that is announced to be large, a few bytes at a time; OpenSSL would wait for all of it.
        writer.write(b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + bytes(5_000))
        for _ in range(30):
            writer.write(b"\x16\x03\x01\x00\x01\x00" * 1000)
            await asyncio.sleep(0)
        await reader.read()
        await until(lambda: not listener.connections)

    run(scenario, server_tls())


def test_one_handshake_step_is_made_per_turn_of_the_event_loop() -> None:
    steps: list[int] = []

    class Counted:
        def step(self) -> None:
            steps.append(turn)

        def give_up(self, why: str) -> None: ...

    turn = 0

    async def main() -> None:
        nonlocal turn
        from pessoa.base.clock import SystemClock

        queue = handshakes.Handshakes(SystemClock(), asyncio.get_running_loop())
        for one in [Counted() for _ in range(5)]:
            queue.begin(one)
            queue.step_soon(one)
        while len(steps) < 5:
            await asyncio.sleep(0)
            turn += 1

    asyncio.run(main())
    assert len(set(steps)) == 5


# The side of a client.


def versions(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
    correlation_id = int.from_bytes(data[start + 4 : start + 8], "big")
    response = ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=0)])
    return response_frame(response, 0, correlation_id)


async def ask_over_a_channel(listener: Listener, client: TlsSettings, host: str = "127.0.0.1") -> None:
    from pessoa.wire.api.api_versions import ApiVersionsRequest

    context = client_context(client)
    channel = Channel(TlsNetwork(SystemNetwork(), lambda: context), host, listener.port, "test")
    try:
        answer = await channel.send(ApiVersionsRequest(), 0, 20_000)
        assert isinstance(answer, ApiVersionsResponse)
    finally:
        channel.close()


def test_a_channel_uses_tls_and_presents_its_certificate(run: Run) -> None:
    principals: list[str] = []

    async def scenario(listener: Listener) -> None:
        def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
            principals.append(connection.principal)
            return versions(connection, data, start, end)

        listener.serve = serve
        await ask_over_a_channel(listener, settings_of(AUTHORITY.certify("broker-2")))

    run(scenario, server_tls(client_auth="required"))
    assert principals == ["User:CN=broker-2"] * 2


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (FOREIGN.certify("broker"), "unable to get local issuer certificate|self-signed"),
        (AUTHORITY.certify("broker", days=-1), "expired"),
        (AUTHORITY.certify("broker", hosts=("elsewhere.test",)), "mismatch"),
    ],
)
def test_a_channel_refuses_a_server_whose_certificate_is_not_valid_for_it(
    run: Run, shown: Issued, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(listener: Listener) -> None:
        with pytest.raises(ChannelFailed, match=says):
            await ask_over_a_channel(listener, settings_of(None))

    run(scenario, ServerTls(server_context(settings_of(shown)), principal_of))
    assert "TLS: certificate verify failed" in caplog.text


def test_a_channel_to_a_listener_without_tls_fails_at_once(run: Run) -> None:
    async def scenario(listener: Listener) -> None:
        listener.tls = None
        with pytest.raises(ChannelFailed):
            await ask_over_a_channel(listener, settings_of(None))

    run(scenario, server_tls())


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="the system has no such option")
def test_the_last_message_of_a_handshake_is_acknowledged_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a client with Nagle's algorithm would wait 40 ms before its first request."""
    options: list[tuple[int, ...]] = []
    is_set = asyncio.Event()
    set_option = TransportSocket.setsockopt

    def note(self: TransportSocket, *option: int) -> None:
        options.append(option)
        set_option(self, *option)
        is_set.set()

    monkeypatch.setattr(TransportSocket, "setsockopt", note)

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), Listener("127.0.0.1", 0, echo, tls=server_tls()) as listener:
            _, writer = await connect(listener)
            await is_set.wait()
            writer.close()

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(main())
    assert options == [(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)]
