"""The part of the session about records: produced, fetched, looked up by time and by epoch, and deleted.

Records have timestamps around `NOW_MS`, so that responses with them can be compared. Where a producer does not wait
for all replicas, the script waits for the high watermark before it goes on.
"""

from __future__ import annotations

from typing import Any

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.records.compression import Codec
from pessoa.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pessoa.wire.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pessoa.wire.api.describe_producers import DescribeProducersRequest
from pessoa.wire.api.describe_producers import TopicRequest as ProducersTopic
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from pessoa.wire.api.init_producer_id import InitProducerIdRequest
from pessoa.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pessoa.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.session_stage import Player
from tests.support.batches import NOW_MS, idempotent, plain

READ_COMMITTED = 1
UNKNOWN_ID = Uuid.of(4711)
MEGABYTE = 1 << 20
# For requests that wait for followers, also on a busy machine.
PATIENCE_MS = 60_000
# The last versions with topic names instead of topic ids.
PRODUCE_BY_NAME, FETCH_BY_NAME = 12, 12


def produce(
    name: str,
    records: bytes | memoryview | None,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=None if records is None else memoryview(records))
    topic = TopicProduceData(name=name, partition_data=[data])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=PATIENCE_MS, topic_data=[topic])


def produce_by_id(topic_id: Uuid, records: memoryview, partition: int = 0) -> ProduceRequest:
    topic = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=partition, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=PATIENCE_MS, topic_data=[topic])


def fetch(
    topic: str | Uuid,
    offset: int,
    partition: int = 0,
    epoch: int = -1,
    last_fetched_epoch: int = -1,
    partition_bytes: int = MEGABYTE,
    session: tuple[int, int] = (0, -1),
    **settings: Any,
) -> FetchRequest:
    wanted = FetchPartition(
        partition=partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=partition_bytes,
    )
    by = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    return in_session(session, [FetchTopic(partitions=[wanted], **by)], **settings)


def in_session(session: tuple[int, int], topics: list[FetchTopic], **settings: Any) -> FetchRequest:
    details: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": MEGABYTE, **settings}
    return FetchRequest(session_id=session[0], session_epoch=session[1], topics=topics, **details)


def offsets(name: str, *wanted: tuple[int, int], epoch: int = -1, isolation: int = 0) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
        for partition, timestamp in wanted
    ]
    topics = [ListOffsetsTopic(name=name, partitions=partitions)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=PATIENCE_MS)


def epoch_end(name: str, partition: int, epoch: int, current: int = -1) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=[wanted])])


def delete_records(name: str, partition: int, offset: int) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[wanted])], timeout_ms=PATIENCE_MS)


def producers(name: str, *partitions: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[ProducersTopic(name=name, partition_indexes=list(partitions))])


def corrupted(batch: memoryview, position: int) -> memoryview:
    batch[position] ^= 0x55
    return batch


def produce_steps(player: Player) -> None:
    leader = player.leader("orders")
    by_name = PRODUCE_BY_NAME
    player.ask("all replicas", produce("orders", plain(3)), by_name, to=leader)
    player.ask("the leader alone", produce("orders", plain(2, timestamp=NOW_MS + 10), acks=1), by_name, to=leader)
    player.wait_for_end("orders", 0, 5)
    player.tell(produce("orders", plain(1, timestamp=NOW_MS + 20), acks=0), by_name, to=leader)
    player.wait_for_end("orders", 0, 6)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        batch = plain(2, timestamp=NOW_MS + 30, codec=codec)
        player.ask(codec.name.lower(), produce("orders", batch), by_name, to=leader)
    topic_id = player.topic_id("orders")
    player.ask("by id", produce_by_id(topic_id, plain(1, timestamp=NOW_MS + 40)), to=leader)
    for version in (3, 5, 8, 9, 11):
        player.ask("an older client", produce("orders", plain(1, timestamp=NOW_MS + 40)), version, to=leader)
    player.ask("an unknown id", produce_by_id(UNKNOWN_ID, plain(1)), to=leader)
    player.ask("no id", produce_by_id(ZERO_UUID, plain(1)), to=leader)
    player.ask("an unknown partition by id", produce_by_id(topic_id, plain(1), 77), to=leader)
    player.ask("an unknown topic", produce("nothing", plain(1)), by_name, to=leader)
    player.ask("an unknown partition", produce("orders", plain(1), 77), by_name, to=leader)
    player.ask("an impossible topic", produce("no thing", plain(1)), by_name, to=leader)
    player.ask("acks that do not exist", produce("orders", plain(1), acks=2), by_name, to=leader)
    player.ask("a wrong checksum", produce("orders", corrupted(plain(1), 17)), by_name, to=leader)
    player.ask("too large", produce("small", plain(1, size=2000)), by_name, to=player.leader("small"))
    player.ask("as large as can be", produce("small", plain(1, size=1000)), by_name, to=player.leader("small"))
    player.ask("two batches", produce("orders", bytes(plain(1)) + bytes(plain(1))), by_name, to=leader)
    player.ask("no bytes", produce("orders", b""), by_name, to=leader)
    player.ask("half a batch", produce("orders", plain(1)[:-3]), by_name, to=leader)
    player.ask("no key in a compacted topic", produce("compacted", plain(1)), by_name, to=player.leader("compacted"))
    player.ask("the broker's time", produce("stamped", plain(2)), by_name, to=player.leader("stamped"))
    player.ask("an internal topic", produce("__consumer_offsets", plain(1)), by_name, to=leader)
    several = ProduceRequest(
        acks=-1,
        timeout_ms=PATIENCE_MS,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=index, records=plain(1)) for index in indexes]
            )
            for name, indexes in (("orders", (0, 77)), ("nothing", (0,)))
        ],
    )
    player.ask("several, some wrong", several, by_name, to=leader)


