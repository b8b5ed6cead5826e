"""The image follows the committed batches; subscribers get images only after the whole log was read."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.metadata.delta import MetadataDelta
from pessoa.quorum.batches import MetadataBatch, UnknownMetadataRecord, decode_batch
from pessoa.quorum.describe import describe_quorum
from pessoa.quorum.publishing import ImagePublisher
from pessoa.records.batch import RecordBatch
from pessoa.records.builder import build_batch
from pessoa.records.record import Record
from pessoa.wire.api.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.metadata_records import RemoveTopicRecord, TopicRecord
from tests.support.quorums import Quorums
from tests.support.virtual_time import run

T, U = Uuid.of(1001), Uuid.of(1002)


def test_subscribers_are_not_called_for_records_that_were_deleted_before_the_publisher_went_live() -> None:
    publisher = ImagePublisher()
    told: list[MetadataDelta] = []
    publisher.subscribers.append(told.append)
    publisher.listen(MetadataBatch(0, 1, 0, [TopicRecord(name="t", topic_id=T)]))
    publisher.listen(MetadataBatch(1, 1, 0, [TopicRecord(name="u", topic_id=U)]))
    publisher.listen(MetadataBatch(2, 1, 0, [RemoveTopicRecord(topic_id=T)]))
    assert told == []
    publisher.go_live()
    (start,) = told
    assert list(start.changed_topics) == [U]
    assert not start.deleted_topics
    assert publisher.image.offset == 2


def test_subscribers_are_called_for_every_batch_after_the_publisher_went_live() -> None:
    publisher = ImagePublisher()
    told: list[MetadataDelta] = []
    publisher.subscribers.append(told.append)
    publisher.go_live()
    publisher.listen(MetadataBatch(0, 1, 0, [TopicRecord(name="t", topic_id=T)]))
    publisher.listen(MetadataBatch(1, 1, 0, [RemoveTopicRecord(topic_id=T)]))
    _, created, removed = told
    assert list(created.changed_topics) == [T]
    assert created.new is removed.old
    assert removed.deleted_topics == {T: "t"}


def test_control_batches_advance_the_image_offset_and_may_set_kraft_version() -> None:
    publisher = ImagePublisher()
    publisher.go_live()
    publisher.listen(MetadataBatch(5, 2, 0, [], kraft_version=1))
    assert (publisher.image.offset, publisher.image.epoch) == (5, 2)
    assert publisher.image.features.kraft_version == 1


@pytest.mark.parametrize("value", [None, b"\x01\x7f\x00", b"\x01\x02\x63"])
def test_decoding_an_unknown_metadata_record_raises_with_its_offset(value: bytes | None) -> None:
    with pytest.raises(UnknownMetadataRecord, match="offset 3"):
        decode_batch(RecordBatch(memoryview(build_batch([Record(3, 0, None, value)]))))


def request(topic: str, *partitions: int) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[TopicData(topic_name=topic, partitions=[PartitionData(partition_index=one) for one in partitions])]
    )


@pytest.mark.parametrize(("topic", "partitions"), [("orders", [0]), ("__cluster_metadata", [1]), ("x", [0, 1])])
def test_describe_quorum_of_another_partition_is_answered_unknown_topic_or_partition(
    topic: str, partitions: list[int]
) -> None:
    async def body() -> None:
        async with Quorums(1) as nodes:
            response = describe_quorum(nodes.by_id[1].quorum, request(topic, *partitions), 2)
            codes = [ErrorCode.of(one.error_code) for one in response.topics[0].partitions]
            assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(partitions)

    run(body)
