"""An operator that moves replicas between the log directories of their brokers while clients work (KIP-113).

The operator does not wait for a move to end: a node may die during a move, and the next request may move the replica
back. The invariants are those of a cluster without moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed
from pessoa.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import TRANSIENT, Client
from tests.simulation.history import TopicPartition, Violation
from tests.simulation.node import BROKER_PORT

if TYPE_CHECKING:
    from collections.abc import Sequence

# Errors if the replica is not on this broker, or a directory is offline.
_EXPECTED = TRANSIENT | {ErrorCode.NONE, ErrorCode.LOG_DIR_NOT_FOUND}


class Mover(Client):
    partitions: Sequence[TopicPartition] = ()
    hosts: Sequence[str] = ()
    directories: Sequence[str] = ()

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._move(self.rng.choice(self.partitions), self.rng.choice(self.directories))
            except ChannelFailed:
                await self.back_off()
            await self.rest(0.4)

    async def _move(self, partition: TopicPartition, path: str) -> None:
        topic = AlterReplicaLogDirTopic(name=partition.topic, partitions=[partition.number])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        host = self.rng.choice(self.hosts)
        response = await self.ask((host, BROKER_PORT), request, AlterReplicaLogDirsResponse, 2)
        error = ErrorCode.of(response.results[0].partitions[0].error_code)
        self.trace("moves %s to %s on %s: %s", partition, path, host, error.name)
        if error not in _EXPECTED:
            raise Violation(f"{self.name} moves {partition} to {path} on {host}: {error.name}")
