"""A group shard without the runtime: no event loop, a log in memory, a manual clock.

`Bench` does what the runtime does in the simplest case: every output is appended and committed at once, unless the test
holds commits back. Records are kept as bytes, so a reload decodes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.coordinator.groups.group_shard import GroupShard
from pessoa.coordinator.groups.share.share_initialisation import InitializeShares
from pessoa.coordinator.groups.streams.streams_heartbeat import CreateInternalTopics
from pessoa.coordinator.record_batches import NO_PRODUCER, StoredRecord, decode_batch, encode_batch
from pessoa.coordinator.shard import CoordinatorRecord, Output, Reply
from pessoa.records.batch import RecordBatch
from pessoa.records.stamping import stamp
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message
from pessoa.wire.stored.record_framing import GROUP_LOG
from tests.support.shards import decide
from tests.unit.coordinator.images import FakeImage, change, image

M = TypeVar("M", bound=Message)

START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Context:
    version: int = 9
    client_id: str | None = "client"
    client_host: str = "10.0.0.1"
    principal: str = "User:ANONYMOUS"
    api_key: int = -1


class Bench:
    def __init__(self, config: GroupCoordinatorConfig | None = None, metadata: FakeImage | None = None) -> None:
        self.config = config or GroupCoordinatorConfig()
        self.image = metadata or image(orders=3, payments=2)
        self.now_ms = START_MS
        self.written: list[CoordinatorRecord] = []
        self._batches: list[bytearray] = []
        self.end_offset = 0
        self.replies: dict[int, Reply] = {}
        self.notes: list[str] = []
        self.refuses_with: ErrorCode | None = None
        self.holds_back = False
        self.held: list[Output] = []
        # What the share coordinator was asked to initialise.
        self.asked: list[InitializeShares] = []
        # Which topics of streams groups were found missing, and what is said of earlier tries to create them.
        self.missing_topics: list[CreateInternalTopics] = []
        self.creation_trouble: list[str] = []
        self._token = 0
        self._ids = 0
        self.shard = self._new_shard()
        self.perform(self.shard.on_loaded(self.image, self.now_ms))

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            self.config,
            self.image,
            self._new_uuid,
            initialize_shares=self.asked.append,
            create_topics=self._note_missing_topics,
        )

    def _note_missing_topics(self, asked: CreateInternalTopics) -> list[str]:
        self.missing_topics.append(asked)
        return self.creation_trouble

    def _new_uuid(self) -> Uuid:
        self._ids += 1
        return Uuid.of(self._ids)

    # ── requests ──

    def send(self, request: Message, version: int = 9, client_id: str | None = "client", host: str = "10.0.0.1") -> int:
        """Send a request to the shard; return its token, with which `reply` and `answer` find the response."""
        self._token += 1
        token = self._token
        context = Context(version, client_id, host)
        self.perform(decide(self.shard, request, context, token, self.now_ms))
        return token

    def answer(self, kind: type[M], token: int) -> M:
        reply = self.replies[token]
        assert isinstance(reply, kind), reply
        return reply

    def ask(self, kind: type[M], request: Message, version: int = 9, client_id: str | None = "client") -> M:
        return self.answer(kind, self.send(request, version, client_id))

    def refusal(self, request: Message, version: int = 9) -> Refusal:
        reply = self.replies[self.send(request, version)]
        assert isinstance(reply, Refusal), reply
        return reply

    def is_waiting(self, token: int) -> bool:
        return token not in self.replies

    # ── what the runtime does ──

    def perform(self, output: Output) -> None:
        self.notes += output.notes
        if output.records:
            if self.refuses_with is not None:
                self._finish(output, Refusal(self.refuses_with))
                return
            self._write(output)
            offset = self.end_offset - len(output.records)
            producer = output.producer or NO_PRODUCER
            if output.replays:
                for record in output.records:
                    self.shard.replay(record.key, record.value, offset, producer.id, producer.epoch)
                    offset += 1
            elif output.applied is not None:
                output.applied()
        if self.holds_back:
            self.held.append(output)
        else:
            self._finish(output, None)

    def _write(self, output: Output) -> None:
        batch = encode_batch(output.records, self.now_ms, output.producer)
        stamp(RecordBatch(batch), self.end_offset, 0)
        self._batches.append(batch)
        self.written += output.records
        self.end_offset += len(output.records)

    def commit(self) -> None:
        """Move the high watermark to the log end, which answers the requests that were held back."""
        self.holds_back = False
        held, self.held = self.held, []
        for output in held:
            self._finish(output, None)

    def _finish(self, output: Output, refusal: Refusal | None) -> None:
        for token, reply in output.replies:
            assert token not in self.replies, f"request {token} is answered twice"
            self.replies[token] = reply if refusal is None else refusal
        if output.on_outcome is not None:
            code = ErrorCode.NONE if refusal is None else refusal.code
            self.perform(output.on_outcome(code, self.now_ms))

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.shard.replay_end_transaction(producer_id, 0, committed)

    def pass_time(self, duration_ms: int) -> None:
        """Advance the clock, and run every timer at its time."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.perform(self.shard.expire(self.now_ms))
        self.now_ms = end_ms

    def publish(self, new: FakeImage) -> None:
        self.image, delta = change(self.image, new)
        self.perform(self.shard.on_image(self.image, delta, self.now_ms))

    def reload(self, markers: Sequence[tuple[int, int, bool]] = ()) -> None:
        """Replace the shard by a new one that has replayed the log, as after a failover.

        `markers` are the ends of transactions, as (log end offset when it came, producer, whether it was committed).
        """
        self.shard = self.replayed(markers)
        self.perform(self.shard.on_loaded(self.image, self.now_ms))

    def replayed(self, markers: Sequence[tuple[int, int, bool]] = ()) -> GroupShard:
        """Return a new shard that has replayed the log."""
        shard = self._new_shard()
        ends = list(markers)
        for batch in map(RecordBatch, self._batches):
            while ends and ends[0][0] <= batch.base_offset:
                _, producer_id, committed = ends.pop(0)
                shard.replay_end_transaction(producer_id, 0, committed)
            for stored in decode_batch(GROUP_LOG, batch):
                assert isinstance(stored, StoredRecord)
                shard.replay(stored.key, stored.value, stored.offset, batch.producer_id, batch.producer_epoch)
        for _, producer_id, committed in ends:
            shard.replay_end_transaction(producer_id, 0, committed)
        return shard

    def replayed_compacted(self, clean_end: int, keeps_tombstones: bool) -> GroupShard:
        """Return a new shard that has replayed the log after a compaction of its first `clean_end` records."""
        stored = [
            each
            for batch in map(RecordBatch, self._batches)
            for each in decode_batch(GROUP_LOG, batch)
            if isinstance(each, StoredRecord)
        ]
        last = {repr(each.key): each.offset for each in stored[:clean_end]}
        shard = self._new_shard()
        for each in stored:
            is_clean = each.offset < clean_end
            if is_clean and (last[repr(each.key)] != each.offset or (each.value is None and not keeps_tombstones)):
                continue
            shard.replay(each.key, each.value, each.offset, -1, -1)
        return shard

    def records_since(self, count: int) -> list[CoordinatorRecord]:
        return self.written[count:]

    @property
    def written_count(self) -> int:
        return len(self.written)

    def written_values(self, kind: type[M]) -> Iterator[M]:
        return (record.value for record in self.written if isinstance(record.value, kind))
