"""Large requests, taken apart and put together again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from pessoa.base.ids import ZERO_UUID
from pessoa.broker import slices
from pessoa.broker.dispatch import TABLE
from pessoa.broker.slices import SLICED, is_large, serve_in_slices
from pessoa.wire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pessoa.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.schema import Message


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_COUNT", 3)


def coordinators(request: Message) -> Message:
    assert isinstance(request, FindCoordinatorRequest)
    found = [
        Coordinator(key=key, node_id=1, host="h", port=1, error_code=0, error_message=None)
        for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(coordinators=found)


class Groups:
    """Answers later, and remembers what it was asked."""

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


def test_the_answer_to_all_slices_is_the_answer_to_the_request() -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{number}" for number in range(10)])
    whole = asyncio.run(serve_in_slices(ApiKey.FIND_COORDINATOR, request, coordinators))
    expected = coordinators(request)
    assert whole is not None
    assert bytes(whole.encode(4)) == bytes(expected.encode(4))
    assert len(request.coordinator_keys) == 10


def test_others_have_their_turn_between_slices() -> None:
    turns: list[int] = []

    async def main() -> None:
        async def somebody_else() -> None:
            while True:
                turns.append(len(groups.asked))
                await asyncio.sleep(0)

        other = asyncio.create_task(somebody_else())
        request = DescribeGroupsRequest(groups=[f"g{number}" for number in range(10)])
        await serve_in_slices(ApiKey.DESCRIBE_GROUPS, request, groups)
        other.cancel()

    groups = Groups()
    asyncio.run(main())
    assert [len(names) for names in groups.asked] == [3, 3, 3, 1]
    assert {1, 2, 3} <= set(turns)


def test_what_may_have_a_large_answer_is_asked_for_once_wherever_it_is_named() -> None:
    groups = Groups()
    request = DescribeGroupsRequest(groups=["a", "b", "c", "a", "d", "b", "a"])
    asyncio.run(serve_in_slices(ApiKey.DESCRIBE_GROUPS, request, groups))
    assert groups.asked == [["a", "b", "c"], ["d"]]


@pytest.mark.parametrize("version", [5, 6])
def test_a_list_that_had_another_name_in_older_versions_is_cut_there_too(version: int) -> None:
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

    assert is_large(ApiKey.DELETE_TOPICS, request)
    whole = asyncio.run(serve_in_slices(ApiKey.DELETE_TOPICS, request, delete))
    assert isinstance(whole, DeleteTopicsResponse)
    assert [one.name for one in whole.responses] == names
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize("key", SLICED, ids=lambda key: ApiKey(key).title)
def test_the_lists_that_are_cut_and_put_together_exist(key: int) -> None:
    sliced = SLICED[key]
    api = ApiKey(key)
    assert any(row.key is api for row in TABLE)
    assert sliced.asked in api.request.__annotations__
    assert not sliced.older or sliced.older in api.request.__annotations__
    assert sliced.answered in api.response.__annotations__


def test_only_what_names_more_than_a_slice_is_large() -> None:
    assert not is_large(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["a", "b", "c"]))
    assert is_large(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["a", "b", "c", "d"]))
    assert not is_large(ApiKey.FETCH, DescribeGroupsRequest(groups=["a"] * 9))
