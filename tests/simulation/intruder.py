"""A client without rights that sends harmful requests: as a user without ACLs, with a wrong password, and without any
login, on the listeners of clients, brokers and controllers.

Each request would do harm if it were executed: append a record that no client has written, report a log end that a
replica never reached, remove replicas from the ISR, create a topic or ACLs, set a password for the administrator. A
request that is executed is a Violation at once, and its effects are Violations for the other checkers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.broker.envelope_format import seal
from pessoa.net.channel import Channel, ChannelFailed
from pessoa.records.builder import build_batch
from pessoa.records.record import Record
from pessoa.security.acl import ALL, ALLOW, CLUSTER, CLUSTER_NAME, LITERAL, WILDCARD
from pessoa.security.sasl.client_login import Credentials, log_in
from pessoa.security.sasl.exchange import AuthenticationFailed
from pessoa.security.sasl.scram_keys import MIN_ITERATIONS
from pessoa.wire.api.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from pessoa.wire.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from pessoa.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pessoa.wire.api.share_fetch import ShareFetchRequest
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from pessoa.wire.api.vote import PartitionData as VotePartition
from pessoa.wire.api.vote import TopicData as VoteTopic
from pessoa.wire.api.vote import VoteRequest
from pessoa.wire.api.write_share_group_state import PartitionData as StatePartition
from pessoa.wire.api.write_share_group_state import WriteShareGroupStateRequest, WriteStateData
from pessoa.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import Client
from tests.simulation.history import TopicPartition, Violation
from tests.simulation.node import BROKER_PORT, CONTROLLER_PORT, EPOCH_MS
from tests.simulation.rights import DENIED, error_codes
from tests.simulation.users import (
    INTRUDER,
    INTRUDER_PASSWORD,
    MECHANISM,
    MECHANISM_NUMBER,
    NODE_PORT,
    password_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.base.ids import Uuid
    from pessoa.net.channel import Login
    from pessoa.security.sasl.client_login import Ask
    from pessoa.wire.schema import Message

_TIMEOUT_MS = 1_000
# Errors that say nothing about rights: the controller could not be reached.
_EXCUSED = frozenset((ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT))


class Intruder(Client):
    partitions: Sequence[TopicPartition] = ()
    broker_hosts: Sequence[str] = ()
    controller_hosts: Sequence[str] = ()
    cluster_id = ""
    # The share group, or None if the plan has none.
    share_group: str | None = None
    # Returns the topic id, or None before the topic exists.
    topic_id: Callable[[], Uuid | None] = staticmethod(lambda: None)

    async def run(self) -> None:
        number = 0
        while not self.is_stopping:
            number += 1
            await self.rng.choice((self._as_user, self._as_user, self._as_stranger, self._with_wrong_password))(number)
            await self.rest(1.0)

    # Ways to connect.

    async def _as_user(self, number: int) -> None:
        """Send a request as a user that is logged in and has no ACLs."""
        attack = self.rng.choice((self._attack_as_client, self._attack_brokers, self._attack_controllers))
        port, request, version = attack(number)
        response = await self._try(port, request, version, self._log_in)
        if response is None:
            return
        codes = error_codes(response)
        if codes <= {ErrorCode.NONE} or not codes <= DENIED | _EXCUSED:
            raise Violation(f"the intruder asks for {request!r}, and gets {response!r}")

    async def _as_stranger(self, number: int) -> None:
        """Send a request without a login; no response may come."""
        attack = self.rng.choice((self._attack_as_client, self._attack_brokers, self._attack_controllers))
        port, request, version = attack(number)
        response = await self._try(port, request, version, None)
        if response is not None:
            raise Violation(f"{response!r} was told to a client that has not logged in")

    async def _with_wrong_password(self, number: int) -> None:
        port, request, version = self._attack_as_client(number)
        response = await self._try(port, request, version, self._log_in_wrongly)
        if response is not None:
            raise Violation(f"{response!r} was told to a client with a wrong password")

    async def _try(self, port: int, request: Message, version: int, login: Login | None) -> Message | None:
        hosts = self.controller_hosts if port == CONTROLLER_PORT else self.broker_hosts
        channel = Channel(self.network, self.rng.choice(hosts), port, self.name, login=login)
        try:
            return await channel.send(request, version, _TIMEOUT_MS)
        except ChannelFailed as problem:
            self.trace("%s: %s", type(request).__name__, problem)
            return None
        finally:
            channel.close()

    async def _log_in(self, peer: str, ask: Ask) -> int:
        is_client = peer.endswith(f":{BROKER_PORT}")
        credentials = (
            Credentials(MECHANISM, INTRUDER, password_of(INTRUDER, 0))
            if is_client
            else Credentials("PLAIN", INTRUDER, INTRUDER_PASSWORD)
        )
        try:
            return await log_in(credentials, ask, self.rng.randbytes)
        except AuthenticationFailed as problem:
            raise ChannelFailed(f"{peer}: {problem}") from problem

    async def _log_in_wrongly(self, peer: str, ask: Ask) -> int:
        """Try to log in with a wrong password, as the administrator or as an unknown user."""
        user = self.rng.choice(("admin", "node", "nobody"))
        try:
            await log_in(Credentials(MECHANISM, user, password_of(INTRUDER, 0)), ask, self.rng.randbytes)
        except AuthenticationFailed as problem:
            raise ChannelFailed(f"{peer}: {problem}") from problem
        raise Violation(f"the intruder has logged in as {user}")

    # The attacks: port, request and version.

    def _attack_as_client(self, number: int) -> tuple[int, Message, int]:
        requests: list[tuple[Message, int]] = [
            (self._produce(number), 12),
            (self._fetch(-1), 12),
            (self._create_topic(number), 7),
            (self._delete_topic(), 6),
            (self._grant_itself_everything(), 3),
            (self._set_a_password(), 0),
        ]
        if self.share_group is not None:
            requests += [(self._join(self.share_group), 1), (self._share_fetch(self.share_group), 2)]
        return BROKER_PORT, *self.rng.choice(requests)

    def _attack_brokers(self, number: int) -> tuple[int, Message, int]:
        requests: list[tuple[Message, int]] = [
            (self._produce(number), 12),
            (self._fetch(self._some_broker_id()), 12),
            (self._end_a_transaction(), 1),
        ]
        topic_id = self.topic_id()
        if self.share_group is not None and topic_id is not None:
            requests.append((self._write_share_state(self.share_group, topic_id), 1))
        return NODE_PORT, *self.rng.choice(requests)

    def _attack_controllers(self, number: int) -> tuple[int, Message, int]:
        envelope = seal(self._create_topic(number), 7, self.name, "User:admin", "127.0.0.1")
        requests: list[tuple[Message, int]] = [(envelope, 0), (self._heartbeat(), 1), (self._vote(), 2)]
        topic_id = self.topic_id()
        if topic_id is not None:
            requests.append((self._leave_one_in_sync(topic_id), 3))
        return CONTROLLER_PORT, *self.rng.choice(requests)

    def _some_broker_id(self) -> int:
        return int(self.rng.choice(self.broker_hosts).removeprefix("n"))

    def _produce(self, number: int) -> ProduceRequest:
        partition = self.rng.choice(self.partitions)
        data = build_batch([Record(0, EPOCH_MS, None, b"%s:%d" % (self.name.encode(), number))])
        wanted = PartitionProduceData(index=partition.number, records=memoryview(data))
        return ProduceRequest(
            acks=self.rng.choice((1, -1)),
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[wanted])],
        )

    def _fetch(self, replica_id: int) -> FetchRequest:
        """Return a fetch of a replica from a large offset, after which the leader would take all its records for
        committed."""
        partition = self.rng.choice(self.partitions)
        wanted = FetchPartition(
            partition=partition.number,
            current_leader_epoch=-1,
            fetch_offset=0 if replica_id < 0 else self.rng.randrange(50),
            partition_max_bytes=1 << 16,
        )
        topic = FetchTopic(topic=partition.topic, partitions=[wanted])
        return FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=0, topics=[topic])

    def _create_topic(self, number: int) -> CreateTopicsRequest:
        topic = CreatableTopic(
            name=f"{INTRUDER}{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        return CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)

    def _delete_topic(self) -> DeleteTopicsRequest:
        topic = DeleteTopicState(name=self.partitions[0].topic, topic_id=ZERO_UUID)
        return DeleteTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)

    def _grant_itself_everything(self) -> CreateAclsRequest:
        entry = AclCreation(
            resource_type=CLUSTER,
            resource_name=CLUSTER_NAME,
            resource_pattern_type=LITERAL,
            principal=f"User:{INTRUDER}",
            host=WILDCARD,
            operation=ALL,
            permission_type=ALLOW,
        )
        return CreateAclsRequest(creations=[entry])

    def _set_a_password(self) -> AlterUserScramCredentialsRequest:
        upsertion = ScramCredentialUpsertion(
            name="admin", mechanism=MECHANISM_NUMBER, iterations=MIN_ITERATIONS, salt=b"salt", salted_password=b"p" * 32
        )
        return AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])

    def _end_a_transaction(self) -> WriteTxnMarkersRequest:
        partition = self.rng.choice(self.partitions)
        marker = WritableTxnMarker(
            producer_id=self.rng.randrange(4),
            producer_epoch=self.rng.randrange(4),
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.number])],
            coordinator_epoch=self.rng.randrange(1_000),
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def _join(self, group_id: str) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=self.name,
            member_epoch=0,
            subscribed_topic_names=[self.partitions[0].topic],
        )

    def _share_fetch(self, group_id: str) -> ShareFetchRequest:
        return ShareFetchRequest(
            group_id=group_id,
            member_id=self.name,
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 16,
            max_records=500,
            batch_size=500,
            topics=[],
            forgotten_topics_data=[],
        )

    def _write_share_state(self, group_id: str, topic_id: Uuid) -> WriteShareGroupStateRequest:
        """Return a write of share state as by a share-partition leader: the group has read everything."""
        partition = StatePartition(
            partition=self.rng.choice(self.partitions).number,
            state_epoch=1_000,
            leader_epoch=1_000,
            start_offset=1 << 40,
            state_batches=[],
        )
        topic = WriteStateData(topic_id=topic_id, partitions=[partition])
        return WriteShareGroupStateRequest(group_id=group_id, topics=[topic])

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._some_broker_id(), current_metadata_offset=0, want_fence=True, want_shut_down=True
        )

    def _vote(self) -> VoteRequest:
        wanted = VotePartition(
            partition_index=0, replica_epoch=1_000, replica_id=1, last_offset_epoch=1_000, last_offset=1 << 40
        )
        topic = VoteTopic(topic_name="__cluster_metadata", partitions=[wanted])
        return VoteRequest(cluster_id=self.cluster_id, topics=[topic])

    def _leave_one_in_sync(self, topic_id: Uuid) -> AlterPartitionRequest:
        broker_id = self._some_broker_id()
        partition = PartitionData(
            partition_index=self.rng.choice(self.partitions).number,
            leader_epoch=self.rng.randrange(3),
            new_isr_with_epochs=[BrokerState(broker_id=broker_id)],
            partition_epoch=self.rng.randrange(6),
        )
        topic = TopicData(topic_id=topic_id, partitions=[partition])
        return AlterPartitionRequest(broker_id=broker_id, topics=[topic])
