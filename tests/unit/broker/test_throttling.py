"""Which quotas a request counts for, the throttle time of its response, and when its connection is muted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.base.clock import ManualClock
from pessoa.broker.api_row import BETWEEN_NODES, Quota
from pessoa.broker.api_table import broker_rows, controller_rows
from pessoa.broker.controller_services import ControllerServices
from pessoa.broker.dispatch import Dispatcher
from pessoa.broker.observers import Observers
from pessoa.broker.throttling import ControllerThrottling, Throttling
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.table_images import QuotasImage
from pessoa.net.connection import Connection
from pessoa.net.pending import Pending, PendingTask
from pessoa.quota.precedence import Configured
from pessoa.quota.rates import Windows
from pessoa.wire.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.api.fetch import FetchRequest, FetchResponse, ReplicaState
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.produce import ProduceRequest, ProduceResponse
from pessoa.wire.api.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import SIZE_BYTES, Buffer, request_frame
from pessoa.wire.message_headers import response_header_version
from pessoa.wire.request_context import RequestContext
from pessoa.wire.schema import Message

LISTENER = "PLAINTEXT"
ALL_USERS = (("user", None),)
GROUPS = ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[])


class Desk:
    """A dispatcher with quotas, whose wall clock, CPU clock and handlers the test controls."""

    def __init__(self, configured: Configured) -> None:
        self.clock = ManualClock(1_000_000)
        self.busy_ns = 0
        self.connection = Connection()
        self.throttling = Throttling(self.clock, Windows(), "BETWEEN", busy_ns=lambda: self.busy_ns)
        services: Any = SimpleNamespace(
            image=MetadataImage.EMPTY,
            throttling=self.throttling.follow(configured),
            clock=self.clock,
            authorizer=None,
        )
        self._dispatchers = {name: Dispatcher(services, Observers(), name) for name in (LISTENER, "BETWEEN")}

    def handle(self, key: ApiKey, version: int, handle: Callable[..., Any]) -> None:
        for dispatcher in self._dispatchers.values():
            route = dispatcher._find(key, version)
            assert route is not None
            route.handle = handle

    def serve(self, message: Message, version: int, listener: str = LISTENER) -> list[Buffer] | Pending | None:
        data = bytearray(b"".join(request_frame(message, version, 1, "me"))[SIZE_BYTES:])
        return self._dispatchers[listener].serve(self.connection, data, 0, len(data))

    def ask(self, message: Message, version: int, listener: str = LISTENER) -> Any:
        return decoded(self.serve(message, version, listener), message, version)

    @property
    def muted_ms(self) -> int:
        until_ms = self.connection.muted_until_ms
        return 0 if until_ms is None else until_ms - self.clock.monotonic_ms()

    @property
    def request_percentage(self) -> float:
        """Return the request percentage that the only client has used."""
        [reading] = [one for one in self.throttling.readings() if one.key == "request_percentage"]
        return reading.rate


def decoded(frames: list[Buffer] | Pending | None, request: Message, version: int) -> Any:
    assert isinstance(frames, list)
    kind = ApiKey(request.api_key).response
    data = b"".join(frames)[SIZE_BYTES:]
    return kind.decode(data[5 if response_header_version(kind, version) else 4 :], version)


def fetch(**replica: Any) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], **replica)


def produce_of(size: int) -> ProduceRequest:
    """Return a Produce request whose frame has about `size` bytes."""
    return ProduceRequest(acks=1, timeout_ms=1, transactional_id="x" * size, topic_data=[])


@pytest.mark.parametrize("version", range(3, 14))
def test_a_produce_over_the_quota_is_served_and_answered_with_the_time_for_which_it_is_muted(version: int) -> None:
    desk = Desk({ALL_USERS: {"producer_byte_rate": 1_000.0}})
    desk.handle(ApiKey.PRODUCE, version, lambda *_: ProduceResponse(responses=[], throttle_time_ms=0))
    assert desk.ask(produce_of(9_000), version).throttle_time_ms == 0
    assert desk.muted_ms == 0
    throttle_ms = desk.ask(produce_of(9_000), version).throttle_time_ms
    assert 8_000 <= throttle_ms <= 8_200
    assert desk.muted_ms == throttle_ms


def test_a_produce_without_an_answer_is_muted_for_its_bytes_and_not_for_its_time() -> None:
    desk = Desk({ALL_USERS: {"producer_byte_rate": 1_000.0, "request_percentage": 1.0}})

    def handle(*_: object) -> None:
        desk.busy_ns += 10**10

    desk.handle(ApiKey.PRODUCE, 9, handle)
    assert desk.serve(produce_of(1), 9) is None
    assert desk.muted_ms == 0
    assert desk.serve(produce_of(20_000), 9) is None
    assert desk.muted_ms > 9_000


def test_a_fetch_over_the_quota_is_not_admitted_and_nothing_of_it_is_recorded() -> None:
    desk = Desk({ALL_USERS: {"consumer_byte_rate": 1_000.0}})
    sizes = [9_000, 9_000, 500]
    admitted: list[bool] = []

    def handle(_: object, context: RequestContext, request: FetchRequest) -> FetchResponse:
        assert context.charge is not None
        assert context.charge.limit_fetch(request.max_bytes) == 10_000
        admitted.append(context.charge.admits_fetch(sizes[len(admitted)]))
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[])

    desk.handle(ApiKey.FETCH, 12, handle)
    throttled = [desk.ask(fetch(), 12).throttle_time_ms for _ in sizes]
    assert admitted == [True, False, True]
    assert throttled == [0, 8_000, 0]
    assert desk.muted_ms == 8_000


def test_a_fetch_of_a_batch_larger_than_the_quota_is_admitted_for_a_client_that_has_fetched_nothing() -> None:
    desk = Desk({ALL_USERS: {"consumer_byte_rate": 1_000.0}})
    admitted: list[bool] = []

    def handle(_: object, context: RequestContext, request: FetchRequest) -> FetchResponse:
        assert context.charge is not None
        admitted.append(context.charge.admits_fetch(50_000))
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[])

    desk.handle(ApiKey.FETCH, 12, handle)
    for _ in range(3):
        assert desk.ask(fetch(), 12).throttle_time_ms >= 40_000
    # A consumer that comes back too early, on another connection, does not begin anew with each attempt.
    for _ in range(12):
        desk.clock.advance_ms(1_000)
        desk.ask(fetch(), 12)
    assert admitted == [True, *[False] * 12, True, False]


def test_a_fetch_of_a_follower_is_exempt_on_the_listener_between_brokers_alone() -> None:
    desk = Desk({ALL_USERS: {"consumer_byte_rate": 1.0, "request_percentage": 0.01}})
    charges: list[object] = []

    def handle(_: object, context: RequestContext, request: FetchRequest) -> FetchResponse:
        charges.append(context.charge)
        desk.busy_ns += 10**9
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[])

    for version, follower in (
        (12, fetch(replica_id=2)),
        (17, fetch(replica_state=ReplicaState(replica_id=2, replica_epoch=1))),
    ):
        desk.handle(ApiKey.FETCH, version, handle)
        assert desk.ask(follower, version, "BETWEEN").throttle_time_ms == 0
        assert charges[-1] is None
        assert desk.ask(follower, version).throttle_time_ms > 0
        assert charges[-1] is not None


def test_requests_before_the_login_count_for_no_users_request_quota() -> None:
    desk = Desk({ALL_USERS: {"request_percentage": 10.0}})

    def handle(*_: object) -> ListGroupsResponse:
        desk.busy_ns += 10**10
        return GROUPS

    desk.handle(ApiKey.LIST_GROUPS, 4, handle)
    desk.connection.admit_only(frozenset({ApiKey.LIST_GROUPS}), 1_000)
    assert desk.ask(ListGroupsRequest(), 4).throttle_time_ms == 0
    desk.connection.admit_all(1_000)
    assert desk.ask(ListGroupsRequest(), 4).throttle_time_ms > 0


def test_the_time_of_a_request_on_the_event_loop_counts_for_the_request_quota_except_between_brokers() -> None:
    desk = Desk({ALL_USERS: {"request_percentage": 10.0}})

    def handle(*_: object) -> ListGroupsResponse:
        desk.busy_ns += 900_000_000
        return GROUPS

    def handle_markers(*_: object) -> WriteTxnMarkersResponse:
        desk.busy_ns += 10**10
        return WriteTxnMarkersResponse(markers=[])

    desk.handle(ApiKey.LIST_GROUPS, 4, handle)
    desk.handle(ApiKey.WRITE_TXN_MARKERS, 1, handle_markers)
    desk.serve(WriteTxnMarkersRequest(markers=[]), 1)
    assert desk.ask(ListGroupsRequest(), 4).throttle_time_ms == 0
    # 1.8 seconds of 10 are 18 percent: 8 more than allowed, of 10, over 10 seconds; but never more than a second.
    assert desk.ask(ListGroupsRequest(), 4).throttle_time_ms == 1_000
    assert desk.muted_ms == 1_000
    # Others get the same object.
    assert GROUPS.throttle_time_ms == 0


def test_every_step_of_a_coroutine_that_builds_a_response_counts_for_the_request_quota() -> None:
    desk = Desk({ALL_USERS: {"request_percentage": 10.0}})

    async def respond() -> ListGroupsResponse:
        for _ in range(3):
            desk.busy_ns += 400_000_000
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        return GROUPS

    async def ask() -> Any:
        pending = desk.serve(ListGroupsRequest(), 4)
        assert isinstance(pending, PendingTask)
        ready = asyncio.Event()
        pending.when_ready(ready.set)
        # What others do meanwhile does not count.
        desk.busy_ns += 10**12
        await ready.wait()
        return decoded(pending.frames(), ListGroupsRequest(), 4)

    desk.handle(ApiKey.LIST_GROUPS, 4, lambda *_: respond())
    response = asyncio.run(ask())
    # 1.2 seconds of 10 are 12 percent, 2 more than 10: a fifth of 10 seconds, of which one second at most.
    assert response.throttle_time_ms == 1_000
    [reading] = desk.throttling.readings()
    assert reading.rate == pytest.approx(12.0)
    assert (reading.throttled_count, reading.throttle_time_ms) == (1, 1_000)


def test_a_client_is_muted_for_the_throttle_time_that_the_controller_returns() -> None:
    desk = Desk({ALL_USERS: {"controller_mutation_rate": 1.0}})
    desk.handle(ApiKey.CREATE_TOPICS, 7, lambda *_: CreateTopicsResponse(throttle_time_ms=4_321, topics=[]))
    assert desk.ask(CreateTopicsRequest(topics=[], timeout_ms=1), 7).throttle_time_ms == 4_321
    assert desk.muted_ms == 4_321


@pytest.mark.parametrize("percentage", [1e-310, 5e-324])
def test_a_request_percentage_of_almost_nothing_mutes_for_a_window(percentage: float) -> None:
    desk = Desk({ALL_USERS: {"request_percentage": percentage}})

    def handle(*_: object) -> ListGroupsResponse:
        desk.busy_ns += 1_000_000
        return GROUPS

    desk.handle(ApiKey.LIST_GROUPS, 4, handle)
    assert desk.ask(ListGroupsRequest(), 4).throttle_time_ms == 1_000


def test_a_produce_over_a_byte_rate_of_almost_nothing_reads_the_longest_throttle_time() -> None:
    desk = Desk({ALL_USERS: {"producer_byte_rate": 1e-310}})
    desk.handle(ApiKey.PRODUCE, 9, lambda *_: ProduceResponse(responses=[], throttle_time_ms=0))
    assert desk.ask(produce_of(10), 9).throttle_time_ms == 2**31 - 1


def test_a_fetch_under_a_byte_rate_beyond_all_bounds_is_not_limited() -> None:
    desk = Desk({ALL_USERS: {"consumer_byte_rate": 1e308}})
    limits: list[int] = []

    def handle(_: object, context: RequestContext, request: FetchRequest) -> FetchResponse:
        assert context.charge is not None
        limits.append(context.charge.limit_fetch(1_000))
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[])

    desk.handle(ApiKey.FETCH, 12, handle)
    assert desk.ask(fetch(), 12).throttle_time_ms == 0
    assert limits == [1_000]


def test_the_time_of_a_failed_request_counts_for_the_request_quota() -> None:
    desk = Desk({ALL_USERS: {"request_percentage": 10.0}})

    def handle(*_: object) -> Message:
        desk.busy_ns += 400_000_000
        raise ProtocolViolation("refused")

    desk.handle(ApiKey.LIST_GROUPS, 4, handle)
    with pytest.raises(ProtocolViolation):
        desk.serve(ListGroupsRequest(), 4)
    assert desk.request_percentage == pytest.approx(4.0)


class Waiting(Pending):
    """A pending response that is ready at once; building it takes time and raises ProtocolViolation."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk

    def response(self) -> Message | None:
        self._desk.busy_ns += 300_000_000
        raise ProtocolViolation("refused")


