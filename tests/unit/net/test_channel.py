"""A channel to a listener of our own, and to peers that violate the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pessoa.net.channel import Channel, ChannelFailed, Channels, ChannelTimedOut
from pessoa.net.connection import Connection
from pessoa.net.listener import Listener
from pessoa.net.network import SystemNetwork
from pessoa.net.pending import Pending
from pessoa.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from pessoa.wire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from pessoa.wire.api.fetch import PartitionData as FetchedPartition
from pessoa.wire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from pessoa.wire.frames import Buffer, response_frame
from pessoa.wire.message_headers import RequestHeader, peek_api, request_header_version
from pessoa.wire.schema import Message
from tests.support.pending_frames import PendingFrames

TIMEOUT_S = 60
FETCH, LIST_GROUPS, API_VERSIONS = 1, 16, 18
Answer = list[Buffer] | Pending | None


class Peer:
    """A peer that answers ListGroups with the client id and the version, unless a test replaces that."""

    def __init__(self, newest: int = 5) -> None:
        self.newest = newest
        self.connections = 0
        self.asked: list[tuple[int, int]] = []
        self.answer: Callable[[int, int, int, str | None], Answer] = self.usual
        self.was_asked = asyncio.Event()

    def serve(self, connection: Connection, data: bytearray, start: int, end: int) -> Answer:
        key, version, correlation_id = peek_api(data, start, end)
        if key == API_VERSIONS:
            self.connections += 1
            ranges = [
                ApiVersion(api_key=LIST_GROUPS, min_version=0, max_version=self.newest),
                ApiVersion(api_key=FETCH, min_version=4, max_version=18),
            ]
            return response_frame(ApiVersionsResponse(error_code=0, api_keys=ranges), version, correlation_id)
        self.asked.append((key, version))
        self.was_asked.set()
        kind = ListGroupsRequest if key == LIST_GROUPS else FetchRequest
        header, _ = RequestHeader.decoder(request_header_version(kind, version))(data, start, end)
        return self.answer(key, version, correlation_id, header.client_id)

    def usual(self, key: int, version: int, correlation_id: int, client_id: str | None) -> Answer:
        return response_frame(listed(f"{client_id} {version}"), version, correlation_id)


def listed(name: str) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=0, groups=[ListedGroup(group_id=name, protocol_type="")])


def name_in(response: Message) -> str:
    assert isinstance(response, ListGroupsResponse)
    return response.groups[0].group_id


def run(peer: Peer, scenario: Callable[[Channel, Listener], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), Listener("127.0.0.1", 0, peer.serve, drain_seconds=0.2) as listener:
            channel = Channel(SystemNetwork(), "127.0.0.1", listener.port, "tester")
            try:
                await scenario(channel, listener)
            finally:
                channel.close()

    asyncio.run(main())


def test_many_requests_share_one_connection_and_get_their_own_answers() -> None:
    peer = Peer()
    peer.answer = lambda key, version, correlation_id, _: response_frame(
        listed(str(correlation_id)), version, correlation_id
    )

    async def scenario(channel: Channel, listener: Listener) -> None:
        answers = await asyncio.gather(*(channel.send(ListGroupsRequest(), 5, 5_000) for _ in range(50)))
        # Request 1 asked for the versions.
        assert [name_in(one) for one in answers] == [str(number) for number in range(2, 52)]
        assert peer.connections == 1

    run(peer, scenario)


def test_a_request_is_sent_in_the_newest_version_that_both_sides_support() -> None:
    peer = Peer(newest=3)

    async def scenario(channel: Channel, listener: Listener) -> None:
        assert name_in(await channel.send(ListGroupsRequest(), 5, 5_000)) == "tester 3"
        assert name_in(await channel.send(ListGroupsRequest(), 2, 5_000)) == "tester 2"

    run(peer, scenario)


def test_an_api_that_the_peer_does_not_serve_fails_without_being_sent() -> None:
    peer = Peer(newest=-1)

    async def scenario(channel: Channel, listener: Listener) -> None:
        with pytest.raises(ChannelFailed, match="does not serve ListGroups"):
            await channel.send(ListGroupsRequest(), 5, 5_000)
        assert peer.asked == []

    run(peer, scenario)


def test_a_refused_connection_fails_and_the_next_request_tries_anew() -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            peer = Peer()
            async with Listener("127.0.0.1", 0, peer.serve) as gone:
                port = gone.port
            channel = Channel(SystemNetwork(), "127.0.0.1", port, "tester")
            with pytest.raises(ChannelFailed):
                await channel.send(ListGroupsRequest(), 5, 5_000)
            async with Listener("127.0.0.1", port, peer.serve, drain_seconds=0.2):
                assert name_in(await channel.send(ListGroupsRequest(), 5, 5_000)) == "tester 5"
                channel.close()

    asyncio.run(main())


def test_a_response_timeout_fails_every_request_that_waits_on_the_connection() -> None:
    peer = Peer()
    never: list[asyncio.Future[list[Buffer] | None]] = []

    def hang(key: int, version: int, correlation_id: int, client_id: str | None) -> Answer:
        never.append(asyncio.get_running_loop().create_future())
        return PendingFrames(never[-1])

    peer.answer = hang

    async def scenario(channel: Channel, listener: Listener) -> None:
        patient = asyncio.create_task(channel.send(ListGroupsRequest(), 5, 60_000))
        # On a busy machine connecting alone may take longer than the other one waits.
        await peer.was_asked.wait()
        with pytest.raises(ChannelTimedOut, match="within 50 ms"):
            await channel.send(ListGroupsRequest(), 5, 50)
        with pytest.raises(ChannelFailed):
            await patient
        peer.answer = peer.usual
        assert name_in(await channel.send(ListGroupsRequest(), 5, 5_000)) == "tester 5"
        assert peer.connections == 2

    run(peer, scenario)


def test_a_connection_reset_fails_pending_requests_and_the_next_request_reconnects() -> None:
    peer = Peer()
    peer.answer = lambda *_: PendingFrames(asyncio.get_running_loop().create_future())

    async def scenario(channel: Channel, listener: Listener) -> None:
        waiting = asyncio.create_task(channel.send(ListGroupsRequest(), 5, 60_000))
        await peer.was_asked.wait()
        for connection in list(listener.connections):
            connection.abort()
        with pytest.raises(ChannelFailed):
            await waiting
        peer.answer = peer.usual
        assert name_in(await channel.send(ListGroupsRequest(), 5, 5_000)) == "tester 5"

    run(peer, scenario)


@pytest.mark.parametrize(
    "nonsense", [b"\x00\x00\x00\x04\x00\x00\x00\x63", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\x00"]
)
def test_a_malformed_response_fails_its_request(nonsense: bytes) -> None:
    peer = Peer()
    peer.answer = lambda *_: [nonsense]

    async def scenario(channel: Channel, listener: Listener) -> None:
        with pytest.raises(ChannelFailed):
            await channel.send(ListGroupsRequest(), 5, 5_000)

    run(peer, scenario)


def test_a_cancelled_request_does_not_end_the_connection_of_others() -> None:
    peer = Peer()

    async def scenario(channel: Channel, listener: Listener) -> None:
        first = asyncio.create_task(channel.send(ListGroupsRequest(), 5, 5_000))
        second = asyncio.create_task(channel.send(ListGroupsRequest(), 5, 5_000))
        await asyncio.sleep(0)
        first.cancel()
        assert name_in(await second) == "tester 5"
        assert first.cancelled()

    run(peer, scenario)


def test_a_closed_channel_sends_nothing() -> None:
    async def scenario(channel: Channel, listener: Listener) -> None:
        channel.close()
        with pytest.raises(ChannelFailed, match="closed"):
            await channel.send(ListGroupsRequest(), 5, 5_000)

    run(Peer(), scenario)


def test_fetched_records_are_views_that_later_answers_do_not_overwrite() -> None:
    peer = Peer()

    def fetched(key: int, version: int, correlation_id: int, client_id: str | None) -> Answer:
        if key == LIST_GROUPS:
            return peer.usual(key, version, correlation_id, client_id)
        records = memoryview(bytes([correlation_id % 251]) * 40_000)
        partition = FetchedPartition(
            partition_index=0, error_code=0, high_watermark=0, aborted_transactions=[], records=records
        )
        response = FetchResponse(
            throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=[partition])]
        )
        return response_frame(response, version, correlation_id)

    peer.answer = fetched
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])

    async def scenario(channel: Channel, listener: Listener) -> None:
        views: list[tuple[int, memoryview]] = []
        for correlation_id in range(2, 42, 2):
            answer = await channel.send(fetch, 11, 5_000)
            assert isinstance(answer, FetchResponse)
            records = answer.responses[0].partitions[0].records
            assert isinstance(records, memoryview)
            views.append((correlation_id, records))
            await channel.send(ListGroupsRequest(), 5, 5_000)
        for correlation_id, records in views:
            assert bytes(records) == bytes([correlation_id % 251]) * 40_000
            records[0] = 1

    run(peer, scenario)


def test_channels_keep_one_channel_for_each_peer() -> None:
    channels = Channels(SystemNetwork(), "tester")
    assert channels.of("127.0.0.1", 1) is channels.of("127.0.0.1", 1)
    assert channels.of("127.0.0.1", 1) is not channels.of("127.0.0.1", 2)


class Login:
    """A login that is one ListGroups request; its session lasts `lifetime_ms`."""

    def __init__(self, lifetime_ms: int = 0) -> None:
        self.lifetime_ms = lifetime_ms
        self.peers: list[str] = []
        self.problem: ChannelFailed | None = None

    async def __call__(self, peer: str, ask: Callable[[Message, int], Awaitable[Message]]) -> int:
        self.peers.append(peer)
        if self.problem is not None:
            raise self.problem
        await ask(ListGroupsRequest(), 0)
        return self.lifetime_ms


def run_with_login(login: Login, scenario: Callable[[Channel, Peer], Awaitable[None]]) -> None:
    peer = Peer()

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), Listener("127.0.0.1", 0, peer.serve, drain_seconds=0.2) as listener:
            channel = Channel(SystemNetwork(), "127.0.0.1", listener.port, "tester", login=login)
            try:
                await scenario(channel, peer)
            finally:
                channel.close()

    asyncio.run(main())


async def until_due(channel: Channel) -> None:
    while channel._connection is None or not channel._connection.is_due:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def ask_for_groups(channel: Channel) -> str:
    return name_in(await channel.send(ListGroupsRequest(), 5, 10_000))


def test_a_channel_logs_in_once_before_the_first_request_of_a_connection() -> None:
    login = Login()

    async def scenario(channel: Channel, peer: Peer) -> None:
        await asyncio.gather(*(ask_for_groups(channel) for _ in range(3)))
        assert peer.asked == [(LIST_GROUPS, 0), *[(LIST_GROUPS, 5)] * 3]
        assert login.peers == [f"127.0.0.1:{channel.port}"]
        channel.disconnect("for the test")
        await ask_for_groups(channel)
        assert len(login.peers) == peer.connections == 2

    run_with_login(login, scenario)


def test_a_failed_login_fails_the_request_and_the_next_request_logs_in_again() -> None:
    login = Login()

    async def scenario(channel: Channel, peer: Peer) -> None:
        login.problem = ChannelFailed("wrong password")
        with pytest.raises(ChannelFailed, match="wrong password"):
            await ask_for_groups(channel)
        login.problem = None
        assert await ask_for_groups(channel) == "tester 5"
        assert peer.asked == [(LIST_GROUPS, 0), (LIST_GROUPS, 5)]

    run_with_login(login, scenario)


def test_a_sasl_session_near_its_end_is_renewed_on_its_connection_before_the_next_request() -> None:
    login = Login(lifetime_ms=1)

    async def scenario(channel: Channel, peer: Peer) -> None:
        await ask_for_groups(channel)
        # As soon as it is due: what follows waits for it.
        await until_due(channel)
        login.lifetime_ms = 3_600_000
        await asyncio.gather(*(ask_for_groups(channel) for _ in range(3)))
        assert len(login.peers) == 2
        assert peer.connections == 1
        assert peer.asked == [(LIST_GROUPS, 0), (LIST_GROUPS, 5), (LIST_GROUPS, 0), *[(LIST_GROUPS, 5)] * 3]

    run_with_login(login, scenario)


def test_a_sasl_session_that_cannot_be_renewed_ends_its_connection() -> None:
    login = Login(lifetime_ms=1)

    async def scenario(channel: Channel, peer: Peer) -> None:
        await ask_for_groups(channel)
        await until_due(channel)
        login.problem = ChannelFailed("wrong password")
        with pytest.raises(ChannelFailed, match="wrong password"):
            await ask_for_groups(channel)
        login.problem, login.lifetime_ms = None, 0
        await ask_for_groups(channel)
        assert peer.connections == 2

    run_with_login(login, scenario)
