"""The share coordinator's decisions, with Kafka's error codes; a replay of its log gives the same state."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.coordinator.shard import Output
from pessoa.coordinator.share.share_config import ShareCoordinatorConfig
from pessoa.coordinator.share.share_shard import ShareShard
from pessoa.coordinator.share.share_state import ShareKey, ShareState
from pessoa.share.state_batches import DeliveryState, StateBatch
from pessoa.wire.api import delete_share_group_state as delete_api
from pessoa.wire.api import initialize_share_group_state as initialize_api
from pessoa.wire.api import read_share_group_state as read_api
from pessoa.wire.api import read_share_group_state_summary as summary_api
from pessoa.wire.api import write_share_group_state as write_api
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import OwnRequest
from pessoa.wire.stored.record_framing import (
    SHARE_LOG,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)
from tests.unit.coordinator.images import FakeImage, change, image, topic_id

TOPIC = topic_id("orders")
KEY = ShareKey("g", TOPIC, 0)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
CALLER = OwnRequest(0)


class Driver:
    """Does what the runtime does, with a log in memory."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.config = ShareCoordinatorConfig(
            share_coordinator_snapshot_update_records_per_snapshot=updates_per_snapshot
        )
        self.image: FakeImage = image(orders=3, others=1)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.start_offset = 0
        self.now_ms = 1_000_000
        self.confirmed_count = 0
        self.shard = self.load()

    def load(self) -> ShareShard:
        """Return a new shard that has replayed the log."""
        shard = ShareShard(self.config)
        for index, (key_bytes, value_bytes) in enumerate(self.log):
            if index >= self.start_offset:
                key = decode_coordinator_key(SHARE_LOG, key_bytes)
                assert key is not None
                value = None if value_bytes is None else decode_coordinator_value(SHARE_LOG, key, value_bytes)
                shard.replay(key, value, index, -1, -1)
        shard.on_loaded(self.image, self.now_ms)
        return shard

    def perform(self, output: Output) -> Any:
        for key, value, version in output.records:
            stored = None if value is None else encode_coordinator_value(value, version)
            self.log.append((encode_coordinator_key(key), stored))
            self.shard.replay(key, value, len(self.log) - 1, -1, -1)
        self.confirmed_count += output.is_confirmed
        return output.replies[0][1].results[0].partitions[0] if output.replies else None  # type: ignore[union-attr]

    def initialize(self, epoch: int = 1, start: int = 0, key: ShareKey = KEY) -> Any:
        data = initialize_api.PartitionData(partition=key.partition, state_epoch=epoch, start_offset=start)
        topic = initialize_api.InitializeStateData(topic_id=key.topic_id, partitions=[data])
        request = initialize_api.InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return self.perform(self.shard.initialize(request, CALLER, 1, self.now_ms))

    def read(self, leader_epoch: int = 0, key: ShareKey = KEY) -> Any:
        data = read_api.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = read_api.ReadStateData(topic_id=key.topic_id, partitions=[data])
        request = read_api.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return self.perform(self.shard.read(request, CALLER, 1, self.now_ms))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        start: int = 0,
        done: int = 0,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        key: ShareKey = KEY,
    ) -> Any:
        data = write_api.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=done,
            state_batches=[
                write_api.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        topic = write_api.WriteStateData(topic_id=key.topic_id, partitions=[data])
        request = write_api.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return self.perform(self.shard.write(request, CALLER, 1, self.now_ms))

    def summarize(self, key: ShareKey = KEY) -> Any:
        data = summary_api.PartitionData(partition=key.partition, leader_epoch=-1)
        topic = summary_api.ReadStateSummaryData(topic_id=key.topic_id, partitions=[data])
        request = summary_api.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic])
        return self.perform(self.shard.summarize(request, CALLER, 1, self.now_ms))

    def delete(self, key: ShareKey = KEY) -> Any:
        data = delete_api.PartitionData(partition=key.partition)
        topic = delete_api.DeleteStateData(topic_id=key.topic_id, partitions=[data])
        request = delete_api.DeleteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return self.perform(self.shard.delete(request, CALLER, 1, self.now_ms))

    @property
    def state(self) -> ShareState:
        state = self.shard.state(KEY)
        assert state is not None
        return state

    def kinds(self) -> list[int]:
        """Return the types of the records in the log: 0 a snapshot, 1 an update, -1 a tombstone."""
        return [-1 if value is None else int.from_bytes(key[:2], "big") for key, value in self.log]


