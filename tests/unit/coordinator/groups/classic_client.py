"""A client of the classic protocol, for short tests."""

from __future__ import annotations

from collections.abc import Sequence

from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from tests.unit.coordinator.groups.bench import Bench

GROUP = "group"
DELAY_MS = 3_000


def subscription(
    *topics: str, version: int = 1, owned: Sequence[tuple[str, Sequence[int]]] = (), rack: str | None = None
) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[TopicPartition(topic=topic, partitions=list(indexes)) for topic, indexes in owned],
        rack_id=rack,
    )
    return version.to_bytes(2, "big") + message.encode(version)


ORDERS = subscription("orders")


class ClassicClient:
    """Sends a client's requests to the bench."""

    def __init__(self, bench: Bench, group: str = GROUP) -> None:
        self.bench = bench
        self.group = group

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", ORDERS),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client_id: str = "client",
    ) -> int:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        return self.bench.send(request, version, client_id)

    def joined(self, token: int) -> JoinGroupResponse:
        return self.bench.answer(JoinGroupResponse, token)

    def member_id(self, client_id: str = "client") -> str:
        """Return the member id that the first JoinGroup of a dynamic member gets."""
        response = self.joined(self.join(client_id=client_id))
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return response.member_id

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
    ) -> int:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        return self.bench.send(request, 5)

    def synced(self, token: int) -> SyncGroupResponse:
        return self.bench.answer(SyncGroupResponse, token)

    def heartbeat_request(self, member_id: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> int:
        request = self.heartbeat_request(member_id, generation, instance)
        return self.bench.ask(HeartbeatResponse, request, 4).error_code

    def heartbeat_error(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        return self.bench.refusal(self.heartbeat_request(member_id, generation, instance), 4).code

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        request = LeaveGroupRequest(
            group_id=self.group,
            members=[MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members],
        )
        response = self.bench.ask(LeaveGroupResponse, request, 5)
        assert response.error_code == ErrorCode.NONE
        return [each.error_code for each in response.members]

    def stable_group(self, count: int = 2) -> list[str]:
        """Create a stable group of generation 1 with `count` dynamic members; return their ids, with the leader
        first."""
        members = [self.member_id() for _ in range(count)]
        tokens = [self.join(member) for member in members]
        self.bench.pass_time(DELAY_MS * 2)
        assert [self.joined(token).generation_id for token in tokens] == [1] * count
        assignments = {member: f"assignment of {member}".encode() for member in members}
        syncs = [self.sync(member, 1, assignments if index == 0 else None) for index, member in enumerate(members)]
        for token in syncs:
            assert self.synced(token).error_code == ErrorCode.NONE
        return members
