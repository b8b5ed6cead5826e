"""A controller that has not read the ACLs yet neither denies nor allows requests that need them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pessoa.base.clock import SystemClock
from pessoa.broker.apis import elect_leaders
from pessoa.broker.assembly import make_broker
from pessoa.broker.dispatch import Dispatcher
from pessoa.broker.metadata_progress import MetadataProgress
from pessoa.broker.observers import Observers
from pessoa.broker.stages.controller_role import ControllerRole
from pessoa.metadata.image import MetadataImage
from pessoa.net.connection import Connection
from pessoa.net.pending import PendingTask
from pessoa.security.authorizer import Authorizer
from pessoa.wire.api.api_versions import ApiVersionsRequest
from pessoa.wire.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import SIZE_BYTES, request_frame

if TYPE_CHECKING:
    from pessoa.wire.schema import Message

NODE, ALICE = "User:node", "User:alice"
ELECT = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1)
ELECTED = ElectLeadersResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, replica_election_results=[])
VERSION = 2
CLOSED_PORT = 9


class Desk:
    """The listener of a controller, which decides only whether a request may be served."""

    def __init__(self) -> None:
        self.authorizer = Authorizer(frozenset((NODE,)), allows_without_acl=True)
        self.progress = MetadataProgress(SystemClock())
        node = SimpleNamespace(
            authorizer=self.authorizer, progress=self.progress, throttling=None, image=MetadataImage.EMPTY
        )
        self.dispatcher = Dispatcher(cast("Any", node), Observers(), "CONTROLLER", is_of_controller=True)

    def ask(self, principal: str, request: Message = ELECT, version: int = VERSION) -> object:
        connection = Connection(1)
        connection.principal = principal
        data = bytearray(b"".join(request_frame(request, version, 1, "me"))[SIZE_BYTES:])
        return self.dispatcher.serve(connection, data, 0, len(data))


@pytest.fixture(autouse=True)
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the handler of the API's row by one that does nothing; authorization stays."""

    async def handle(*_: object) -> ElectLeadersResponse:
        return ELECTED

    monkeypatch.setattr(elect_leaders.ROW, "handle_on_controller", handle)


def test_a_client_request_to_a_controller_waits_until_the_acls_are_loaded() -> None:
    async def scene() -> None:
        desk = Desk()
        pending = desk.ask(ALICE)
        assert isinstance(pending, PendingTask)
        answered = asyncio.get_running_loop().create_future()
        pending.when_ready(lambda: answered.set_result(None))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not answered.done(), "nothing has been read"
        desk.authorizer.load({})
        desk.progress.look()
        await asyncio.wait_for(answered, 10)
        assert pending.response() is ELECTED

    asyncio.run(scene())


def test_node_requests_and_requests_that_need_no_authorization_are_served_before_the_acls_are_loaded() -> None:
    async def scene() -> None:
        desk = Desk()
        assert not isinstance(desk.ask(ALICE, ApiVersionsRequest(), 0), PendingTask)
        pending = desk.ask(NODE)
        assert isinstance(pending, PendingTask)
        assert await pending is ELECTED

    asyncio.run(scene())


def test_a_controller_without_a_quorum_has_not_loaded_the_acls(tmp_path: Path) -> None:
    """It published an empty image when it started, and with `allow.everyone.if.no.acl.found` allowed everything."""

    async def scene() -> None:
        broker = make_broker(
            {
                "process.roles": "controller",
                "node.id": "1",
                "log.dirs": str(tmp_path / "data"),
                "listeners": "CONTROLLER://127.0.0.1:0",
                "controller.quorum.voters": f"1@127.0.0.1:{CLOSED_PORT + 1},2@127.0.0.1:{CLOSED_PORT}",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "true",
                "super.users": NODE,
            }
        )
        await broker.start()
        try:
            authorizer = broker.stage(ControllerRole)._node.authorizer
            assert authorizer is not None
            assert not authorizer.can_decide_about(ALICE)
            assert authorizer.can_decide_about(NODE)
        finally:
            broker.abandon()

    asyncio.run(scene())