def idempotence_steps(player: Player) -> None:
    leader = player.leader("counted")
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    # A broker has no producer ids until it has got a block from the controller.
    got = player.until("a producer without a name", lambda answer: answer.error_code == 0, init, 5, to=leader)
    me = got.producer_id

    def send(title: str, sequence: int, count: int = 1, epoch: int = 0) -> None:
        batch = idempotent(me, sequence, count, producer_epoch=epoch)
        player.ask(title, produce("counted", batch), PRODUCE_BY_NAME, to=leader)

    send("the first of a producer", 0, 2)
    send("the next", 2)
    send("the same again", 2)
    send("the first again", 0, 2)
    send("a gap", 7)
    send("an old sequence", 1)
    send("a new epoch that begins wrongly", 5, epoch=1)
    send("a new epoch", 0, epoch=1)
    send("an old epoch", 3)
    unknown = idempotent(987_654, 4)
    player.ask("an unknown producer", produce("counted", unknown), PRODUCE_BY_NAME, to=leader)
    player.ask("who produces", producers("counted", 0, 77), to=leader)
    player.ask("who produces to nothing", producers("nothing", 0), to=leader)
    player.ask("what came of it", fetch("counted", 0), FETCH_BY_NAME, to=leader)


def list_offsets_steps(player: Player) -> None:
    leader = player.leader("orders")
    special = {"earliest": -2, "latest": -1, "the largest time": -3, "earliest here": -4, "latest tiered": -5}
    for title, timestamp in (special | {"earliest to upload": -6, "what does not exist": -7}).items():
        player.ask(title, offsets("orders", (0, timestamp)), to=leader)
    player.ask("at a time", offsets("orders", (0, NOW_MS + 10)), to=leader)
    player.ask("before all", offsets("orders", (0, 0)), to=leader)
    player.ask("after all", offsets("orders", (0, NOW_MS + 1_000_000)), to=leader)
    player.ask("of nothing", offsets("orders", (1, -3)), to=player.leader("orders", 1))
    player.ask("a time of nothing", offsets("orders", (1, NOW_MS)), to=player.leader("orders", 1))
    player.ask("an unknown partition", offsets("orders", (77, -1)), to=leader)
    player.ask("an unknown topic", offsets("nothing", (0, -1)), to=leader)
    player.ask("the right epoch", offsets("orders", (0, -1), epoch=0), to=leader)
    player.ask("an epoch to come", offsets("orders", (0, -1), epoch=5), to=leader)
    player.ask("committed", offsets("orders", (0, -1), isolation=READ_COMMITTED), to=leader)
    player.ask("the largest time, too early", offsets("orders", (0, -3)), 6, to=leader)
    player.ask("a partition twice", offsets("orders", (0, -1), (0, -2)), to=leader)
    for version in (1, 2, 4, 7):
        player.ask("an older client", offsets("orders", (0, -1)), version, to=leader)
    player.ask("the end of an epoch", epoch_end("orders", 0, 0), to=leader)
    player.ask("the end of an epoch to come", epoch_end("orders", 0, 3), to=leader)
    player.ask("the end, with the right epoch", epoch_end("orders", 0, 0, 0), to=leader)
    player.ask("the end, with an epoch to come", epoch_end("orders", 0, 0, 9), to=leader)
    player.ask("the end in nothing", epoch_end("nothing", 0, 0), to=leader)
    player.ask("the end in no partition", epoch_end("orders", 77, 0), to=leader)


