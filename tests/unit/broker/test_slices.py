"""Large requests: split into slices, with the responses of the slices merged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from pessoa.base.ids import ZERO_UUID
from pessoa.broker import slices
from pessoa.broker.api_row import ApiRow
from pessoa.broker.api_table import broker_rows, row_of
from pessoa.broker.slices import Sliced, serve_in_slices
from pessoa.wire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pessoa.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pessoa.wire.api.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.schema import Message


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_COUNT", 3)


def sliced_of(key: ApiKey) -> Sliced:
    sliced = row_of(key).sliced
    assert sliced is not None
    return sliced


def coordinators(request: Message) -> Message:
    assert isinstance(request, FindCoordinatorRequest)
    found = [
        Coordinator(key=key, node_id=1, host="h", port=1, error_code=0, error_message=None)
        for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(coordinators=found)


class Groups:
    """A group coordinator that responds later, and records its requests."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, request: Message) -> Awaitable[Message]:
        assert isinstance(request, DescribeGroupsRequest)
        self.asked.append(request.groups)
        return self._described(request.groups)

    async def _described(self, names: list[str]) -> Message:
        await asyncio.sleep(0)
        groups = [
            DescribedGroup(
                error_code=0, group_id=name, group_state="Dead", protocol_type="", protocol_data="", members=[]
            )
            for name in names
        ]
        return DescribeGroupsResponse(groups=groups)


def test_a_request_served_in_slices_has_the_same_response_as_one_served_whole() -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{number}" for number in range(10)])
    whole = asyncio.run(serve_in_slices(sliced_of(ApiKey.FIND_COORDINATOR), request, coordinators))
    expected = coordinators(request)
    assert whole is not None
    assert bytes(whole.encode(4)) == bytes(expected.encode(4))
    assert len(request.coordinator_keys) == 10


def test_others_have_their_turn_between_slices() -> None:
    turns: list[int] = []

    async def main() -> None:
        async def other_request() -> None:
            while True:
                turns.append(len(groups.asked))
                await asyncio.sleep(0)

        other = asyncio.create_task(other_request())
        request = DescribeGroupsRequest(groups=[f"g{number}" for number in range(10)])
        await serve_in_slices(sliced_of(ApiKey.DESCRIBE_GROUPS), request, groups)
        other.cancel()

    groups = Groups()
    asyncio.run(main())
    assert [len(names) for names in groups.asked] == [3, 3, 3, 1]
    assert {1, 2, 3} <= set(turns)


def test_a_repeated_group_of_a_describe_groups_request_is_described_in_one_slice_only() -> None:
    groups = Groups()
    request = DescribeGroupsRequest(groups=["a", "b", "c", "a", "d", "b", "a"])
    asyncio.run(serve_in_slices(sliced_of(ApiKey.DESCRIBE_GROUPS), request, groups))
    assert groups.asked == [["a", "b", "c"], ["d"]]


@pytest.mark.parametrize("version", [5, 6])
def test_a_request_list_that_has_another_name_in_older_versions_is_sliced_there_too(version: int) -> None:
    names = [f"t{number}" for number in range(7)]
    if version == 5:
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=1)
    else:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names], timeout_ms=1
        )
    sizes: list[int] = []

    def delete(part: Message) -> Message:
        assert isinstance(part, DeleteTopicsRequest)
        asked = [*part.topic_names, *(topic.name for topic in part.topics)]
        sizes.append(len(asked))
        return DeleteTopicsResponse(
            throttle_time_ms=0, responses=[DeletableTopicResult(name=name, error_code=0) for name in asked]
        )

    assert sliced_of(ApiKey.DELETE_TOPICS).is_large(request)
    whole = asyncio.run(serve_in_slices(sliced_of(ApiKey.DELETE_TOPICS), request, delete))
    assert isinstance(whole, DeleteTopicsResponse)
    assert [one.name for one in whole.responses] == names
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize("row", [row for row in broker_rows() if row.sliced], ids=lambda row: row.key.title)
def test_the_request_and_response_lists_that_are_sliced_exist(row: ApiRow[Message]) -> None:
    api, sliced = row.key, sliced_of(row.key)
    assert sliced.asked in api.request.__annotations__
    assert not sliced.older or sliced.older in api.request.__annotations__
    assert sliced.answered in api.response.__annotations__


