"""Answers that may be there at once or come later, and asking a shard for one.

Most requests are answered within the call: then no task, no future and no turn of the loop is spent on them.
`Answer[M]` is either the message or an awaitable of it, and these functions go on with either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from pessoa.coordinator.runtime import CoordinatorRuntime, Decide
from pessoa.coordinator.shard import Shard, public_error
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Answer, Caller
from pessoa.wire.schema import Message, Struct

M = TypeVar("M", bound=Message)
A = TypeVar("A", bound=Struct)
B = TypeVar("B", bound=Struct)
S = TypeVar("S", bound=Shard)
R = TypeVar("R", bound=Message)
# Makes the error response of an API.
Failed: TypeAlias = Callable[[ErrorCode, str | None], M]


def then(answer: Answer[A], change: Callable[[A], B]) -> Answer[B]:
    return change(answer) if isinstance(answer, Struct) else _then(answer, change)


async def _then(answer: Awaitable[A], change: Callable[[A], B]) -> B:
    return change(await answer)


def all_of(answers: Sequence[Answer[A]], join: Callable[[list[A]], B]) -> Answer[B]:
    ready = [answer for answer in answers if isinstance(answer, Struct)]
    return join(ready) if len(ready) == len(answers) else _all_of(answers, join)


async def _all_of(answers: Sequence[Answer[A]], join: Callable[[list[A]], B]) -> B:
    # One after the other: they are all under way, and the slowest decides.
    return join([answer if isinstance(answer, Struct) else await answer for answer in answers])


def ask(
    runtime: CoordinatorRuntime[S],
    partition: int,
    decide: Decide[S, R],
    request: R,
    context: Caller,
    kind: type[M],
    failed: Failed[M],
    guard: object = None,
) -> Answer[M]:
    """Return the response of `decide`, a method of the partition's shard; for a refusal, what `failed` returns."""
    try:
        answer = runtime.submit(partition, decide, request, context, guard)
    except Refusal as refusal:
        return failed(public_error(refusal.code), refusal.message)
    if isinstance(answer, Message):
        assert isinstance(answer, kind)
        return answer
    return _later(answer, kind, failed)


async def _later(answer: Awaitable[Message], kind: type[M], failed: Failed[M]) -> M:
    try:
        message = await answer
    except Refusal as refusal:
        return failed(public_error(refusal.code), refusal.message)
    assert isinstance(message, kind)
    return message