def fetch_steps(player: Player) -> None:
    leader, by_name = player.leader("orders"), FETCH_BY_NAME
    topic_id = player.topic_id("orders")
    player.ask("all", fetch("orders", 0), by_name, to=leader)
    player.ask("by id", fetch(topic_id, 4), to=leader)
    for version in (4, 5, 7, 10, 11, 13, 15, 16, 17):
        topic = topic_id if version > by_name else "orders"
        player.ask("an older client", fetch(topic, 5), version, to=leader)
    player.ask("committed", fetch("orders", 4, isolation_level=READ_COMMITTED), by_name, to=leader)
    player.ask("the end", fetch("orders", 20), by_name, to=leader)
    player.ask("beyond the end", fetch("orders", 1000), by_name, to=leader)
    player.ask("before the start", fetch("orders", -5), by_name, to=leader)
    player.ask("one byte", fetch("orders", 0, partition_bytes=1), by_name, to=leader)
    player.ask("one byte of all", fetch("orders", 0, max_bytes=1), by_name, to=leader)
    player.ask("a hundred bytes", fetch("orders", 0, partition_bytes=100), by_name, to=leader)
    player.ask("no bytes", fetch("orders", 0, partition_bytes=0, max_bytes=0), by_name, to=leader)
    player.ask("more than there is", fetch("orders", 0, min_bytes=MEGABYTE, max_wait_ms=50), by_name, to=leader)
    player.ask("the right epoch", fetch("orders", 8, epoch=0), by_name, to=leader)
    player.ask("an epoch to come", fetch("orders", 8, epoch=3), by_name, to=leader)
    player.ask("the right last epoch", fetch("orders", 8, epoch=0, last_fetched_epoch=0), by_name, to=leader)
    player.ask("a last epoch to come", fetch("orders", 8, epoch=0, last_fetched_epoch=5), by_name, to=leader)
    player.ask("an unknown topic", fetch("nothing", 0), by_name, to=leader)
    player.ask("an unknown partition", fetch("orders", 0, 77), by_name, to=leader)
    player.ask("an unknown id", fetch(UNKNOWN_ID, 0), to=leader)
    player.ask("no id", fetch(ZERO_UUID, 0), to=leader)
    player.ask("an unknown partition by id", fetch(topic_id, 0, 77), to=leader)
    player.ask("with a rack", fetch("orders", 17, rack_id="somewhere"), by_name, to=leader)


def fetch_session_steps(player: Player) -> None:
    leader = player.leader("orders")
    topic_id = player.topic_id("orders")
    first = player.ask("a session begins", fetch(topic_id, 0, session=(0, 0), partition_bytes=100), to=leader)
    me = first.session_id
    player.ask("a session goes on", in_session((me, 1), []), to=leader)
    player.ask("a session asks for more", fetch(topic_id, 20, session=(me, 2)), to=leader)
    player.ask("a session has nothing new", in_session((me, 3), []), to=leader)
    player.ask("a session counts wrongly", in_session((me, 9), []), to=leader)
    player.ask("an unknown session", in_session((me ^ 0x5555, 1), []), to=leader)
    player.ask("a session gets an unknown topic", fetch(UNKNOWN_ID, 0, session=(me, 4)), to=leader)
    forgotten = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
    player.ask("a session forgets", in_session((me, 5), [], forgotten_topics_data=forgotten), to=leader)
    player.ask("a session ends", in_session((me, -1), []), to=leader)
    player.ask("a session that has ended", in_session((me, 6), []), to=leader)
    again = player.ask("a session by name", fetch("orders", 20, session=(0, 0)), 12, to=leader).session_id
    player.ask("a session by name goes on", in_session((again, 1), []), 12, to=leader)
    player.ask("a session by name gets an id", fetch(topic_id, 20, session=(again, 2)), 13, to=leader)


def delete_records_steps(player: Player) -> None:
    leader = player.leader("orders")
    player.ask("up to 2", delete_records("orders", 0, 2), to=leader)
    player.ask("up to 1, which is gone", delete_records("orders", 0, 1), to=leader)
    player.ask("beyond the end", delete_records("orders", 0, 1000), to=leader)
    player.ask("a wrong offset", delete_records("orders", 0, -7), to=leader)
    player.ask("an unknown topic", delete_records("nothing", 0, 1), to=leader)
    player.ask("an unknown partition", delete_records("orders", 77, 1), to=leader)
    player.ask("a compacted topic", delete_records("compacted", 0, 0), to=player.leader("compacted"))
    player.ask("after a deletion", fetch("orders", 2, partition_bytes=100), FETCH_BY_NAME, to=leader)
    player.ask("what was deleted", fetch("orders", 1), FETCH_BY_NAME, to=leader)
    player.ask("earliest after a deletion", offsets("orders", (0, -2)), to=leader)
    player.ask("all", delete_records("orders", 0, -1), to=leader)
    player.ask("earliest after all is deleted", offsets("orders", (0, -2)), to=leader)
    sizes = [
        DescribableLogDirTopic(topic="counted", partitions=[0]),
        DescribableLogDirTopic(topic="no", partitions=[0]),
    ]
    player.ask("sizes", DescribeLogDirsRequest(topics=sizes), to=leader)
    for version in (1, 2, 3, 4):
        player.ask("sizes", DescribeLogDirsRequest(topics=sizes), version, to=leader)


ACTS = (
    produce_steps,
    idempotence_steps,
    list_offsets_steps,
    fetch_steps,
    fetch_session_steps,
    delete_records_steps,
)
