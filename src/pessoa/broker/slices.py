"""Large requests are served in slices, and other requests are served between two slices.

A request may name a hundred thousand groups, and a broker has one event loop: what takes ten microseconds for each
would keep all other clients waiting for a second. Where the parts of a request have nothing to do with each other, a
large one is taken apart, its parts are served one after the other, and their answers are put together. So a single
slice is what holds the loop, besides reading the request and writing the answer.

Most of these lists are flat. Those of partitions stand within topics (`within`): a slice then has as many partitions,
and a topic that is cut is put together again in the answer.

What is named twice in different slices is answered as if it were in different requests, unless the answer for it may
be large: then it is asked for once. A request that breaks the rules of its version is refused slice by slice. A fetch
has a session and a limit of bytes for all of it, so it goes through its partitions in slices itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from copy import copy
from typing import Any, NamedTuple, Protocol

from pessoa.wire.request_context import Answer
from pessoa.wire.schema import Message

SLICE_COUNT = 2_000
# Two thousand of anything take more: the elements of a smaller request are not counted.
SLICED_FROM_BYTES = 8 * 1024


class Sliced(NamedTuple):
    """The list of a request that is divided into slices, and the list of the response with their results."""

    asked: str
    answered: str
    # What an element is, if it is to be asked for once.
    identity: Callable[[Any], Hashable] | None = None
    # What the list is called in older versions, if it is another.
    older: str = ""
    # Where the elements of the list are topics: their lists of partitions in the request, and in the response.
    within: tuple[str, str] | None = None
    # Whether a slice need not wait for the answer to the one before it, which may take as long as the request may.
    waits_together: bool = False

    def list_of(self, request: Message) -> str:
        return self.older if self.older and getattr(request, self.older) else self.asked

    def is_large(self, request: Message) -> bool:
        elements = getattr(request, self.list_of(request)) or ()
        count = len(elements)
        if self.within is not None and count <= SLICE_COUNT:
            # A loop: asked for every produce, where a generator takes three times as long.
            partitions = self.within[0]
            for one in elements:
                count += len(getattr(one, partitions))
        return count > SLICE_COUNT


Handle = Callable[[Message], Answer[Message | None]]


async def serve_in_slices(sliced: Sliced, request: Message, handle: Handle) -> Message | None:
    """Return the response to the whole request; None if the client wants none (acks=0)."""
    replies: list[Message | asyncio.Task[Message | None] | None] = []
    try:
        for part in _parts(sliced, request):
            reply = handle(part)
            if reply is None or isinstance(reply, Message):
                replies.append(reply)
            elif sliced.waits_together:
                replies.append(asyncio.get_running_loop().create_task(_wait_for(reply)))
            else:
                replies.append(await reply)
            await asyncio.sleep(0)
        whole: Message | None = None
        for number, one in enumerate(replies):
            answer = await one if isinstance(one, asyncio.Task) else one
            if answer is None:
                return None
            whole = answer if number == 0 else _append_answer(sliced, whole, answer)
        return whole
    finally:
        for one in replies:
            if isinstance(one, asyncio.Task):
                one.cancel()


async def _wait_for(reply: Awaitable[Message | None]) -> Message | None:
    return await reply


def _parts(sliced: Sliced, request: Message) -> Iterator[Message]:
    """Yield requests that together ask for what the request asks for."""
    name = sliced.list_of(request)
    asked: list[object] = getattr(request, name)
    if sliced.identity is not None:
        asked = list({sliced.identity(one): one for one in asked}.values())
    slices = _flat_slices(asked) if sliced.within is None else _nested_slices(asked, sliced.within[0])
    for elements in slices:
        part = copy(request)
        setattr(part, name, elements)
        yield part


def _flat_slices(asked: list[object]) -> Iterator[list[object]]:
    for start in range(0, len(asked), SLICE_COUNT):
        yield asked[start : start + SLICE_COUNT]


def _nested_slices(topics: list[object], within: str) -> Iterator[list[object]]:
    """Yield topics with at most so many partitions in all; a topic may be in several slices."""
    slice_of: list[object] = []
    left = SLICE_COUNT
    for topic in topics:
        partitions: list[object] = getattr(topic, within)
        start = 0
        while True:
            piece = copy(topic)
            taken = partitions[start : start + left]
            setattr(piece, within, taken)
            slice_of.append(piece)
            start += len(taken)
            # A topic without partitions takes its time as well.
            left -= len(taken) + 1
            if left <= 0:
                yield slice_of
                slice_of, left = [], SLICE_COUNT
            if start >= len(partitions):
                break
    if slice_of:
        yield slice_of


class _Endpoint(Protocol):
    """A node endpoint in a Produce or Fetch response: the address of a leader."""

    node_id: int


def _append_answer(sliced: Sliced, whole: Message | None, answer: Message) -> Message:
    """Append the response to the next slice to that of the earlier ones."""
    assert whole is not None
    answered: list[object] = getattr(whole, sliced.answered)
    more: list[object] = getattr(answer, sliced.answered)
    if sliced.within is not None and answered and more and _is_same_topic(answered[-1], more[0]):
        getattr(answered[-1], sliced.within[1]).extend(getattr(more[0], sliced.within[1]))
        more = more[1:]
    answered.extend(more)
    endpoints: list[_Endpoint] = getattr(whole, "node_endpoints", [])
    known = {one.node_id for one in endpoints}
    endpoints += [one for one in getattr(answer, "node_endpoints", ()) if one.node_id not in known]
    return whole


def _is_same_topic(one: object, other: object) -> bool:
    names = (getattr(one, "name", None) or getattr(one, "topic", None), getattr(one, "topic_id", None))
    return names == (getattr(other, "name", None) or getattr(other, "topic", None), getattr(other, "topic_id", None))
