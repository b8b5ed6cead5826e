"""The client of the controller, when that is on this node, on another node, or unknown."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from pessoa.base.clock import SystemClock
from pessoa.broker.controller_client import ControllerClient, ControllerUnavailable
from pessoa.controller.decision import NotController
from pessoa.net.connection import Connection
from pessoa.net.listener import Listener
from pessoa.net.network import SystemNetwork
from pessoa.quorum.quorum_settings import LeaderAndEpoch
from pessoa.security.authorizer import Authorizer
from pessoa.wire.api.api_versions import ApiVersion, ApiVersionsResponse
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from pessoa.wire.api.envelope import EnvelopeRequest, EnvelopeResponse
from pessoa.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import SIZE_BYTES, Buffer, response_frame
from pessoa.wire.message_headers import peek_api
from pessoa.wire.request_context import Caller, OwnRequest
from pessoa.wire.schema import Message

TIMEOUT_S = 60
DELETION = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
DELETED = DeleteTopicsResponse(throttle_time_ms=0, responses=[DeletableTopicResult(name="t", error_code=0)])
CREATION = CreateTopicsRequest(topics=[], timeout_ms=1)
HEARTBEAT = BrokerHeartbeatRequest(broker_id=1, current_metadata_offset=0, want_fence=False, want_shut_down=False)

CLIENT = OwnRequest(4, principal="User:alice")


class Remote:
    """A controller on another node, which answers NOT_CONTROLLER `refusals` times first."""

    def __init__(self) -> None:
        self.refusals = 0
        self.seen: list[int] = []
        self.connections: dict[int, int] = {}

    def serve(self, connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
        key, version, correlation_id = peek_api(data, start, end)
        if key == ApiKey.API_VERSIONS:
            keys = [
                ApiVersion(api_key=one, min_version=0, max_version=7)
                for one in (ApiKey.ENVELOPE, ApiKey.BROKER_HEARTBEAT, ApiKey.CREATE_TOPICS)
            ]
            return response_frame(ApiVersionsResponse(error_code=0, api_keys=keys), 0, correlation_id)
        self.seen.append(key)
        self.connections[key] = connection.id
        self.refusals -= 1
        code = ErrorCode.NOT_CONTROLLER if self.refusals >= 0 else ErrorCode.NONE
        if key == ApiKey.BROKER_HEARTBEAT:
            heartbeat = BrokerHeartbeatResponse(throttle_time_ms=0, error_code=code, should_shut_down=False)
            return response_frame(heartbeat, version, correlation_id)
        if key == ApiKey.CREATE_TOPICS:
            topic = CreatableTopicResult(name="t", error_code=code, error_message=None)
            return response_frame(CreateTopicsResponse(throttle_time_ms=0, topics=[topic]), version, correlation_id)
        inner = b"".join(response_frame(DELETED, 4, 1))[SIZE_BYTES:]
        answer = EnvelopeResponse(error_code=code, response_data=None if code else inner)
        return response_frame(answer, version, correlation_id)


class Local:
    def __init__(self) -> None:
        self.is_active = False

    async def decide(self, request: Message, caller: Caller) -> Message:
        if not self.is_active:
            raise NotController
        return DELETED


class Quorum:
    def __init__(self, port: int) -> None:
        self.leader_id = 2
        self.ports = {2: port}
        self.on_leadership: list[Callable[[LeaderAndEpoch], None]] = []

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None:
        return ("127.0.0.1", self.ports[node_id])

    def elect(self, leader_id: int) -> None:
        self.leader_id = leader_id
        for told in self.on_leadership:
            told(LeaderAndEpoch(leader_id, 7))


class Stage:
    def __init__(self, port: int, timeout_ms: int = 5_000) -> None:
        self.local = Local()
        self.quorum = Quorum(port)
        self.entrance = ControllerClient(1, self.local, self.quorum, SystemNetwork(), SystemClock(), timeout_ms)


def run(scenario: Callable[[Remote, Stage], Awaitable[None]], timeout_ms: int = 5_000) -> None:
    async def main() -> None:
        remote = Remote()
        async with asyncio.timeout(TIMEOUT_S), Listener("127.0.0.1", 0, remote.serve, drain_seconds=0.2) as listener:
            stage = Stage(listener.port, timeout_ms)
            await scenario(remote, stage)
            stage.entrance.close()

    asyncio.run(main())


def test_a_request_goes_to_the_controller_of_this_node_if_it_is_active() -> None:
    async def scenario(remote: Remote, stage: Stage) -> None:
        stage.local.is_active = True
        assert await stage.entrance.submit(DELETION, CLIENT) == DELETED
        assert remote.seen == []

    run(scenario)


def test_a_clients_request_goes_in_an_envelope_and_a_brokers_own_as_it_is() -> None:
    async def scenario(remote: Remote, stage: Stage) -> None:
        assert await stage.entrance.submit(DELETION, CLIENT) == DELETED
        heartbeat = await stage.entrance.ask(HEARTBEAT, OwnRequest(0), 5_000)
        assert isinstance(heartbeat, BrokerHeartbeatResponse)
        assert remote.seen == [EnvelopeRequest.api_key, BrokerHeartbeatRequest.api_key]

    run(scenario)


def test_a_broker_sends_create_topics_for_internal_topics_itself_and_retries_on_not_controller() -> None:
    async def scenario(remote: Remote, stage: Stage) -> None:
        remote.refusals = 1
        created = await stage.entrance.submit(CREATION, OwnRequest(7))
        assert isinstance(created, CreateTopicsResponse)
        assert [one.error_code for one in created.topics] == [ErrorCode.NONE]
        assert remote.seen == [ApiKey.CREATE_TOPICS] * 2

    run(scenario)


def test_internal_topics_are_created_over_a_separate_connection_so_muting_stops_no_forwarded_request() -> None:
    async def scenario(remote: Remote, stage: Stage) -> None:
        await stage.entrance.submit(CREATION, OwnRequest(7))
        await stage.entrance.submit(DELETION, CLIENT)
        assert remote.connections[ApiKey.CREATE_TOPICS] != remote.connections[ApiKey.ENVELOPE]

    run(scenario)


def test_an_unauthorized_client_request_does_not_reach_the_controller_of_this_node() -> None:
    async def scenario(_: Remote, stage: Stage) -> None:
        stage.local.is_active = True
        authorizer = Authorizer()
        authorizer.load({})
        secured = ControllerClient(
            1, stage.local, stage.quorum, SystemNetwork(), SystemClock(), 5_000, authorizer=authorizer
        )
        response = await secured.submit(UnregisterBrokerRequest(broker_id=1), OwnRequest(0, principal="User:alice"))
        assert isinstance(response, UnregisterBrokerResponse)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await secured.submit(UnregisterBrokerRequest(broker_id=1), OwnRequest(0)) == DELETED

    run(scenario)


@pytest.mark.parametrize("request_", [DELETION, HEARTBEAT])
def test_a_request_is_retried_when_the_node_is_not_the_active_controller_any_more(request_: Message) -> None:
    async def scenario(remote: Remote, stage: Stage) -> None:
        remote.refusals = 2
        response = await stage.entrance.submit(request_, CLIENT if request_ is DELETION else OwnRequest(0))
        assert getattr(response, "error_code", 0) == ErrorCode.NONE
        assert len(remote.seen) == 3

    run(scenario)


def test_a_leader_that_appears_later_is_found() -> None:
    async def scenario(remote: Remote, stage: Stage) -> None:
        stage.quorum.leader_id = -1
        asked = asyncio.create_task(stage.entrance.submit(DELETION, CLIENT))
        await asyncio.sleep(0)
        stage.quorum.leader_id = 1
        stage.local.is_active = True
        assert await asked == DELETED
        assert remote.seen == []

    run(scenario)


@pytest.mark.parametrize("request_", [DELETION, HEARTBEAT])
def test_a_request_to_a_frozen_controller_is_sent_to_its_successor_at_once(request_: Message) -> None:
    async def scenario(remote: Remote, stage: Stage) -> None:
        # Its kernel accepts connections and bytes, and no process reads them.
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            stage.quorum.ports[3] = frozen.getsockname()[1]
            stage.quorum.elect(3)
            asked = asyncio.create_task(
                stage.entrance.submit(request_, CLIENT if request_ is DELETION else OwnRequest(0))
            )
            loop = asyncio.get_running_loop()
            frozen.setblocking(False)
            connection, _ = await loop.sock_accept(frozen)
            with connection:
                assert await loop.sock_recv(connection, 1)
                stage.quorum.elect(2)
                assert getattr(await asked, "error_code", 0) == ErrorCode.NONE
        assert len(remote.seen) == 1

    # A request that waited for the old controller would take longer than the test may.
    run(scenario, timeout_ms=10 * TIMEOUT_S * 1_000)


def test_without_a_controller_a_client_gets_request_timed_out_and_a_broker_controller_unavailable() -> None:
    async def scenario(remote: Remote, stage: Stage) -> None:
        stage.quorum.leader_id = -1
        response = await stage.entrance.submit(DELETION, CLIENT)
        assert isinstance(response, DeleteTopicsResponse)
        assert [one.error_code for one in response.responses] == [ErrorCode.REQUEST_TIMED_OUT]
        with pytest.raises(ControllerUnavailable):
            await stage.entrance.ask(HEARTBEAT, OwnRequest(0), 50)

    run(scenario, timeout_ms=50)