def test_a_request_is_served_in_slices_only_if_it_names_more_than_one_slice_holds() -> None:
    assert not sliced_of(ApiKey.DESCRIBE_GROUPS).is_large(DescribeGroupsRequest(groups=["a", "b", "c"]))
    assert sliced_of(ApiKey.DESCRIBE_GROUPS).is_large(DescribeGroupsRequest(groups=["a", "b", "c", "d"]))
    assert row_of(ApiKey.FETCH).sliced is None


def committed(part: Message) -> Message:
    assert isinstance(part, OffsetCommitRequest)
    return OffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=0)
                    for one in topic.partitions
                ],
            )
            for topic in part.topics
        ],
    )


@pytest.mark.parametrize("counts", [(10,), (1, 1, 1, 1, 1), (2, 3, 4, 5), (0, 7, 0), (3,), (0, 0, 0, 0)])
def test_partitions_within_topics_are_sliced_and_merged_in_their_order(counts: tuple[int, ...]) -> None:
    topics = [
        OffsetCommitRequestTopic(
            name=f"t{number}",
            topic_id=ZERO_UUID,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_leader_epoch=-1, committed_metadata=None
                )
                for index in range(count)
            ],
        )
        for number, count in enumerate(counts)
    ]
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None, topics=topics
    )
    sizes: list[int] = []

    def commit(part: Message) -> Message:
        assert isinstance(part, OffsetCommitRequest)
        sizes.append(sum(len(topic.partitions) for topic in part.topics))
        return committed(part)

    whole = asyncio.run(serve_in_slices(sliced_of(ApiKey.OFFSET_COMMIT), request, commit))
    assert whole is not None
    assert bytes(whole.encode(9)) == bytes(committed(request).encode(9))
    assert sum(sizes) == sum(counts)
    assert max(sizes) <= 3
    assert sliced_of(ApiKey.OFFSET_COMMIT).is_large(request) == (sum(counts) + len(counts) > 3)


def produce_to(count: int, acks: int) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=memoryview(b"")) for index in range(count)]
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", topic_id=ZERO_UUID, partition_data=data)],
    )


def test_a_produce_in_slices_appends_all_of_them_before_it_waits_for_the_replicas_of_one() -> None:
    appended: list[int] = []
    replicated: list[asyncio.Future[None]] = []

    async def when_replicated(part: ProduceRequest) -> Message:
        await replicated[0]
        topics = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=one.index, error_code=0, base_offset=one.index)
                    for one in topic.partition_data
                ],
            )
            for topic in part.topic_data
        ]
        nodes = [NodeEndpoint(node_id=number, host="h", port=1, rack=None) for number in (1, len(appended))]
        return ProduceResponse(responses=topics, throttle_time_ms=0, node_endpoints=nodes)

    def produce(part: Message) -> Awaitable[Message]:
        assert isinstance(part, ProduceRequest)
        appended.extend(one.index for one in part.topic_data[0].partition_data)
        return when_replicated(part)

    async def main() -> Message | None:
        replicated.append(asyncio.get_running_loop().create_future())
        answering = asyncio.create_task(serve_in_slices(sliced_of(ApiKey.PRODUCE), produce_to(8, -1), produce))
        while len(appended) < 8:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not answering.done()
        replicated[0].set_result(None)
        return await answering

    whole = asyncio.run(main())
    assert isinstance(whole, ProduceResponse)
    assert appended == [one.index for one in whole.responses[0].partition_responses] == list(range(8))
    assert [one.node_id for one in whole.node_endpoints] == [1, 8]


def test_a_produce_without_acknowledgement_is_appended_whole() -> None:
    appended: list[int] = []

    def produce(part: Message) -> None:
        assert isinstance(part, ProduceRequest)
        appended.extend(one.index for one in part.topic_data[0].partition_data)

    assert asyncio.run(serve_in_slices(sliced_of(ApiKey.PRODUCE), produce_to(8, 0), produce)) is None
    assert appended == list(range(8))
