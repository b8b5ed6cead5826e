"""An operator that removes voters of the quorum and adds others while clients work (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed
from pessoa.wire.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from pessoa.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from pessoa.wire.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import TRANSIENT, Client
from tests.simulation.history import Violation
from tests.simulation.node import CONTROLLER_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.base.ids import Uuid

_TIMEOUT_MS = 2_000
_METADATA = "__cluster_metadata"
# Errors if an earlier attempt has succeeded, or another voter leads.
_EXPECTED = TRANSIENT | {ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND}


class Operator(Client):
    """Changes the voters; `controllers` are all nodes that can be voters, with the directory ids of their metadata
    logs."""

    controllers: Mapping[int, Uuid] = {}

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._change(await self._voters())
            except ChannelFailed:
                await self.back_off()
            await self.rest(2.0)

    async def _voters(self) -> list[ReplicaState]:
        topic = TopicData(topic_name=_METADATA, partitions=[PartitionData(partition_index=0)])
        response = await self.ask(
            self.some_broker(), DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, 2, _TIMEOUT_MS
        )
        if response.error_code or response.topics[0].partitions[0].error_code:
            return []
        return response.topics[0].partitions[0].current_voters

    async def _change(self, voters: list[ReplicaState]) -> None:
        absent = [one for one in self.controllers if one not in [voter.replica_id for voter in voters]]
        if not voters:
            return
        if absent and (len(voters) == 1 or self.rng.random() < 0.5):
            error = await self._add(self.rng.choice(absent))
        elif len(voters) > 1:
            error = await self._remove(self.rng.choice(voters))
        else:
            return
        if error not in _EXPECTED:
            raise Violation(f"{self.name} changes the voters: {error.name}")

    async def _add(self, node_id: int) -> ErrorCode:
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=_TIMEOUT_MS,
            voter_id=node_id,
            voter_directory_id=self.controllers[node_id],
            listeners=[Listener(name="CONTROLLER", host=f"n{node_id}", port=CONTROLLER_PORT)],
        )
        response = await self.ask(self.some_broker(), request, AddRaftVoterResponse, 1, 2 * _TIMEOUT_MS)
        error = ErrorCode.of(response.error_code)
        self.trace("adds voter %s: %s", node_id, error.name)
        return error

    async def _remove(self, voter: ReplicaState) -> ErrorCode:
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=voter.replica_id, voter_directory_id=voter.replica_directory_id
        )
        response = await self.ask(self.some_broker(), request, RemoveRaftVoterResponse, 0, 2 * _TIMEOUT_MS)
        error = ErrorCode.of(response.error_code)
        self.trace("removes voter %s: %s", voter.replica_id, error.name)
        return error
