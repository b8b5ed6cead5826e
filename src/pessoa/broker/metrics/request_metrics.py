"""What is counted while requests are served. A watcher: `begin` and `end` of each request.

Counters are plain numbers, by API (and version), by API and error, and by topic. Only topics of the image are counted,
so names that clients invent take no memory; those that were deleted are forgotten when metrics are asked for. The size
of a produced batch, and how many records it says it has, are read in `begin`: record data is gone when the response
comes.
"""

from __future__ import annotations

from collections import Counter
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from pessoa.base.ids import ZERO_UUID
from pessoa.broker.api_row import Counted
from pessoa.broker.message_fields import errors_of
from pessoa.broker.metrics.time_quantiles import TimeQuantiles
from pessoa.wire.api.fetch import FetchResponse
from pessoa.wire.api.offset_commit import OffsetCommitResponse
from pessoa.wire.api.produce import ProduceResponse
from pessoa.wire.api.share_acknowledge import ShareAcknowledgeResponse
from pessoa.wire.api.share_fetch import ShareFetchResponse
from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.ids import Uuid
    from pessoa.broker.api_row import AnyRow
    from pessoa.broker.observers import Begin
    from pessoa.net.pending import Observation
    from pessoa.wire.api.fetch import FetchRequest
    from pessoa.wire.api.produce import ProduceRequest
    from pessoa.wire.frames import Buffer
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message

# Of a record batch: where the number of its records stands.
_COUNT_START, _COUNT_END = 57, 61
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_NO_TOPIC = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_TOPIC_EXCEPTION}
)


class TopicCounts:
    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "failed_share_acknowledgements",
        "failed_share_fetches",
        "fetches",
        "messages_in",
        "produces",
        "share_acknowledgements",
        "share_fetches",
    )

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = self.bytes_rejected = 0
        self.produces = self.failed_produces = self.fetches = self.failed_fetches = 0
        self.share_fetches = self.failed_share_fetches = 0
        self.share_acknowledgements = self.failed_share_acknowledgements = 0


class ApiCounts:
    """The counts and times of one API. The times of requests that were answered at once are in `at_once`; those of
    requests that waited in `waited`, divided into `served` (in the handler) and `waiting` (after it)."""

    __slots__ = ("at_once", "by_version", "errors", "served", "throttled", "title", "waited", "waiting")

    def __init__(self, key: int) -> None:
        self.title = ApiKey(key).title
        self.by_version: dict[int, int] = {}
        self.errors: Counter[int] = Counter()
        now_ns = perf_counter_ns()
        self.at_once = TimeQuantiles(now_ns)
        self.waited, self.served, self.waiting = (TimeQuantiles(now_ns) for _ in range(3))
        # The throttle times of requests that were throttled.
        self.throttled = TimeQuantiles(now_ns)


class RequestMetrics:
    """Counts requests by API and topic. `name_of` returns the name of a topic by its id, `is_known` whether the image
    has a topic of this name."""

    def __init__(self, name_of: Callable[[Uuid], str | None], is_known: Callable[[str], bool]) -> None:
        self.apis: dict[int, ApiCounts] = {}
        self.topics: dict[str, TopicCounts] = {}
        # Bytes that followers have fetched.
        self.replicated_bytes = 0
        # Offsets that groups have committed.
        self.committed_offsets = 0
        self._name_of = name_of
        self._is_known = is_known

    def __repr__(self) -> str:
        return f"<RequestMetrics of {len(self.apis)} APIs and {len(self.topics)} topics>"

    def watches(self, row: AnyRow) -> bool:
        return True

    def begin_of(self, row: AnyRow) -> Begin:
        # Chosen here, once for a route: each request pays for the call alone.
        key, observe = int(row.key), _OBSERVATIONS[row.counted]

        def begin(context: RequestContext, request: Message, _size: int) -> Observation:
            counts = self.apis.get(key)
            if counts is None:
                counts = self.apis[key] = ApiCounts(key)
            versions = counts.by_version
            versions[context.version] = versions.get(context.version, 0) + 1
            return observe(self, counts, request)

        return begin

    def topic(self, name: str, topic_id: Uuid) -> TopicCounts | None:
        """Return the counts of a topic; None if it does not exist."""
        found = name or self._name_of(topic_id)
        if not found:
            return None
        counts = self.topics.get(found)
        if counts is None and self._is_known(found):
            counts = self.topics[found] = TopicCounts()
        return counts


class _Request:
    __slots__ = ("_began_ns", "_counts", "_waits_ns")

    def __init__(self, metrics: RequestMetrics, counts: ApiCounts, request: Message) -> None:
        self._counts = counts
        # Since when it waits; 0 for a request that is answered at once.
        self._waits_ns = 0
        self._began_ns = perf_counter_ns()

    def wait(self) -> None:
        self._waits_ns = perf_counter_ns()

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        self._finish(response, errors_of(response) if response is not None else ())

    def lose(self) -> None:
        self._finish(None, ())

    def _finish(self, response: Message | None, errors: list[int] | tuple[()]) -> None:
        now_ns, counts = perf_counter_ns(), self._counts
        if self._waits_ns:
            counts.waited.record(now_ns - self._began_ns, now_ns)
            counts.served.record(self._waits_ns - self._began_ns, now_ns)
            counts.waiting.record(now_ns - self._waits_ns, now_ns)
        else:
            counts.at_once.record(now_ns - self._began_ns, now_ns)
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms:
            counts.throttled.record(throttle_ms * 1_000_000, now_ns)
        if errors:
            counts.errors.update(errors)