@pytest.mark.parametrize(("is_made", "percentage"), [(False, 4.0), (True, 7.0)])
def test_the_time_of_a_request_without_a_response_counts_once_for_the_request_quota(
    is_made: bool, percentage: float
) -> None:
    desk = Desk({ALL_USERS: {"request_percentage": 10.0}})

    def handle(*_: object) -> Pending:
        desk.busy_ns += 400_000_000
        return Waiting(desk)

    desk.handle(ApiKey.LIST_GROUPS, 4, handle)
    pending = desk.serve(ListGroupsRequest(), 4)
    assert isinstance(pending, Waiting)
    # What others do meanwhile does not count.
    desk.busy_ns += 10**10
    if is_made:
        with pytest.raises(ProtocolViolation):
            pending.frames()
    pending.cancel()
    pending.cancel()
    assert desk.request_percentage == pytest.approx(percentage)
    assert desk.muted_ms == 0


def test_the_steps_of_a_coroutine_count_for_the_request_quota_though_its_request_is_cancelled() -> None:
    desk = Desk({ALL_USERS: {"request_percentage": 10.0}})

    async def respond() -> ListGroupsResponse:
        desk.busy_ns += 400_000_000
        await asyncio.get_running_loop().create_future()
        return GROUPS

    async def ask() -> None:
        pending = desk.serve(ListGroupsRequest(), 4)
        assert isinstance(pending, PendingTask)
        pending.when_ready(lambda: None)
        await asyncio.sleep(0)
        pending.cancel()

    desk.handle(ApiKey.LIST_GROUPS, 4, lambda *_: respond())
    asyncio.run(ask())
    assert desk.request_percentage == pytest.approx(4.0)


