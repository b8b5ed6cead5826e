"""A request that names very much is served in slices, and others have their turn between them.

A request may name a hundred thousand groups, and a broker has one event loop: what takes ten microseconds for each
would keep everybody else waiting for a second. Where the parts of a request have nothing to do with each other, a large
one is taken apart, its parts are served one after the other, and their answers are put together. So a single slice is
what holds the loop, besides reading the request and writing the answer.

What is named twice in different slices is answered as if it were in different requests, unless the answer for it may
be large: then it is asked for once. A request that breaks the rules of its version is refused slice by slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from copy import copy
from typing import Any, NamedTuple

from pessoa.wire.catalogue import ApiKey
from pessoa.wire.schema import Message

SLICE_COUNT = 2_000
# Two thousand of anything take more; whoever sends less is not looked at.
SLICED_FROM_BYTES = 8 * 1024


class Sliced(NamedTuple):
    """The list of a request that is cut, and that of the response in which its parts are answered."""

    asked: str
    answered: str
    # What an element is, if it is to be asked for once.
    identity: Callable[[Any], Hashable] | None = None
    # What the list is called in older versions, if it is another.
    older: str = ""

    def list_of(self, request: Message) -> str:
        return self.older if self.older and getattr(request, self.older) else self.asked


_RESOURCES = Sliced("resources", "responses")

SLICED: dict[int, Sliced] = {
    ApiKey.METADATA: Sliced("topics", "topics", lambda topic: (topic.name, topic.topic_id)),
    ApiKey.FIND_COORDINATOR: Sliced("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_GROUPS: Sliced("groups", "groups", lambda group: group),
    ApiKey.DELETE_GROUPS: Sliced("groups_names", "results"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Sliced("group_ids", "groups", lambda group: group),
    ApiKey.DELETE_TOPICS: Sliced("topics", "responses", older="topic_names"),
    ApiKey.CREATE_PARTITIONS: Sliced("topics", "results"),
    ApiKey.ALTER_CONFIGS: _RESOURCES,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _RESOURCES,
    ApiKey.WRITE_TXN_MARKERS: Sliced("markers", "markers"),
}

Handle = Callable[[Message], Message | Awaitable[Message | None] | None]


def is_large(key: int, request: Message) -> bool:
    sliced = SLICED.get(key)
    return sliced is not None and len(getattr(request, sliced.list_of(request)) or ()) > SLICE_COUNT


async def serve_in_slices(key: int, request: Message, handle: Handle) -> Message | None:
    """The answer to all of it."""
    sliced = SLICED[key]
    name = sliced.list_of(request)
    asked: list[Any] = getattr(request, name)
    if sliced.identity is not None:
        asked = list({sliced.identity(one): one for one in asked}.values())
    whole: Message | None = None
    for start in range(0, len(asked), SLICE_COUNT):
        part = copy(request)
        setattr(part, name, asked[start : start + SLICE_COUNT])
        reply = handle(part)
        if reply is not None and not isinstance(reply, Message):
            reply = await reply
        if reply is None:
            return None
        if whole is None:
            whole = reply
        else:
            getattr(whole, sliced.answered).extend(getattr(reply, sliced.answered))
        await asyncio.sleep(0)
    return whole
