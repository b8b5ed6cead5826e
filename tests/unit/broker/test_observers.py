"""Observers of requests are notified of each request and response of the APIs for which they registered."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from pessoa.broker.api_row import AnyRow
from pessoa.broker.dispatch import Dispatcher
from pessoa.broker.observers import Begin, Observers
from pessoa.metadata.image import MetadataImage
from pessoa.net.connection import Connection
from pessoa.net.pending import Observation, Pending, PendingTask
from pessoa.wire.api.api_versions import ApiVersionsRequest
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.frames import SIZE_BYTES, Buffer, request_frame
from pessoa.wire.request_context import RequestContext
from pessoa.wire.schema import Message

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


class Notebook:
    """An observer that records its calls."""

    def __init__(self, *keys: ApiKey) -> None:
        self._keys = keys
        self.ends: list[str] = []
        self.sizes: list[int] = []
        self.waits: list[str] = []

    def watches(self, row: AnyRow) -> bool:
        return row.key in self._keys

    def begin_of(self, row: AnyRow) -> Begin:
        return self.begin

    def begin(self, context: RequestContext, request: Message, size: int) -> Observation:
        self.sizes.append(size)
        return Note(self, type(request).__name__)


class Note:
    def __init__(self, notebook: Notebook, name: str) -> None:
        self._notebook = notebook
        self._name = name

    def wait(self) -> None:
        self._notebook.waits.append(self._name)

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        answer = "nothing" if response is None or frames is None else type(response).__name__
        self._notebook.ends.append(f"{self._name} → {answer}")

    def lose(self) -> None:
        self._notebook.ends.append(f"{self._name} lost")


def frame_of(message: Message, version: int) -> bytearray:
    return bytearray(b"".join(request_frame(message, version, 1, "me"))[SIZE_BYTES:])


class Desk:
    """A dispatcher whose group coordinator is given by the test."""

    def __init__(self) -> None:
        self.observers = Observers()
        services: Any = SimpleNamespace(image=MetadataImage.EMPTY, throttling=None, authorizer=None, telemetry=None)
        self.dispatcher = Dispatcher(services, self.observers)

    def ask(self, message: Message, version: int) -> list[Buffer] | Pending | None:
        data = frame_of(message, version)
        return self.dispatcher.serve(Connection(), data, 0, len(data))

    def replace_handler(self, key: ApiKey, version: int, handle: Callable[..., Any]) -> None:
        route = self.dispatcher._find(key, version)
        assert route is not None
        route.handle = handle


def test_a_watcher_is_called_for_a_request_that_is_answered_at_once() -> None:
    desk, notebook = Desk(), Notebook(ApiKey.API_VERSIONS)
    desk.observers.put("notes", notebook)
    desk.ask(HELLO, 3)
    assert notebook.ends == ["ApiVersionsRequest → ApiVersionsResponse"]
    assert notebook.sizes == [len(frame_of(HELLO, 3))]


def test_a_watcher_is_not_called_for_an_api_that_it_does_not_watch() -> None:
    desk, notebook = Desk(), Notebook(ApiKey.FETCH)
    desk.observers.put("notes", notebook)
    desk.ask(HELLO, 3)
    assert (notebook.ends, notebook.sizes) == ([], [])


def test_watchers_can_be_added_and_removed_while_a_route_is_in_use() -> None:
    desk, notebook = Desk(), Notebook(ApiKey.API_VERSIONS)
    desk.ask(HELLO, 3)
    desk.observers.put("notes", notebook)
    desk.ask(HELLO, 3)
    desk.observers.put("notes", None)
    desk.ask(HELLO, 3)
    assert len(notebook.ends) == 1


def test_two_watchers_of_one_api_are_both_called() -> None:
    desk, first, second = Desk(), Notebook(ApiKey.API_VERSIONS), Notebook(ApiKey.API_VERSIONS)
    desk.observers.put("first", first)
    desk.observers.put("second", second)
    desk.ask(HELLO, 3)
    assert first.ends == second.ends == ["ApiVersionsRequest → ApiVersionsResponse"]


async def _respond() -> ListGroupsResponse:
    await asyncio.sleep(0)
    return ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[])


async def _fail() -> ListGroupsResponse:
    raise ValueError("broken")


def test_a_pending_response_ends_the_observation_when_it_is_built() -> None:
    async def run() -> list[str]:
        desk, notebook = Desk(), Notebook(ApiKey.LIST_GROUPS)
        desk.observers.put("notes", notebook)
        desk.replace_handler(ApiKey.LIST_GROUPS, 4, lambda *_: _respond())
        pending = desk.ask(ListGroupsRequest(), 4)
        assert isinstance(pending, PendingTask)
        assert notebook.ends == []
        assert notebook.waits == ["ListGroupsRequest"]
        ready = asyncio.Event()
        pending.when_ready(ready.set)
        await ready.wait()
        pending.frames()
        return notebook.ends

    assert asyncio.run(run()) == ["ListGroupsRequest → ListGroupsResponse"]


def test_a_request_whose_client_has_disconnected_is_reported_as_lost_once() -> None:
    desk, notebook = Desk(), Notebook(ApiKey.LIST_GROUPS)
    desk.observers.put("notes", notebook)
    desk.replace_handler(ApiKey.LIST_GROUPS, 4, lambda *_: Pending())
    pending = desk.ask(ListGroupsRequest(), 4)
    assert isinstance(pending, Pending)
    pending.cancel()
    pending.cancel()
    assert notebook.ends == ["ListGroupsRequest lost"]


def test_a_handler_that_fails_ends_the_observation() -> None:
    def explode(*_: object) -> Message:
        raise ValueError("broken")

    desk, notebook = Desk(), Notebook(ApiKey.LIST_GROUPS)
    desk.observers.put("notes", notebook)
    desk.replace_handler(ApiKey.LIST_GROUPS, 4, explode)
    with pytest.raises(ValueError, match="broken"):
        desk.ask(ListGroupsRequest(), 4)
    assert notebook.ends == ["ListGroupsRequest lost"]


def test_a_response_that_cannot_be_built_ends_the_observation() -> None:
    async def run() -> list[str]:
        desk, notebook = Desk(), Notebook(ApiKey.LIST_GROUPS)
        desk.observers.put("notes", notebook)
        desk.replace_handler(ApiKey.LIST_GROUPS, 4, lambda *_: _fail())
        pending = desk.ask(ListGroupsRequest(), 4)
        assert isinstance(pending, PendingTask)
        ready = asyncio.Event()
        pending.when_ready(ready.set)
        await ready.wait()
        with pytest.raises(ValueError, match="broken"):
            pending.frames()
        return notebook.ends

    assert asyncio.run(run()) == ["ListGroupsRequest lost"]


def test_a_request_that_nothing_watches_makes_no_call_for_observation() -> None:
    """The calls of one request are those of decoding, its context, its handler and its response."""
    desk = Desk()
    desk.replace_handler(ApiKey.LIST_GROUPS, 4, lambda *_: ANSWER)
    desk.ask(ListGroupsRequest(), 4)
    data, connection = frame_of(ListGroupsRequest(), 4), Connection()
    # The first one on a connection notes its header.
    desk.dispatcher.serve(connection, data, 0, len(data))
    calls: list[str] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_filename)

    # A collection would call what hypothesis and others have put into gc.callbacks.
    gc.disable()
    sys.setprofile(count)
    try:
        desk.dispatcher.serve(connection, data, 0, len(data))
    finally:
        sys.setprofile(None)
        gc.enable()
    own = [Path(one).name for one in calls if not one.startswith("<")]
    assert own == ["dispatch.py", "request_context.py", Path(__file__).name, "frames.py"]


ANSWER = ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[])
