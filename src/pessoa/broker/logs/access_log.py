"""The access log: a line for every request, when its response is made.

    {"time":"2026-11-17T04:25:06.123Z","host":"10.0.0.7","principal":"User:ann","client_id":"shop","listener":"PLAINTEXT",
     "api":"Produce","version":12,"topics":["orders"],"bytes_in":812,"bytes_out":66,"ms":0.41,"result":"NONE"}

`result` is NONE, or the errors of the response by name, with their number where they are several; NO_RESPONSE where
the client has gone before there was one, or the request failed (the error log has why). The time is that of serving:
from the whole request in memory to its response. A fetch within a session names no topics, then those of the response
stand here. On INFO the log has only what did not succeed.
"""

from __future__ import annotations

from collections import Counter
from time import perf_counter_ns
from typing import TYPE_CHECKING

from pessoa.broker.logs.log_lines import shortened
from pessoa.broker.message_fields import error_name, errors_of, topics_of
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.ids import Uuid
    from pessoa.base.json_value import JsonValue
    from pessoa.broker.api_row import AnyRow
    from pessoa.broker.logs.log_writer import LogWriter
    from pessoa.broker.observers import Begin
    from pessoa.net.pending import Observation
    from pessoa.wire.frames import Buffer
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message

# A request may name thousands; behind these the line has their number.
MAX_TOPICS = 16
NO_RESPONSE = "NO_RESPONSE"
_TITLES = {int(one): one.title for one in ApiKey}


class AccessLog:
    """Logs requests. `name_of` returns the name of a topic by its id."""

    def __init__(self, writer: LogWriter, name_of: Callable[[Uuid], str | None], *, failed_only: bool) -> None:
        self.writer = writer
        self.name_of = name_of
        self.failed_only = failed_only

    def __repr__(self) -> str:
        return f"<AccessLog of {self.writer!r}{', failed requests only' if self.failed_only else ''}>"

    def watches(self, row: AnyRow) -> bool:
        return True

    def begin_of(self, row: AnyRow) -> Begin:
        return self.begin

    def begin(self, context: RequestContext, request: Message, size: int) -> Observation:
        return _Access(self, context, topics_of(request), size)


class _Access:
    __slots__ = ("_began_ns", "_context", "_log", "_size", "_topics")

    def __init__(self, log: AccessLog, context: RequestContext, topics: list[str | Uuid], size: int) -> None:
        self._log = log
        self._context = context
        self._topics = topics
        self._size = size
        self._began_ns = perf_counter_ns()

    def wait(self) -> None: ...

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        errors = errors_of(response) if response is not None else []
        if errors or not self._log.failed_only:
            topics = self._topics or (topics_of(response) if response is not None else [])
            self._write(topics, sum(map(len, frames or ())), _result(errors))

    def lose(self) -> None:
        self._write(self._topics, 0, NO_RESPONSE)

    def _write(self, topics: list[str | Uuid], response_size: int, result: str) -> None:
        context = self._context
        # Some messages have the name and the id of a topic.
        shown: list[JsonValue] = list(dict.fromkeys(map(self._name, topics[:MAX_TOPICS])))
        entry: dict[str, JsonValue] = {
            **caller_fields(context),
            "api": _TITLES[context.api_key],
            "version": context.version,
            "topics": shown,
        }
        if len(topics) > MAX_TOPICS:
            entry["more_topics"] = len(topics) - MAX_TOPICS
        entry |= {
            "bytes_in": self._size,
            "bytes_out": response_size,
            "ms": round((perf_counter_ns() - self._began_ns) / 1_000_000, 3),
            "result": result,
        }
        self._log.writer.write(entry)

    def _name(self, topic: str | Uuid) -> str:
        return shortened(topic if isinstance(topic, str) else self._log.name_of(topic) or str(topic))


def caller_fields(context: RequestContext) -> dict[str, JsonValue]:
    """Return the fields that say, in every log, which client has made a request."""
    return {
        "host": context.client_host,
        "principal": shortened(context.principal),
        "client_id": None if context.client_id is None else shortened(context.client_id),
        "listener": context.listener,
    }


def _result(errors: list[int]) -> str:
    if not errors:
        return "NONE"
    counts = Counter(errors)
    return ",".join(error_name(code) if count == 1 else f"{error_name(code)}×{count}" for code, count in counts.items())