def test_the_time_of_a_refused_produce_with_acks_0_does_not_count_for_the_request_quota() -> None:
    desk = Desk({ALL_USERS: {"request_percentage": 10.0}})

    def handle(*_: object) -> Message:
        desk.busy_ns += 400_000_000
        raise ProtocolViolation("refused")

    desk.handle(ApiKey.PRODUCE, 9, handle)
    with pytest.raises(ProtocolViolation):
        desk.serve(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 9)
    assert desk.request_percentage == 0


def test_a_request_percentage_that_appears_while_a_fetch_is_served_does_not_count_its_time() -> None:
    desk = Desk({ALL_USERS: {"consumer_byte_rate": 1e9}})
    # The event loop's thread has computed for a long time before.
    desk.busy_ns = 10**12

    async def respond(context: RequestContext) -> FetchResponse:
        desk.throttling.follow({ALL_USERS: {"request_percentage": 10.0}})
        # Another request of the same client finds its new limit.
        desk.serve(ListGroupsRequest(), 4)
        assert context.charge is not None
        desk.busy_ns += 400_000_000
        assert context.charge.admits_fetch(1)
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[])

    async def ask() -> Any:
        pending = desk.serve(fetch(), 12)
        assert isinstance(pending, PendingTask)
        ready = asyncio.Event()
        pending.when_ready(ready.set)
        await ready.wait()
        return decoded(pending.frames(), fetch(), 12)

    desk.handle(ApiKey.LIST_GROUPS, 4, lambda *_: GROUPS)
    desk.handle(ApiKey.FETCH, 12, lambda _, context, __: respond(context))
    assert asyncio.run(ask()).throttle_time_ms == 0
    assert desk.request_percentage == 0


