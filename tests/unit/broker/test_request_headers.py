"""The client id of a request, when headers that are equal to earlier ones of the connection are not decoded again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.broker.dispatch import Dispatcher
from pessoa.broker.observers import Observers
from pessoa.metadata.image import MetadataImage
from pessoa.net.connection import Connection
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import SIZE_BYTES, request_frame
from pessoa.wire.request_context import RequestContext

CLASSIC, FLEXIBLE = 2, 5


class Desk:
    """Serves ListGroups on one connection, and notes the client id and states of each request."""

    def __init__(self) -> None:
        services: Any = SimpleNamespace(image=MetadataImage.EMPTY, throttling=None, authorizer=None, telemetry=None)
        self.dispatcher = Dispatcher(services, Observers())
        self.connection = Connection()
        self.asked: list[tuple[str | None, list[str]]] = []
        for version in (CLASSIC, FLEXIBLE):
            route = self.dispatcher._find(ApiKey.LIST_GROUPS, version)
            assert route is not None
            route.handle = self._note

    def _note(self, _: object, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
        self.asked.append((context.client_id, list(request.states_filter)))
        return ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[])

    def serve(self, data: bytes, behind: bytes = b"") -> None:
        self.dispatcher.serve(self.connection, bytearray(data + behind), 0, len(data))

    def ask(self, client_id: str | None, version: int, *states: str) -> None:
        self.serve(frame(client_id, version, *states))


def frame(client_id: str | None, version: int, *states: str) -> bytes:
    request = ListGroupsRequest(states_filter=list(states))
    return b"".join(request_frame(request, version, 7, client_id))[SIZE_BYTES:]


def test_each_request_is_served_with_its_own_client_id_although_headers_are_cached() -> None:
    desk = Desk()
    clients = ["ana", "ana", "anabel", "ana", None, None, "", "a" * 300, "a" * 300, "ana"]
    for client in clients:
        desk.ask(client, FLEXIBLE, "Stable")
    assert desk.asked == [(client, ["Stable"]) for client in clients]


@pytest.mark.parametrize("versions", [(CLASSIC, FLEXIBLE), (FLEXIBLE, CLASSIC)])
def test_a_cached_header_of_version_1_is_not_used_for_a_flexible_header(versions: tuple[int, ...]) -> None:
    desk = Desk()
    for version in (*versions, *versions):
        desk.ask("ana", version, *(["Empty"] if version == FLEXIBLE else []))
    assert [client for client, _ in desk.asked] == ["ana"] * 4
    assert [states for _, states in desk.asked].count(["Empty"]) == 2


def test_a_header_whose_tagged_fields_change_is_decoded_again() -> None:
    desk, plain = Desk(), frame("ana", FLEXIBLE, "Dead")
    header_bytes = 8 + 2 + len("ana")
    for tags in (b"\x00", b"\x01\x05\x01x", b"\x00", b"\x01\x05\x01y"):
        desk.serve(plain[:header_bytes] + tags + plain[header_bytes + 1 :])
    assert desk.asked == [("ana", ["Dead"])] * 4


def test_a_header_that_ends_with_its_frame_is_not_read_beyond_the_frame() -> None:
    desk = Desk()
    desk.ask("ana", FLEXIBLE)
    whole = frame("ana", FLEXIBLE)
    cut = 8 + 2 + 1
    with pytest.raises(ProtocolViolation):
        desk.serve(whole[:cut], behind=whole[cut:])


def test_a_long_client_id_is_not_cached() -> None:
    desk = Desk()
    desk.ask("a" * 10_000, FLEXIBLE)
    assert desk.connection.header_tail == b""