def test_initialize_writes_a_snapshot_without_batches() -> None:
    driver = Driver()
    assert driver.initialize(epoch=3, start=50).error_code == ErrorCode.NONE
    assert driver.state == ShareState(0, 3, 0, 50, 0, driver.now_ms, driver.now_ms)
    assert driver.kinds() == [0]


def test_initialize_without_a_start_offset_sets_an_unknown_delivery_complete_count() -> None:
    driver = Driver()
    driver.initialize(start=-1)
    assert (driver.state.start_offset, driver.state.delivery_complete_count) == (-1, -1)


def test_initialize_with_a_higher_state_epoch_replaces_the_state_and_an_older_state_epoch_is_fenced() -> None:
    driver = Driver()
    driver.initialize(epoch=2)
    driver.read(leader_epoch=4)
    driver.write((0, 9, 2, 1), state_epoch=2, leader_epoch=4)
    assert driver.initialize(epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    driver.now_ms += 5
    assert driver.initialize(epoch=2, start=100).error_code == ErrorCode.NONE
    assert driver.state == ShareState(1, 2, 0, 100, 0, driver.now_ms - 5, driver.now_ms, snapshot_offset=3)


def test_a_repeated_initialize_without_an_offset_changes_nothing() -> None:
    """A group coordinator asks again when it has heard nothing, and the first request may have arrived all the same:
    its group has begun meanwhile."""
    driver = Driver()
    driver.initialize(epoch=2, start=-1)
    driver.read(leader_epoch=4)
    driver.write((0, 9, 2, 1), state_epoch=2, leader_epoch=4)
    before = driver.state
    assert driver.initialize(epoch=2, start=-1).error_code == ErrorCode.NONE
    assert driver.state == before
    driver.initialize(epoch=3, start=-1)
    assert (driver.state.start_offset, driver.state.batches) == (-1, ())


def test_a_read_raises_the_leader_epoch_and_older_leaders_are_fenced_from_then_on() -> None:
    driver = Driver()
    driver.initialize(start=7)
    answer = driver.read(leader_epoch=5)
    assert (answer.error_code, answer.state_epoch, answer.start_offset, answer.state_batches) == (0, 1, 7, [])
    assert driver.state.leader_epoch == 5
    assert driver.kinds() == [0, 1]
    assert driver.read(leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert driver.write((7, 7, 2, 1), start=7, leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert driver.write((7, 7, 2, 1), start=7, leader_epoch=-1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert driver.state.batches == ()
    assert driver.kinds() == [0, 1]


def test_a_read_with_the_same_leader_epoch_writes_nothing_and_is_confirmed_by_the_replicas() -> None:
    driver = Driver()
    driver.initialize()
    driver.read(leader_epoch=5)
    assert driver.confirmed_count == 0
    driver.write((0, 4, 2, 1), leader_epoch=5)
    answer = driver.read(leader_epoch=5)
    assert driver.confirmed_count == 1
    assert answer.state_batches == [
        read_api.StateBatch(first_offset=0, last_offset=4, delivery_state=2, delivery_count=1)
    ]
    assert driver.kinds() == [0, 1, 1]


def test_writes_are_merged_and_never_raise_the_leader_epoch() -> None:
    driver = Driver()
    driver.initialize()
    assert driver.write((0, 9, 2, 1), (10, 19, 0, 1), done=10, leader_epoch=8).error_code == ErrorCode.NONE
    assert driver.write((12, 14, 2, 2), start=10, done=3).error_code == ErrorCode.NONE
    assert driver.state.leader_epoch == 0
    assert driver.state.start_offset == 10
    assert driver.state.delivery_complete_count == 3
    assert driver.state.batches == (
        StateBatch(10, 11, AVAILABLE, 1),
        StateBatch(12, 14, ACKNOWLEDGED, 2),
        StateBatch(15, 19, AVAILABLE, 1),
    )


def test_writes_that_arrive_out_of_order_do_not_undo_later_ones() -> None:
    driver = Driver()
    driver.initialize()
    driver.write((10, 19, 2, 1), start=10, done=10)
    driver.write((0, 9, 2, 1), (10, 19, 0, 1), start=0, done=7)
    driver.write((10, 19, 0, 1), start=10, done=2)
    assert (driver.state.start_offset, driver.state.delivery_complete_count) == (10, 10)
    assert driver.state.batches == (StateBatch(10, 19, ACKNOWLEDGED, 1),)


def test_a_write_without_batches_stores_the_start_offset() -> None:
    driver = Driver()
    driver.initialize(start=-1)
    driver.write(start=30)
    assert (driver.state.start_offset, driver.state.delivery_complete_count, driver.state.batches) == (30, 0, ())


def test_a_write_with_an_older_state_epoch_is_fenced() -> None:
    driver = Driver()
    driver.initialize(epoch=4)
    assert driver.write(state_epoch=3).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert driver.write(state_epoch=4).error_code == ErrorCode.NONE


def test_reads_and_writes_of_an_uninitialised_share_partition_are_invalid() -> None:
    driver = Driver()
    for answer in (driver.read(), driver.write()):
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "uninitialized" in answer.error_message


@pytest.mark.parametrize("batch", [(5, 4, 2, 1), (-1, 4, 2, 1), (0, 4, 9, 1)], ids=str)
def test_malformed_state_batches_are_invalid(batch: tuple[int, int, int, int]) -> None:
    driver = Driver()
    driver.initialize()
    assert driver.write(batch).error_code == ErrorCode.INVALID_REQUEST
    assert driver.kinds() == [0]


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (ShareKey("g", ZERO_UUID, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ShareKey("g", TOPIC, -1), ErrorCode.INVALID_REQUEST),
        (ShareKey("g", TOPIC, 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ShareKey("g", Uuid.of(7_000), 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=str,
)
def test_every_request_is_refused_for_a_partition_that_does_not_exist(key: ShareKey, code: ErrorCode) -> None:
    driver = Driver()
    for request in (driver.initialize, driver.summarize, driver.delete):
        answer = request(key=key)
        assert (answer.partition, answer.error_code) == (key.partition, code)
    # Kafka looks first whether it is initialised.
    assert driver.read(key=key).error_code == driver.write(key=key).error_code == ErrorCode.INVALID_REQUEST
    assert driver.log == []


def test_a_summary_has_the_offsets_of_a_share_partition_and_none_of_an_unknown_one() -> None:
    driver = Driver()
    answer = driver.summarize()
    assert (answer.error_code, answer.start_offset, answer.delivery_complete_count) == (0, -1, -1)
    driver.initialize(epoch=2, start=5)
    driver.read(leader_epoch=3)
    driver.write((5, 6, 2, 1), start=5, done=2, state_epoch=2, leader_epoch=3)
    answer = driver.summarize()
    assert (answer.state_epoch, answer.leader_epoch, answer.start_offset) == (2, 3, 5)
    assert answer.delivery_complete_count == 2


def test_delete_writes_a_tombstone_for_a_known_share_partition_and_nothing_for_an_unknown_one() -> None:
    driver = Driver()
    assert driver.delete().error_code == ErrorCode.NONE
    assert driver.log == []
    driver.initialize()
    assert driver.delete().error_code == ErrorCode.NONE
    assert driver.kinds() == [0, -1]
    assert driver.shard.state(KEY) is None
    assert driver.read().error_code == ErrorCode.INVALID_REQUEST


def test_a_snapshot_with_the_whole_state_is_written_after_the_configured_number_of_updates() -> None:
    driver = Driver(updates_per_snapshot=3)
    driver.initialize()
    for offset in range(8):
        driver.write((offset, offset, 2, 1), done=offset + 1)
    assert driver.kinds() == [0, 1, 1, 1, 0, 1, 1, 1, 0]
    assert driver.state.snapshot_epoch == 2
    assert driver.state.batches == (StateBatch(0, 7, ACKNOWLEDGED, 1),)
    assert driver.state.snapshot_offset == 8


def test_without_updates_every_write_is_a_snapshot() -> None:
    driver = Driver(updates_per_snapshot=0)
    driver.initialize()
    driver.write((0, 0, 2, 1), done=1)
    driver.read(leader_epoch=2)
    assert driver.kinds() == [0, 0, 0]
    assert (driver.state.leader_epoch, driver.state.snapshot_epoch) == (2, 2)


def test_cold_share_partitions_get_a_snapshot_unless_all_are_cold() -> None:
    driver = Driver()
    other = ShareKey("g", TOPIC, 1)
    driver.initialize()
    driver.initialize(key=other)
    driver.write((0, 0, 2, 1), done=1)
    interval_ms = driver.config.share_coordinator_cold_partition_snapshot_interval_ms
    driver.now_ms += interval_ms
    driver.perform(driver.shard.expire(driver.now_ms))
    assert driver.kinds() == [0, 0, 1], "all are cold"
    assert driver.shard.next_deadline_ms() == driver.now_ms + interval_ms
    driver.now_ms += 1
    driver.initialize(epoch=2, key=other)
    driver.now_ms += interval_ms - 1
    before = driver.state
    driver.perform(driver.shard.expire(driver.now_ms))
    assert driver.kinds() == [0, 0, 1, 0, 0]
    assert driver.state == before._replace(snapshot_epoch=1, write_ms=driver.now_ms, update_count=0, snapshot_offset=4)


def test_records_before_the_latest_snapshots_of_all_share_partitions_can_be_pruned() -> None:
    driver = Driver()
    other = ShareKey("g", TOPIC, 1)
    assert driver.shard.prunable_offset() == 0
    driver.initialize()
    driver.initialize(key=other)
    driver.initialize(epoch=2)
    assert driver.shard.prunable_offset() == 1
    driver.delete(key=other)
    assert driver.shard.prunable_offset() == 2
    driver.delete()
    assert driver.shard.prunable_offset() == 5


def test_the_state_of_deleted_topics_is_deleted() -> None:
    driver = Driver()
    other = ShareKey("g", topic_id("others"), 0)
    driver.initialize()
    driver.initialize(key=other)
    driver.image, delta = change(driver.image, image(orders=3))
    driver.perform(driver.shard.on_image(driver.image, delta, driver.now_ms))
    assert driver.shard.state(other) is None
    assert driver.shard.state(KEY) is not None
    assert driver.kinds() == [0, 0, -1]


@pytest.mark.parametrize("seed", range(30))
def test_a_shard_loaded_from_a_pruned_log_equals_the_shard_that_wrote_it(seed: int) -> None:
    random = Random(seed)
    driver = Driver(updates_per_snapshot=random.choice([0, 2, 5]))
    keys = [ShareKey(group, TOPIC, partition) for group in ("g", "h:1") for partition in range(3)]
    for _ in range(150):
        key = random.choice(keys)
        driver.now_ms += random.choice([1, 1_000, 200_000])
        state = driver.shard.state(key)
        epochs = (0, 0) if state is None else (state.state_epoch, state.leader_epoch)
        step = random.choice(["initialize", "read", *["write"] * 6, "delete", "expire", "prune"])
        if step == "initialize":
            driver.initialize(epoch=epochs[0] + random.choice([-1, 0, 1]), start=random.choice([-1, 0, 5]), key=key)
        elif step == "read":
            driver.read(leader_epoch=epochs[1] + random.choice([-1, 0, 1]), key=key)
        elif step == "write":
            start = random.randint(-1, 20)
            batches = [
                (first, first + random.randint(0, 9), random.choice([0, 2, 4]), random.randint(1, 5))
                for first in (random.randint(0, 40) for _ in range(random.randint(0, 4)))
            ]
            driver.write(*batches, start=start, state_epoch=epochs[0], leader_epoch=epochs[1], key=key)
        elif step == "delete":
            driver.delete(key=key)
        elif step == "expire":
            driver.perform(driver.shard.expire(driver.now_ms))
        else:
            driver.start_offset = max(driver.start_offset, driver.shard.prunable_offset())
        loaded = driver.load()
        for each in keys:
            assert loaded.state(each) == driver.shard.state(each)


def test_a_share_partition_key_is_parsed_from_the_right() -> None:
    key = ShareKey("a:b:0", TOPIC, 12)
    assert str(key) == f"a:b:0:{TOPIC}:12"
    assert ShareKey.parse(str(key)) == key
    for text in ("", "g:1", ":" + str(TOPIC) + ":1", f"g:{TOPIC}:x", "g:short:1"):
        with pytest.raises(ValueError):
            ShareKey.parse(text)