def test_a_request_percentage_that_appears_while_a_request_waits_does_not_count_its_response() -> None:
    desk = Desk({ALL_USERS: {"consumer_byte_rate": 1e9}})
    desk.handle(ApiKey.LIST_GROUPS, 4, lambda *_: Waiting(desk))
    pending = desk.serve(ListGroupsRequest(), 4)
    assert isinstance(pending, Waiting)
    desk.throttling.follow({ALL_USERS: {"request_percentage": 10.0}})
    desk.handle(ApiKey.LIST_GROUPS, 4, lambda *_: GROUPS)
    desk.serve(ListGroupsRequest(), 4)
    with pytest.raises(ProtocolViolation):
        pending.frames()
    assert desk.request_percentage == 0


@pytest.mark.parametrize(("quotas", "muted_ms"), [({}, 0), ({ALL_USERS: {"controller_mutation_rate": 1.0}}, 4_321)])
def test_a_client_of_a_controller_listener_is_muted_for_its_mutations(quotas: Configured, muted_ms: int) -> None:
    desk = Desk({})
    image = replace(MetadataImage.EMPTY, quotas=QuotasImage(quotas))
    nothing: Any = SimpleNamespace(node_id=1, value={"quota.window.num": 11, "quota.window.size.seconds": 1}.get)
    publisher: Any = SimpleNamespace(image=image)
    services = ControllerServices(nothing, nothing, publisher, nothing, "cluster", desk.clock)
    dispatcher = Dispatcher(services, Observers(), "CONTROLLER", is_of_controller=True)
    route = dispatcher._find(ApiKey.CREATE_TOPICS, 7)
    assert route is not None
    route.handle = lambda *_: CreateTopicsResponse(throttle_time_ms=4_321, topics=[])
    data = bytearray(b"".join(request_frame(CreateTopicsRequest(topics=[], timeout_ms=1), 7, 1, "me"))[SIZE_BYTES:])
    dispatcher.serve(desk.connection, data, 0, len(data))
    assert desk.muted_ms == muted_ms


