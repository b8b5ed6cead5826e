"""Partition logs, compared with lists, in random sequences of operations, crashes and power losses.

Each run is a sequence of steps that Hypothesis chooses: batches of every kind as leader and as follower, reads,
look-ups, rolling, truncation, deletion, retention, compaction, flushes of which only a part was done, clean shutdowns,
kills of the process, power losses, and files that are damaged while the log is stopped. `log_model` has what must be
present after each of them and what may be, `log_comparison` compares. The partitions are in one `LogDirectory`, so its
checkpoints and its marker of a clean shutdown are tested as well.

A failure prints the steps, shrunk, and the blob that replays them. `make fuzz` runs many times more of them.

Verification of transactions (KIP-890) is switched off: it is between a broker and a coordinator, and `producer_state`
has its own model for it. The clock stays within a day, so that no producer expires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pessoa.base.ids import Uuid
from pessoa.log.checkpoints import TopicPartition
from pessoa.log.directory import LogDirectory
from pessoa.log.durable_log import Flush
from pessoa.log.log_config import COMPACT, DELETE, LogConfig
from pessoa.log.partition_log import Appended, OffsetOutOfRange, PartitionLog, ReadUpTo
from pessoa.log.producer_entry import BatchMetadata
from pessoa.log.producer_state import ProducerRefused
from pessoa.log.retention import expired_segments
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.batch import TimestampType
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record
from pessoa.wire.errors import ErrorCode
from tests.property.log_compaction import check_compaction, clean
from tests.property.log_comparison import (
    Stop,
    adopt,
    assert_same,
    check_newest,
    check_offsets,
    check_producers,
    check_read,
    check_time,
    check_whole,
    fingerprint,
    forget_older_batches,
    found_batches,
)
from tests.property.log_damage import CHECKPOINTS, DAMAGEABLE, damage
from tests.property.log_model import LogModel, Producer, Stored

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PRODUCE_VERSION = 12
ROOT = "/data"
SEQUENCES = 1 << 31

policies = st.sampled_from([frozenset({DELETE}), frozenset({COMPACT}), frozenset({COMPACT, DELETE})])
configs = st.builds(
    LogConfig().but,
    segment_bytes=st.sampled_from([300, 1000, 1000, 5000, 30_000]),
    segment_ms=st.sampled_from([HOUR_MS // 2, 24 * HOUR_MS]),
    index_interval_bytes=st.sampled_from([0, 100, 400]),
    segment_index_bytes=st.sampled_from([48, 4096]),
    retention_ms=st.sampled_from([HOUR_MS, 24 * HOUR_MS]),
    retention_bytes=st.sampled_from([-1, -1, 2000]),
    cleanup_policy=policies,
    delete_retention_ms=st.sampled_from([0, HOUR_MS // 4]),
    message_timestamp_type=st.sampled_from([TimestampType.CREATE_TIME] * 3 + [TimestampType.LOG_APPEND_TIME]),
)
which = st.integers(0, 3)
producer_ids = st.integers(0, 2)
# How many records with values of which size.
shapes = st.sampled_from([(1, 5), (1, 5), (2, 20), (3, 10), (4, 100), (1, 700), (2, 3000)])
codecs = st.sampled_from(list(Codec))
# The age of a batch; None has no timestamp at all.
ages_ms = st.sampled_from([0, 0, 1, 1000, HOUR_MS // 4, -1000])
fractions = st.integers(0, 100)
seeds = st.integers(0, 1 << 30)


class Partition:
    """A real log and its model."""

    def __init__(self, log: PartitionLog, model: LogModel) -> None:
        self.log = log
        self.model = model
        self.flush: tuple[Flush, int, int] | None = None

    def at(self, percent: int, low: int, high: int) -> int:
        """Return an offset between two others."""
        return low + (high - low) * percent // 100 if high > low else low

    def boundary(self, percent: int) -> int:
        """Return the base offset of one of the visible batches, or the log end offset."""
        starts = [batch.base_offset for batch in self.model.visible()] + [self.model.log_end]
        return starts[(len(starts) - 1) * percent // 100]


def answer_of(append: Callable[[], Appended | int]) -> Appended | int | ErrorCode:
    """Return the result of an append, or the error with which it is refused."""
    try:
        return append()
    except (ProducerRefused, InvalidBatch) as refusal:
        return refusal.error


class LogMachine(RuleBasedStateMachine):
    @initialize(config=configs, seed=seeds)
    def begin(self, config: LogConfig, seed: int) -> None:
        self.now_ms = START_MS
        self.epoch = 0
        self.serial = 0
        self.config = config.but(transaction_partition_verification_enable=False)
        self.disk = SimulatedDisk(seed, now_ms=lambda: self.now_ms)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.directory = LogDirectory(self.disk, ROOT)
        self.directory.open(lambda _: self.config, self.now_ms)
        self.create()

    @precondition(lambda self: len(self.partitions) < 3)
    @rule()
    def create(self) -> None:
        key = ("orders", len(self.partitions))
        log = self.created(key)
        is_log_append_time = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        self.partitions[key] = Partition(log, LogModel(is_log_append_time=is_log_append_time))

    def created(self, key: TopicPartition) -> PartitionLog:
        return self.directory.create(*key, Uuid.of(1000 + key[1]), self.config, self.now_ms)

    @rule()
    def sync_creations(self) -> None:
        created, self.directory.unsynced_creations = self.directory.unsynced_creations, []
        self.directory.sync_creations(created)
        for one in created:
            one.sync_creation = None

    def pick(self, number: int) -> Partition:
        partitions = list(self.partitions.values())
        return partitions[number % len(partitions)]

    def records(self, shape: tuple[int, int], age_ms: int, first_offset: int = 0) -> list[Record]:
        """Return records that no other batch has."""
        self.serial += 1
        count, size = shape
        return [
            Record(
                first_offset + number,
                self.now_ms - age_ms + number,
                b"key %d" % (self.serial % 5),
                # A tombstone now and then.
                (b"%d/%d " % (self.serial, number)).ljust(size, b".") if self.serial % 7 else None,
            )
            for number in range(count)
        ]

    # ---- time ----

    @rule(minutes=st.integers(1, 15))
    def let_time_pass(self, minutes: int) -> None:
        if self.now_ms < START_MS + 20 * HOUR_MS:
            self.now_ms += minutes * 60_000

    @rule()
    def begin_a_leader_epoch(self) -> None:
        self.epoch += 1

    # ---- appending ----

    @rule(number=which, shape=shapes, codec=codecs, age_ms=ages_ms)
    def append(self, number: int, shape: tuple[int, int], codec: Codec, age_ms: int) -> None:
        self.lead(self.pick(number), build_batch(self.records(shape, age_ms), codec=codec))

    @rule(number=which, shape=shapes)
    def append_without_timestamps(self, number: int, shape: tuple[int, int]) -> None:
        records = [record._replace(timestamp=-1) for record in self.records(shape, 0)]
        self.lead(self.pick(number), build_batch(records))

    @rule(
        number=which,
        producer_id=producer_ids,
        shape=shapes,
        codec=codecs,
        epoch_step=st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        sequence_step=st.sampled_from([0, 0, 0, 0, 0, 0, 1, -2, SEQUENCES - 2]),
        is_transactional=st.booleans(),
    )
    def append_idempotent(
        self,
        number: int,
        producer_id: int,
        shape: tuple[int, int],
        codec: Codec,
        epoch_step: int,
        sequence_step: int,
        is_transactional: bool,
    ) -> None:
        partition = self.pick(number)
        producer = partition.model.producers().get(producer_id, Producer(epoch=0))
        epoch = max(0, producer.epoch + epoch_step)
        batch = build_batch(
            self.records(shape, 0),
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=((producer.next_sequence if epoch == producer.epoch else 0) + sequence_step) % SEQUENCES,
            transactional=is_transactional,
        )
        self.lead(partition, batch)

    @rule(number=which, producer_id=producer_ids, back=st.integers(0, 6))
    def append_again(self, number: int, producer_id: int, back: int) -> None:
        """Append an old batch again, as a producer without a response does."""
        partition = self.pick(number)
        sent = [one for one in partition.model.memory if one.producer_id == producer_id and one.marker is None]
        if back < len(sent):
            again = sent[-1 - back].header
            records = [record._replace(offset=n) for n, record in enumerate(sent[-1 - back].records)]
            self.lead(
                partition,
                build_batch(
                    records,
                    producer_id=producer_id,
                    producer_epoch=again.producer_epoch,
                    base_sequence=again.base_sequence,
                    transactional=again.is_transactional,
                ),
            )

    def lead(self, partition: Partition, data: bytearray) -> None:
        log, model = partition.log, partition.model
        expected = model.refusal_of(data)
        if len(data) > self.config.segment_bytes:
            expected = ErrorCode.RECORD_LIST_TOO_LARGE
        note(f"the model expects {expected or 'an append'} at {model.log_end}")
        answer = answer_of(
            lambda: log.append_as_leader(memoryview(bytearray(data)), self.epoch, self.now_ms, PRODUCE_VERSION)
        )
        if isinstance(expected, BatchMetadata):
            assert isinstance(answer, Appended)
            assert answer.is_duplicate
            assert (answer.base_offset, answer.last_offset) == (expected.first_offset, expected.last_offset)
            return
        if expected is not None:
            assert answer == expected
            return
        stored = model.lead(data, self.epoch, self.now_ms)
        time_ms = self.now_ms if model.is_log_append_time else -1
        assert answer == Appended(stored.base_offset, stored.last_offset, time_ms, False), answer

    @rule(
        number=which,
        producer_id=producer_ids,
        is_abort=st.booleans(),
        epoch_step=st.sampled_from([0, 0, 0, 1, -1]),
        coordinator_step=st.sampled_from([0, 0, 1, -1]),
    )
    def end_transaction(
        self, number: int, producer_id: int, is_abort: bool, epoch_step: int, coordinator_step: int
    ) -> None:
        partition = self.pick(number)
        log, model = partition.log, partition.model
        producer = model.producers().get(producer_id, Producer(epoch=0))
        epoch = max(0, producer.epoch + epoch_step)
        coordinator_epoch = max(0, producer.coordinator_epoch + coordinator_step)
        data = build_transaction_marker(
            ControlRecordType.ABORT if is_abort else ControlRecordType.COMMIT,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=self.now_ms,
        )
        expected = model.refusal_of_marker(producer_id, epoch, coordinator_epoch)
        answer = answer_of(lambda: log.append_own(memoryview(bytearray(data)), self.epoch, self.now_ms))
        if expected is not None:
            assert answer == expected
            return
        stored = model.lead(data, self.epoch, self.now_ms)
        assert isinstance(answer, Appended)
        assert answer.base_offset == stored.base_offset

    @rule(
        number=which,
        batches=st.lists(st.tuples(shapes, st.sampled_from([0, 0, 0, 0, 1, 7])), min_size=1, max_size=3),
        producer_id=st.sampled_from([-1, -1, 0, 1, 2]),
        cut=st.sampled_from([0, 0, 1, 30]),
    )
    def append_as_follower(
        self, number: int, batches: list[tuple[tuple[int, int], int]], producer_id: int, cut: int
    ) -> None:
        """Append what a leader sent: offsets may have gaps where compaction was, and the last batch may be
        incomplete."""
        partition = self.pick(number)
        log, model = partition.log, partition.model
        offset = model.log_end
        producer = model.producers().get(producer_id, Producer(epoch=0))
        sequence = producer.next_sequence if producer_id >= 0 else -1
        is_transactional = producer.transaction_since is not None
        sent: list[Stored] = []
        for shape, gap in batches:
            records = self.records(shape, 0, offset + gap)
            data = build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=producer.epoch if producer_id >= 0 else -1,
                base_sequence=sequence,
                transactional=is_transactional,
                partition_leader_epoch=self.epoch,
            )
            sent.append(Stored(bytes(data)))
            offset = sent[-1].next_offset
            sequence = (sequence + len(records)) % SEQUENCES if producer_id >= 0 else -1
        if cut:
            whole = sent[:-1]
            data_sent = b"".join(one.data for one in sent)[:-cut]
        else:
            whole = sent
            data_sent = b"".join(one.data for one in sent)
        assert log.append_as_follower(data_sent, self.now_ms) == len(whole)
        model.follow(whole)

    @rule(number=which, shape=shapes, position=st.integers(21, 60), as_follower=st.booleans())
    def refuse_damaged_bytes(self, number: int, shape: tuple[int, int], position: int, as_follower: bool) -> None:
        partition = self.pick(number)
        base_offset = partition.model.log_end if as_follower else 0
        data = build_batch(self.records(shape, 0, base_offset), partition_leader_epoch=self.epoch)
        data[position] ^= 1
        log = partition.log
        if as_follower:
            answer = answer_of(lambda: log.append_as_follower(data, self.now_ms))
        else:
            answer = answer_of(lambda: log.append_as_leader(memoryview(data), self.epoch, self.now_ms, PRODUCE_VERSION))
        assert answer is ErrorCode.CORRUPT_MESSAGE

    @rule(number=which)
    def roll(self, number: int) -> None:
        self.pick(number).log.roll(self.now_ms)

    # ---- reading ----

    @rule(
        number=which,
        percent=st.integers(-5, 105),
        max_bytes=st.sampled_from([0, 1, 60, 100, 500, 5000, 1 << 20]),
        up_to=st.sampled_from(list(ReadUpTo)),
        at_least_one_batch=st.booleans(),
    )
    def read(self, number: int, percent: int, max_bytes: int, up_to: ReadUpTo, at_least_one_batch: bool) -> None:
        partition = self.pick(number)
        model = partition.model
        offset = model.log_start + (model.log_end - model.log_start + 3) * percent // 100
        check_read(partition.log, model, max(0, offset), max_bytes, up_to, at_least_one_batch)

    @rule(number=which, back_ms=st.integers(-2, 20 * HOUR_MS))
    def look_up_by_time(self, number: int, back_ms: int) -> None:
        partition = self.pick(number)
        check_time(partition.log, partition.model, self.now_ms - back_ms)

    @rule(number=which)
    def look_up_the_newest(self, number: int) -> None:
        partition = self.pick(number)
        check_newest(partition.log)

    @rule(number=which)
    def look_at_everything(self, number: int) -> None:
        partition = self.pick(number)
        check_whole(partition.log, partition.model, self.disk)

    # ---- offsets that move ----

    @rule(number=which, percent=fractions)
    def replicate(self, number: int, percent: int) -> None:
        partition = self.pick(number)
        log, model = partition.log, partition.model
        offset = partition.at(percent, model.high_watermark, model.log_end + 1)
        has_moved = model.high_watermark < min(offset, model.log_end)
        model.replicate(offset)
        assert log.update_high_watermark(offset) == has_moved

    @rule(number=which, percent=fractions)
    def truncate(self, number: int, percent: int) -> None:
        """Truncate the log as for a new leader with fewer records; committed records stay, as in every clean
        election."""
        partition = self.pick(number)
        self.truncate_to(partition, max(partition.boundary(percent), partition.model.high_watermark))

    @rule(number=which, percent=fractions)
    def truncate_after_an_unclean_election(self, number: int, percent: int) -> None:
        partition = self.pick(number)
        self.truncate_to(partition, partition.at(percent, 0, partition.model.log_end))

    def truncate_to(self, partition: Partition, offset: int) -> None:
        log, model = partition.log, partition.model
        self.epoch += 1
        if offset < log.segments[0].base_offset and offset < model.log_end:
            model.restart(offset)
        else:
            model.truncate(offset)
        log.truncate_to(offset, self.now_ms)
        # Within a batch or a gap, the log may end where it was truncated or where the batch before it ends.
        assert model.last_batch_end() <= log.log_end_offset <= model.log_end
        model.shorten_to(log.log_end_offset)
        forget_older_batches(log, model)

    @rule(number=which, step=st.integers(-3, 20))
    def restart_elsewhere(self, number: int, step: int) -> None:
        """Restart the log at another offset, as a follower whose next records its leader no longer has."""
        partition = self.pick(number)
        offset = max(0, partition.model.log_end + step)
        self.epoch += 1
        partition.model.restart(offset)
        partition.log.restart_at(offset, self.now_ms)
        partition.log.update_high_watermark(offset)

    @rule(number=which, percent=st.integers(0, 110))
    def delete_records(self, number: int, percent: int) -> None:
        partition = self.pick(number)
        log, model = partition.log, partition.model
        offset = partition.at(percent, model.log_start, model.high_watermark + 1)
        try:
            log.delete_records_before(offset)
        except OffsetOutOfRange:
            assert offset > model.high_watermark
        else:
            assert offset <= model.high_watermark
            model.delete_before(offset)

    @rule(number=which)
    def apply_retention(self, number: int) -> None:
        partition = self.pick(number)
        log, model = partition.log, partition.model
        count = expired_segments(log, self.now_ms).segments
        going = log.segments[:count]
        end = log.segments[count].base_offset if count < len(log.segments) else model.log_end
        kept_size = log.size - sum(segment.size for segment in going)
        assert end <= model.high_watermark or not going, f"{log!r} would drop what is not replicated"
        records = [record for batch in model.visible() if batch.last_offset < end for record in batch.records]
        assert (
            end <= model.log_start
            or not going
            or all(record.timestamp < self.now_ms - self.config.retention_ms for record in records)
            or 0 <= self.config.retention_bytes <= kept_size
        ), f"{log!r} would drop {going}"
        if going:
            log.drop_segments(count, self.now_ms)
            model.delete_before(end)

    @rule(policy=policies)
    def change_the_policy(self, policy: frozenset[str]) -> None:
        """Change cleanup.policy. Records that compaction has kept stay, also when the log is not compacted any more."""
        self.config = self.config.but(cleanup_policy=policy)
        for partition in self.partitions.values():
            partition.log.configure(self.config)

    @precondition(lambda self: self.config.is_compacted)
    @rule(number=which)
    def compact(self, number: int) -> None:
        partition = self.pick(number)
        before = found_batches(partition.log)
        end = clean(self.disk, self.directory, partition.log, self.now_ms)
        check_compaction(partition.log, partition.model, before, end, self.now_ms)

    # ---- making durable ----

    @rule(number=which)
    def flush(self, number: int) -> None:
        partition = self.pick(number)
        partition.log.flush()
        partition.model.synced(partition.model.log_end, partition.model.truncations)
        assert partition.log.unflushed_count == 0

    @rule(number=which)
    def begin_flush(self, number: int) -> None:
        partition = self.pick(number)
        flush = partition.log.begin_flush()
        if flush is not None:
            partition.flush = (flush, partition.model.log_end, partition.model.truncations)

    @rule(number=which, done=st.sampled_from([0, 1, 2, 3, 100, 100, 100]))
    def go_on_with_flush(self, number: int, done: int) -> None:
        """Run all or some of the steps of a flush, so that the next operation may come in the middle of it."""
        partition = self.pick(number)
        if partition.flush is None:
            return
        (flush, end, truncations), partition.flush = partition.flush, None
        for step in flush.steps[:done]:
            step()
        if done >= len(flush.steps):
            partition.log.finish_flush(flush)
            partition.model.synced(end, truncations)

    @rule()
    def write_checkpoints(self) -> None:
        self.directory.write_checkpoints()
        for partition in self.partitions.values():
            # As in Kafka, the file has it only where it is not the first segment's; and a segment may come back.
            is_written = partition.model.log_start > partition.log.segments[0].base_offset
            partition.model.durable_start = partition.model.log_start if is_written else 0

    # ---- stopping ----

    @rule(again=st.booleans())
    def stop_in_order(self, again: bool) -> None:
        self.close()
        self.reopen("in order", again)

    @rule(again=st.booleans())
    def kill(self, again: bool) -> None:
        self.disk.crash_process()
        self.reopen("process died", again)

    @rule(again=st.booleans())
    def lose_power(self, again: bool) -> None:
        self.disk.lose_power()
        self.reopen("power lost", again)

    @rule(again=st.booleans())
    def lose_power_after_a_stop_in_order(self, again: bool) -> None:
        self.close()
        self.disk.lose_power()
        self.reopen("in order", again)

    @rule(
        is_clean=st.booleans(),
        damages=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 6), fractions), max_size=3),
    )
    def decay_while_stopped(self, is_clean: bool, damages: list[tuple[int, int, int]]) -> None:
        """Stop the log, damage files that only repeat what the `.log` files have, and open it again."""
        if is_clean:
            self.close()
        else:
            self.disk.crash_process()
        lost_start = lost_state = False
        for file_number, kind, percent in damages:
            paths = [path for path in sorted(self.disk.contents()) if path.endswith(DAMAGEABLE)]
            if paths:
                path = paths[file_number % len(paths)]
                damage(self.disk, path, kind, percent)
                lost_start = lost_start or path.endswith(CHECKPOINTS)
                lost_state = lost_state or path.endswith(".snapshot")
        self.reopen("in order" if is_clean else "process died", False, lost_start=lost_start, lost_state=lost_state)

    def close(self) -> None:
        self.directory.close()
        for partition in self.partitions.values():
            partition.model.stopped_in_order()

    def reopen(self, stop: Stop, again: bool, *, lost_start: bool = False, lost_state: bool = False) -> None:
        self.open_directory()
        assert self.directory.was_clean == (stop == "in order")
        for partition in self.partitions.values():
            adopt(partition.log, partition.model, stop, lost_start=lost_start, lost_state=lost_state)
            check_whole(partition.log, partition.model, self.disk)
        if again:
            before = [fingerprint(partition.log) for partition in self.partitions.values()]
            self.disk.crash_process()
            self.open_directory()
            for partition, seen in zip(self.partitions.values(), before, strict=True):
                assert_same(fingerprint(partition.log), seen)
            for partition in self.partitions.values():
                adopt(partition.log, partition.model, "process died")

    def open_directory(self) -> None:
        self.directory = LogDirectory(self.disk, ROOT)
        self.directory.open(lambda _: self.config, self.now_ms)
        assert self.directory.partitions.keys() <= self.partitions.keys()
        for key, partition in self.partitions.items():
            # A loss of power may take a log that was never flushed; the broker then creates it anew.
            partition.log = self.directory.partitions.get(key) or self.created(key)
            partition.flush = None

    @invariant()
    def check_agreement(self) -> None:
        for partition in getattr(self, "partitions", {}).values():
            check_offsets(partition.log, partition.model)
            check_producers(partition.log, partition.model)


TestPartitionLogsAreLists: Callable[[], Any] = LogMachine.TestCase
TestPartitionLogsAreLists.settings = settings(  # type: ignore[attr-defined]
    # About a minute; `make fuzz` brings more.
    max_examples=max(500, settings.default.max_examples if settings.default is not None else 0),
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
