"""Clients for tests of quotas: raw connections with a client id of their own, which return throttle times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pessoa.base.ids import ZERO_UUID
from pessoa.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from pessoa.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from pessoa.wire.api.fetch import FetchResponse
from pessoa.wire.api.produce import ProduceResponse
from pessoa.wire.frames import request_frame
from pessoa.wire.schema import Message
from tests.support.batches import plain
from tests.support.crash_wire import Wire, fetch_request, now_ms, produce_request

# The last versions that name their topics (later ones have topic ids).
VERSION = 12
TOPIC = "t"


class NamedWire(Wire):
    """A connection whose requests have the client id that is given."""

    def __init__(self, port: int, client_id: str) -> None:
        super().__init__(port)
        self._client_id = client_id

    def write(self, request: Message, version: int) -> int:
        self._correlation_id += 1
        self.send(b"".join(request_frame(request, version, self._correlation_id, self._client_id)))
        return self._correlation_id

    def produce(self, size: int, version: int = VERSION, acks: int = -1) -> int:
        """Produce a batch of `size` bytes; return the throttle time of the response."""
        request = produce_request(TOPIC, plain(size=size, timestamp=now_ms()), acks)
        response = self.ask(request, ProduceResponse, version)
        assert response.responses[0].partition_responses[0].error_code == 0
        return int(response.throttle_time_ms)

    def fetch(self, offset: int, version: int = VERSION, **settings: Any) -> Any:
        request = fetch_request(TOPIC, offset)
        for name, value in settings.items():
            setattr(request, name, value)
        return self.ask(request, FetchResponse, version)

    def create_topics(self, topics: Mapping[str, int], version: int = 7, *, validate_only: bool = False) -> Any:
        """Create topics, each with so many partitions."""
        wanted = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
            for name, count in topics.items()
        ]
        request = CreateTopicsRequest(topics=wanted, timeout_ms=30_000, validate_only=validate_only)
        return self.ask(request, CreateTopicsResponse, version)

    def delete_topics(self, names: list[str], version: int) -> Any:
        states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names] if version >= 6 else []
        request = DeleteTopicsRequest(topics=states, topic_names=[] if version >= 6 else names, timeout_ms=30_000)
        return self.ask(request, DeleteTopicsResponse, version)

    def create_partitions(self, topics: Mapping[str, int], version: int, *, validate_only: bool = False) -> Any:
        """Raise the partition counts of topics to these."""
        wanted = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in topics.items()]
        request = CreatePartitionsRequest(topics=wanted, timeout_ms=30_000, validate_only=validate_only)
        return self.ask(request, CreatePartitionsResponse, version)

    def alter_quotas(self, values: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float | None]]) -> None:
        """Set the quotas of entities; None removes one."""
        entries = [
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in wanted.items()],
            )
            for entity, wanted in values.items()
        ]
        request = AlterClientQuotasRequest(entries=entries, validate_only=False)
        response = self.ask(request, AlterClientQuotasResponse, 1)
        assert [one.error_code for one in response.entries] == [0] * len(entries), response


def records_in(response: Any) -> int:
    return sum(len(one.records or b"") for topic in response.responses for one in topic.partitions)
