"""Telling the controller which log directory each replica is in (KIP-858).

Only then does the controller know which replicas are lost with a directory. A broker with one directory sends nothing,
since the controller assigns that one by itself. With more, every metadata delta is searched for replicas on this broker
whose directory is wrong in it; they are collected, and one request is in flight at a time. A replica that gets an error
is sent again with the next delta, or a little later.

A directory that has failed is reported like any other: the controller may believe that the replica is in a directory
that works, and would leave it the leader for ever.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pessoa.broker.controller_client import ControllerUnavailable
from pessoa.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import OwnRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pessoa.base.ids import Uuid
    from pessoa.broker.controller_client import ControllerClient
    from pessoa.broker.services import BrokerServices
    from pessoa.replication.partition import Partition

log = logging.getLogger("pessoa.broker")

_RETRY_MS = 500
# As many as Kafka's brokers put into one request.
_MAX_ASSIGNMENTS = 2_250


class DirectoryAssignments:
    def __init__(self, broker: BrokerServices, controller: ControllerClient, broker_epoch: Callable[[], int]) -> None:
        self._broker = broker
        self._controller = controller
        self._broker_epoch = broker_epoch
        # (topic, partition) → the directory that it is in
        self._unsent_assignments: dict[tuple[Uuid, int], Uuid] = {}
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<DirectoryAssignments: {len(self._unsent_assignments)} waiting>"

    def update(self, topic_ids: Iterable[Uuid]) -> None:
        """Compare the directories of these topics' replicas with the metadata, and send those that differ to the
        controller."""
        for topic_id in topic_ids:
            for partition in self._broker.replicas.by_id.get(topic_id, {}).values():
                self._update_partition(partition)
        if self._unsent_assignments and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _update_partition(self, partition: Partition) -> None:
        topic = self._broker.image.topics.by_id.get(partition.topic_id)
        known = topic.partitions.get(partition.index) if topic is not None else None
        directory = partition.directory.meta.directory_id if partition.directory.meta is not None else None
        if known is None or directory is None or self._broker.node_id not in known.replicas:
            return
        key = (partition.topic_id, partition.index)
        if known.directory_of(self._broker.node_id) == directory:
            self._unsent_assignments.pop(key, None)
        else:
            self._unsent_assignments[key] = directory

    async def _send_all(self) -> None:
        try:
            while self._unsent_assignments:
                sent = dict(list(self._unsent_assignments.items())[:_MAX_ASSIGNMENTS])
                if await self._send(sent):
                    for key, directory in sent.items():
                        if self._unsent_assignments.get(key) == directory:
                            del self._unsent_assignments[key]
                else:
                    await self._broker.clock.wait_ms(_RETRY_MS)
        finally:
            self._task = None

    async def _send(self, assignments: dict[tuple[Uuid, int], Uuid]) -> bool:
        """Send the assignments; return whether the controller has accepted them."""
        by_directory: dict[Uuid, dict[Uuid, list[PartitionData]]] = {}
        for (topic_id, index), directory in assignments.items():
            topics = by_directory.setdefault(directory, {})
            topics.setdefault(topic_id, []).append(PartitionData(partition_index=index))
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryData(
                    id=one, topics=[TopicData(topic_id=topic, partitions=parts) for topic, parts in of.items()]
                )
                for one, of in by_directory.items()
            ],
        )
        try:
            response = await self._controller.ask(request, OwnRequest(0), self._broker.config.request_timeout_ms)
        except ControllerUnavailable:
            return False
        assert isinstance(response, AssignReplicasToDirsResponse)
        if response.error_code:
            log.info("the directories of replicas were not taken: %s", ErrorCode.of(response.error_code).text)
        return not response.error_code
