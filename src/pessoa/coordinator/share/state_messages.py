"""The five APIs of the share coordinator as one form: they differ in what stands in a partition's data and result.

    request     group id, topics: topic id, partitions: partition, …
    response    results: topic id, partitions: partition, error code, error message, …

`StateApi` knows the classes of one API: it makes the response for one share partition, cuts a request into requests for
one share partition each, and joins their responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pessoa.base.ids import Uuid
from pessoa.coordinator.share.share_state import ShareKey
from pessoa.wire.api import delete_share_group_state as delete
from pessoa.wire.api import initialize_share_group_state as initialize
from pessoa.wire.api import read_share_group_state as read
from pessoa.wire.api import read_share_group_state_summary as summary
from pessoa.wire.api import write_share_group_state as write
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message, Struct

if TYPE_CHECKING:
    from pessoa.wire.request_context import Answer, Caller

R = TypeVar(
    "R",
    initialize.InitializeShareGroupStateRequest,
    read.ReadShareGroupStateRequest,
    write.WriteShareGroupStateRequest,
    delete.DeleteShareGroupStateRequest,
    summary.ReadShareGroupStateSummaryRequest,
)


class PartitionOfRequest(Protocol):
    @property
    def partition(self) -> int: ...


class TopicOfRequest(Protocol):
    @property
    def topic_id(self) -> Uuid: ...
    @property
    def partitions(self) -> Sequence[PartitionOfRequest]: ...


class StateRequest(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def topics(self) -> Sequence[TopicOfRequest]: ...


class StateService(Protocol):
    """The share coordinator, as far as `StateApi.serve` calls it."""

    def initialize(
        self, request: initialize.InitializeShareGroupStateRequest, caller: Caller, /
    ) -> Answer[Message]: ...
    def read(self, request: read.ReadShareGroupStateRequest, caller: Caller, /) -> Answer[Message]: ...
    def write(self, request: write.WriteShareGroupStateRequest, caller: Caller, /) -> Answer[Message]: ...
    def delete(self, request: delete.DeleteShareGroupStateRequest, caller: Caller, /) -> Answer[Message]: ...
    def summarize(self, request: summary.ReadShareGroupStateSummaryRequest, caller: Caller, /) -> Answer[Message]: ...


@dataclass(frozen=True, slots=True)
class StateApi(Generic[R]):
    response_type: type[Message]
    topic_result: type[Struct]
    partition_result: type[Struct]
    # Serves a request on the broker that leads its share partitions.
    serve: Callable[[StateService, R, Caller], Answer[Message]]
    # What the result of a partition has beside the error, where there is an error.
    empty: Mapping[str, Any] = field(default_factory=dict)

    def response(self, key: ShareKey, **values: Any) -> Message:
        return self._response(key, ErrorCode.NONE, None, values)

    def error(self, key: ShareKey, code: ErrorCode, message: str | None = None) -> Message:
        return self._response(key, code, message or code.text, self.empty)

    def _response(self, key: ShareKey, code: ErrorCode, message: str | None, values: Mapping[str, Any]) -> Message:
        result = self.partition_result(
            partition=key.partition, error_code=code, error_message=message, **(dict(self.empty) | dict(values))
        )
        return self.response_type(results=[self.topic_result(topic_id=key.topic_id, partitions=[result])])

    @staticmethod
    def error_of(response: Message) -> ErrorCode:
        """Return the error in the response for one share partition."""
        return ErrorCode.of(response.results[0].partitions[0].error_code)  # type: ignore[attr-defined]

    def split_response(self, keys: Sequence[ShareKey], response: Message) -> dict[ShareKey, Message]:
        """Return the response as one response per share partition; UNKNOWN_SERVER_ERROR for one that it does not
        name."""
        results = {
            (topic.topic_id, one.partition): one
            for topic in response.results  # type: ignore[attr-defined]
            for one in topic.partitions
        }
        return {
            key: self.response_type(
                results=[self.topic_result(topic_id=key.topic_id, partitions=[results[key.topic_id, key.partition]])]
            )
            if (key.topic_id, key.partition) in results
            else self.error(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            for key in keys
        }

    def join(self, responses: Sequence[Message]) -> Message:
        """Return one response for those of single share partitions; a topic stands where its first partition does."""
        partitions: dict[Uuid, list[Struct]] = {}
        for response in responses:
            for topic in response.results:  # type: ignore[attr-defined]
                partitions.setdefault(topic.topic_id, []).extend(topic.partitions)
        return self.response_type(
            results=[
                self.topic_result(topic_id=topic_id, partitions=results) for topic_id, results in partitions.items()
            ]
        )


INITIALIZE: StateApi[initialize.InitializeShareGroupStateRequest] = StateApi(
    initialize.InitializeShareGroupStateResponse,
    initialize.InitializeStateResult,
    initialize.PartitionResult,
    lambda service, request, caller: service.initialize(request, caller),
)
READ: StateApi[read.ReadShareGroupStateRequest] = StateApi(
    read.ReadShareGroupStateResponse,
    read.ReadStateResult,
    read.PartitionResult,
    lambda service, request, caller: service.read(request, caller),
    {"state_epoch": 0, "start_offset": 0, "state_batches": []},
)
WRITE: StateApi[write.WriteShareGroupStateRequest] = StateApi(
    write.WriteShareGroupStateResponse,
    write.WriteStateResult,
    write.PartitionResult,
    lambda service, request, caller: service.write(request, caller),
)
DELETE: StateApi[delete.DeleteShareGroupStateRequest] = StateApi(
    delete.DeleteShareGroupStateResponse,
    delete.DeleteStateResult,
    delete.PartitionResult,
    lambda service, request, caller: service.delete(request, caller),
)
SUMMARY: StateApi[summary.ReadShareGroupStateSummaryRequest] = StateApi(
    summary.ReadShareGroupStateSummaryResponse,
    summary.ReadStateSummaryResult,
    summary.PartitionResult,
    lambda service, request, caller: service.summarize(request, caller),
    {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0},
)


def split(request: R) -> list[tuple[ShareKey, R]]:
    """Return the request as one request per share partition."""
    return [
        (
            ShareKey(request.group_id, topic.topic_id, partition.partition),
            type(request)(
                group_id=request.group_id, topics=[type(topic)(topic_id=topic.topic_id, partitions=[partition])]
            ),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def joined_request(parts: Sequence[R]) -> R:
    """Return one request for those of single share partitions of one group."""
    first = parts[0]
    topics: dict[Uuid, Any] = {}
    for part in parts:
        (topic,) = part.topics
        if topic.topic_id in topics:
            topics[topic.topic_id].partitions.extend(topic.partitions)
        else:
            topics[topic.topic_id] = type(topic)(topic_id=topic.topic_id, partitions=list(topic.partitions))
    return type(first)(group_id=first.group_id, topics=list(topics.values()))


def refuse_all(api: StateApi[R], request: R, refusal: Refusal) -> Message:
    """Return the error response to the whole request: every share partition has the error."""
    return api.join([api.error(key, refusal.code, refusal.message) for key, _ in split(request)])
