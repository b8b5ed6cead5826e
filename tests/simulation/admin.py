"""An administrator: creates topics and, while other clients work, deletes topics, moves partitions and elects
leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.net.channel import ChannelFailed
from pessoa.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from pessoa.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pessoa.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from pessoa.wire.api.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import TRANSIENT, Client
from tests.simulation.history import TopicPartition, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMEOUT_MS = 2_000
# Errors while too few brokers are registered or unfenced.
_WAIT_FOR_BROKERS = frozenset((ErrorCode.INVALID_REPLICATION_FACTOR,))


class Admin(Client):
    partitions: Sequence[TopicPartition] = ()
    broker_ids: Sequence[int] = ()

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and wait until its partitions have leaders."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    assignments=[],
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
                )
            ],
            timeout_ms=_TIMEOUT_MS,
        )
        while True:
            try:
                response = await self.ask(self.some_broker(), request, CreateTopicsResponse, 7, 2 * _TIMEOUT_MS)
            except ChannelFailed:
                await self.back_off()
                continue
            error = ErrorCode.of(response.topics[0].error_code)
            self.trace("create %s: %s", name, error.name)
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            if error not in TRANSIENT and error not in _WAIT_FOR_BROKERS:
                raise Violation(f"{name} cannot be created: {error.name} {response.topics[0].error_message}")
            await self.back_off()

    async def run(self) -> None:
        number = 0
        while not self.is_stopping:
            number += 1
            work = self.rng.choice((self._create_and_delete, self._reassign, self._elect))
            try:
                await work(number)
            except ChannelFailed:
                await self.back_off()
            await self.rest(2.0)

    async def _create_and_delete(self, number: int) -> None:
        name = f"extra{number}"
        await self.create_topic(name, 1, min(2, len(self.broker_ids)))
        await self.rest(0.5)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=_TIMEOUT_MS)
        while True:
            try:
                response = await self.ask(self.some_broker(), request, DeleteTopicsResponse, 6, 2 * _TIMEOUT_MS)
            except ChannelFailed:
                await self.back_off()
                continue
            error = ErrorCode.of(response.responses[0].error_code)
            # Unknown topic: an earlier attempt has deleted it, or this broker's metadata does not have it yet.
            if error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return
            if error not in TRANSIENT:
                raise Violation(f"{name} cannot be deleted: {error.name}")
            await self.back_off()

    async def _reassign(self, number: int) -> None:
        partition = self.rng.choice(self.partitions)
        count = self.rng.randint(min(2, len(self.broker_ids)), min(3, len(self.broker_ids)))
        replicas = self.rng.sample(list(self.broker_ids), count)
        self.trace("move %s to %s", partition, replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=[
                ReassignableTopic(
                    name=partition.topic,
                    partitions=[ReassignablePartition(partition_index=partition.number, replicas=replicas)],
                )
            ],
        )
        await self.ask(self.some_broker(), request, AlterPartitionReassignmentsResponse, 0, 2 * _TIMEOUT_MS)

    async def _elect(self, number: int) -> None:
        partition = self.rng.choice(self.partitions)
        request = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=partition.topic, partitions=[partition.number])],
            timeout_ms=_TIMEOUT_MS,
        )
        await self.ask(self.some_broker(), request, ElectLeadersResponse, 2, 2 * _TIMEOUT_MS)