class _OffsetCommit(_Request):
    __slots__ = ("_metrics",)

    def __init__(self, metrics: RequestMetrics, counts: ApiCounts, request: Message) -> None:
        super().__init__(metrics, counts, request)
        self._metrics = metrics

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        super().end(response, frames)
        if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
            for topic in response.topics:
                self._metrics.committed_offsets += len([one for one in topic.partitions if not one.error_code])


class _Share(_Request):
    """Counts ShareFetch and ShareAcknowledge, which name topics by their ids."""

    __slots__ = ("_metrics",)

    def __init__(self, metrics: RequestMetrics, counts: ApiCounts, request: Message) -> None:
        super().__init__(metrics, counts, request)
        self._metrics = metrics

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        super().end(response, frames)
        if isinstance(response, ShareFetchResponse):
            self._count_fetched(response)
        elif isinstance(response, ShareAcknowledgeResponse):
            for topic in response.responses:
                counts = self._metrics.topic("", topic.topic_id)
                if counts is not None:
                    counts.share_acknowledgements += len(topic.partitions)
                    counts.failed_share_acknowledgements += len([one for one in topic.partitions if one.error_code])

    def _count_fetched(self, response: ShareFetchResponse) -> None:
        for topic in response.responses:
            counts = self._metrics.topic("", topic.topic_id)
            if counts is None:
                continue
            refused = len([one for one in topic.partitions if one.acknowledge_error_code])
            counts.share_fetches += len(topic.partitions)
            counts.failed_share_fetches += len([one for one in topic.partitions if one.error_code])
            counts.share_acknowledgements += refused
            counts.failed_share_acknowledgements += refused
            counts.bytes_out += sum([len(one.records) for one in topic.partitions])


# The name and id of a topic, a partition, the size of the batch, and how many records it says it has.
Batch = tuple[str, "Uuid", int, int, int]


class _Produce(_Request):
    __slots__ = ("_batches", "_metrics")

    def __init__(self, metrics: RequestMetrics, counts: ApiCounts, request: ProduceRequest) -> None:
        self._metrics = metrics
        self._batches: list[Batch] = [
            (topic.name, topic.topic_id, data.index, len(records), _record_count(records))
            for topic in request.topic_data
            for data in topic.partition_data
            if (records := data.records) is not None
        ]
        self._counts = counts
        self._waits_ns = 0
        self._began_ns = perf_counter_ns()

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        errors = errors_of(response) if response is not None else ()
        self._finish(response, errors)
        if errors:
            assert isinstance(response, ProduceResponse)
            self._count_some(response)
            return
        metrics = self._metrics
        for name, topic_id, _, size, count in self._batches:
            topic = metrics.topics.get(name) or metrics.topic(name, topic_id)
            if topic is not None:
                topic.produces += 1
                topic.bytes_in += size
                topic.messages_in += count

    def _count_some(self, response: ProduceResponse) -> None:
        """Count the batches of a request of which some were refused, each by its own error."""
        errors = {
            (_topic_key(topic.name, topic.topic_id), one.index): one.error_code
            for topic in response.responses
            for one in topic.partition_responses
        }
        for name, topic_id, index, size, count in self._batches:
            error = errors.get((_topic_key(name, topic_id), index), 0)
            topic = None if error in _NO_TOPIC else self._metrics.topic(name, topic_id)
            if topic is None:
                continue
            topic.produces += 1
            if not error:
                topic.bytes_in += size
                topic.messages_in += count
                continue
            topic.failed_produces += 1
            if error in _TOO_LARGE:
                topic.bytes_rejected += size


def _topic_key(name: str, topic_id: Uuid) -> str | Uuid:
    """Return what identifies a topic both in a request and in its response: from version 13 on its id, since the
    handler puts the name into the response and the request has none."""
    return name if topic_id == ZERO_UUID else topic_id


def _record_count(records: memoryview) -> int:
    """Return the record count in the header of a batch; 0 if it is no batch."""
    count = int.from_bytes(records[_COUNT_START:_COUNT_END], "big", signed=True)
    return max(0, count)


class _Fetch(_Request):
    __slots__ = ("_is_follower", "_metrics")

    def __init__(self, metrics: RequestMetrics, counts: ApiCounts, request: FetchRequest) -> None:
        self._counts = counts
        self._waits_ns = 0
        self._began_ns = perf_counter_ns()
        self._metrics = metrics
        state = request.replica_state
        self._is_follower = (request.replica_id if state is None else state.replica_id) >= 0

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        super().end(response, frames)
        if not isinstance(response, FetchResponse):
            return
        for topic in response.responses:
            size = sum([len(one.records) for one in topic.partitions if one.records is not None])
            if self._is_follower:
                self._metrics.replicated_bytes += size
                continue
            failed = len([one for one in topic.partitions if one.error_code])
            if failed == len(topic.partitions):
                # It may not exist; if it does, the errors of the API tell.
                continue
            counts = self._metrics.topic(topic.topic, topic.topic_id)
            if counts is not None:
                counts.fetches += len(topic.partitions)
                counts.failed_fetches += failed
                counts.bytes_out += size


# The request of each is of the API in whose row it is named.
_OBSERVATIONS: Final[dict[Counted, Callable[[RequestMetrics, ApiCounts, Any], Observation]]] = {
    Counted.REQUESTS: _Request,
    Counted.PRODUCED: _Produce,
    Counted.FETCHED: _Fetch,
    Counted.COMMITTED: _OffsetCommit,
    Counted.SHARED: _Share,
}