def test_a_controller_counts_the_request_time_of_clients_and_not_that_of_nodes() -> None:
    desk = Desk({})
    throttling = ControllerThrottling(desk.clock, Windows(), lambda: desk.busy_ns)
    throttling.follow({ALL_USERS: {"request_percentage": 1.0}})
    context = RequestContext(0, 0, 0, "me", "", 1, "CONTROLLER")
    charge = throttling.begin(Quota.REQUEST, desk.connection, context, ListGroupsRequest(), 1)
    assert charge is not None
    desk.busy_ns += 200_000_000
    charge.settle(GROUPS)
    # 20 percent-seconds in windows of ten seconds, where ten are allowed.
    assert desk.muted_ms == 1_000
    assert throttling.begin(Quota.FETCH, desk.connection, context, ListGroupsRequest(), 1) is None


def test_requests_between_nodes_count_for_no_quota() -> None:
    between = {row.key.title for row in controller_rows() if row.authorised_on_controller == (BETWEEN_NODES,)}
    counted = {row.key.title for row in controller_rows() if row.quota is not Quota.NONE}
    assert between & counted == {"Fetch"}, "which a controller passes over, as the test above shows"
    assert len(between) > 10


def test_every_api_with_a_quota_has_a_throttle_time_in_its_response_except_describe_quorum() -> None:
    without = [
        row.key.title
        for row in broker_rows()
        if row.quota.name != "NONE" and "throttle_time_ms" not in {one.name for one in row.key.response.fields}
    ]
    # Kafka gave it none; its connection is muted all the same.
    assert without == ["DescribeQuorum"]
