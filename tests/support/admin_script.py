"""A script of admin requests that is run on Apache Kafka and on us, and which differences between the two are allowed.

Requests are messages of `pessoa.wire`, so both sides get the same requests. Responses are compared field by field:
errors by their codes (error messages are our own), ids and times only by whether they are present.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from pessoa.wire.api.alter_configs import AlterableConfig as WholeConfig
from pessoa.wire.api.alter_configs import AlterConfigsRequest
from pessoa.wire.api.alter_configs import AlterConfigsResource as WholeResource
from pessoa.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pessoa.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pessoa.wire.api.create_delegation_token import CreateDelegationTokenRequest
from pessoa.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pessoa.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pessoa.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pessoa.wire.api.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from pessoa.wire.api.describe_delegation_token import DescribeDelegationTokenRequest
from pessoa.wire.api.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from pessoa.wire.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from pessoa.wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pessoa.wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pessoa.wire.api.renew_delegation_token import RenewDelegationTokenRequest
from pessoa.wire.api.unregister_broker import UnregisterBrokerRequest
from pessoa.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import response_header_version
from pessoa.wire.schema import Message, Struct

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
LATEST = -1


class Step(NamedTuple):
    title: str
    request: Message
    version: int


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=30_000, validate_only=validate_only)


def delete(*names: str | Uuid) -> DeleteTopicsRequest:
    states = [
        DeleteTopicState(name=None, topic_id=name) if isinstance(name, Uuid) else DeleteTopicState(
            name=name, topic_id=ZERO_UUID
        )
        for name in names
    ]  # fmt: skip
    return DeleteTopicsRequest(topics=states, timeout_ms=30_000)


def grow(name: str, count: int, assignments: Sequence[list[int]] | None = None) -> CreatePartitionsRequest:
    wanted = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=wanted)]
    return CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=False)


def alter(kind: int, name: str, *changes: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def replace(kind: int, name: str, **values: str | None) -> AlterConfigsRequest:
    configs = [WholeConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = WholeResource(resource_type=kind, resource_name=name, configs=configs)
    return AlterConfigsRequest(resources=[resource], validate_only=False)


def elect(kind: int, *partitions: tuple[str, int]) -> ElectLeadersRequest:
    wanted = [TopicPartitions(topic=name, partitions=[index]) for name, index in partitions]
    return ElectLeadersRequest(election_type=kind, topic_partitions=wanted or None, timeout_ms=30_000)


def reassign(name: str, index: int, replicas: list[int] | None, allow: bool = True) -> Message:
    topics = [
        ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
    ]
    return AlterPartitionReassignmentsRequest(timeout_ms=30_000, allow_replication_factor_change=allow, topics=topics)


def feature(name: str, level: int, upgrade_type: int = 1, validate_only: bool = False) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    return UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=validate_only)


def quota(entity: dict[str, str | None], *operations: tuple[str, float | None]) -> AlterClientQuotasRequest:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in operations],
    )
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)


def scram(
    *, deleted: Sequence[tuple[str, int]] = (), upserted: Sequence[tuple[str, int, int]] = ()
) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deleted],
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=iterations, salt=b"salty", salted_password=b"p" * 32
            )
            for name, mechanism, iterations in upserted
        ],
    )


def _topic_steps() -> Iterator[tuple[str, Message]]:
    yield "a topic", create(topic("a", 2, configs={"retention.ms": "60000", "cleanup.policy": "compact"}))
    yield "defaults", create(topic("b", -1, -1))
    yield "it exists", create(topic("a"))
    yield "several, some wrong", create(topic("c"), topic("d", 0), topic("e", 1, 2), topic("f", -5), topic("g", 1, 0))
    yield "a name twice", create(topic("h"), topic("i"), topic("h"))
    yield (
        "names",
        create(topic(""), topic("."), topic(".."), topic("sp ace"), topic("x" * 250), topic("x" * 249), topic("ü")),
    )
    yield "the metadata topic", create(topic("__cluster_metadata"))
    yield "dots", create(topic("dot.ted"))
    yield "a collision", create(topic("dot_ted"))
    yield "collision within a request", create(topic("p.q"), topic("p_q"))
    yield (
        "wrong configs",
        create(
            topic("w1", configs={"retention.ms": "soon"}),
            topic("w2", configs={"no.such.key": "1"}),
            topic("w3", configs={"cleanup.policy": "burn"}),
            topic("w4", configs={"retention.ms": None}),
            topic("w5", configs={"segment.bytes": "1"}),
            topic("w6", configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
        ),
    )
    yield "validate only", create(topic("v", 3), topic("a"), validate_only=True)
    yield "assigned", create(topic("assigned", -1, -1, {0: [1], 1: [1]}))
    yield (
        "assigned wrongly",
        create(
            topic("x1", 1, -1, {0: [1]}),
            topic("x2", -1, 1, {0: [1]}),
            topic("x3", -1, -1, {1: [1]}),
            topic("x4", -1, -1, {0: []}),
            topic("x5", -1, -1, {0: [9]}),
            topic("x6", -1, -1, {0: [1, 1]}),
            topic("x7", -1, -1, {0: [1], 1: [1, 1]}),
        ),
    )
    yield "too many partitions", create(topic("many", 10_001), topic("few"))
    yield "more partitions", grow("a", 4)
    yield "assigned partitions", grow("a", 5, [[1]])
    yield "no more partitions", grow("a", 5)
    yield "fewer partitions", grow("a", 1)
    yield "partitions of nothing", grow("nope", 3)
    yield "partitions without assignment", grow("a", 7, [[1]])
    yield "partitions assigned to an unknown broker", grow("a", 6, [[9]])
    yield "partitions assigned twice", grow("a", 6, [[1, 1]])
    yield "delete", delete("b", "nope")
    yield "delete what is not there by id", delete(Uuid.of(123456789))
    yield (
        "delete without a name",
        DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=ZERO_UUID)], timeout_ms=30_000),
    )
    yield (
        "delete by two names",
        DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=Uuid.of(4711))], timeout_ms=30_000),
    )
    yield "delete twice", delete("c", "c")


def _config_steps() -> Iterator[tuple[str, Message]]:
    yield "set", alter(TOPIC, "a", ("retention.ms", SET, "5000"), ("segment.ms", SET, "7000"))
    yield "set the same", alter(TOPIC, "a", ("retention.ms", SET, "5000"))
    yield "append", alter(TOPIC, "a", ("cleanup.policy", APPEND, "delete"))
    yield "append what is there", alter(TOPIC, "a", ("cleanup.policy", APPEND, "delete"))
    yield "subtract", alter(TOPIC, "a", ("cleanup.policy", SUBTRACT, "compact"))
    yield "append to a default", alter(TOPIC, "i", ("cleanup.policy", APPEND, "compact"))
    yield "append to a number", alter(TOPIC, "a", ("retention.ms", APPEND, "1"))
    yield "unset", alter(TOPIC, "a", ("segment.ms", DELETE, None), ("max.message.bytes", DELETE, None))
    yield "an unknown topic", alter(TOPIC, "nope", ("retention.ms", SET, "5000"))
    yield "an unknown topic and a wrong value", alter(TOPIC, "nope", ("retention.ms", SET, "soon"))
    yield "an impossible topic", alter(TOPIC, "no pe", ("retention.ms", SET, "5000"))
    yield "a wrong value", alter(TOPIC, "a", ("retention.ms", SET, "soon"))
    yield "an unknown key", alter(TOPIC, "a", ("no.such.key", SET, "1"))
    yield "unset an unknown key", alter(TOPIC, "a", ("no.such.key", DELETE, None))
    yield "no value", alter(TOPIC, "a", ("retention.ms", SET, None))
    yield "a key twice", alter(TOPIC, "a", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    yield "an unknown operation", alter(TOPIC, "a", ("retention.ms", 9, "1"))
    yield "minimum in sync", alter(TOPIC, "a", ("min.insync.replicas", SET, "2"))
    yield "minimum in sync of all", alter(BROKER, "", ("min.insync.replicas", SET, "2"))
    yield "minimum in sync of one", alter(BROKER, "1", ("min.insync.replicas", SET, "2"))
    yield "no minimum in sync", alter(BROKER, "", ("min.insync.replicas", DELETE, None))
    yield "minimum in sync back", alter(BROKER, "", ("min.insync.replicas", SET, "1"))
    yield "all brokers", alter(BROKER, "", ("log.cleaner.threads", SET, "2"))
    yield "one broker", alter(BROKER, "1", ("log.cleaner.threads", SET, "1"))
    yield "one broker the same", alter(BROKER, "1", ("log.cleaner.threads", SET, "1"))
    yield "a broker's fixed key", alter(BROKER, "1", ("node.id", SET, "3"))
    yield "a broker's own key for all", alter(BROKER, "", ("ssl.keystore.location", SET, "/x"))
    yield "a broker's wrong value", alter(BROKER, "1", ("log.cleaner.threads", SET, "many"))
    yield "another broker", alter(BROKER, "9", ("log.cleaner.threads", SET, "2"))
    yield "no broker", alter(BROKER, "one", ("log.cleaner.threads", SET, "2"))
    yield "a group", alter(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    yield "a group's wrong key", alter(GROUP, "g", ("no.such.key", SET, "50000"))
    yield "a group without a name", alter(GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    yield "client metrics", alter(CLIENT_METRICS, "m", ("interval.ms", SET, "1000"), ("metrics", SET, "*"))
    yield "client metrics' wrong key", alter(CLIENT_METRICS, "m", ("no.such.key", SET, "1"))
    yield "an unknown type", alter(77, "a", ("retention.ms", SET, "1"))
    yield "replace", replace(TOPIC, "i", retention_ms="9000")
    yield "replace again", replace(TOPIC, "i", segment_ms="9000")
    yield "replace with nothing", replace(TOPIC, "i")
    yield "replace wrongly", replace(TOPIC, "i", retention_ms="soon")
    yield "replace without a value", replace(TOPIC, "i", retention_ms=None)


def _other_steps() -> Iterator[tuple[str, Message]]:
    yield "preferred", elect(0, ("a", 0), ("a", 77), ("nope", 0))
    yield "preferred of all", elect(0)
    yield "unclean", elect(1, ("a", 0))
    yield "same replicas", reassign("a", 0, [1])
    yield "other replicas", reassign("a", 0, [9])
    yield "no replicas", reassign("a", 0, [])
    yield "a replica twice", reassign("a", 0, [1, 1])
    yield "nothing to cancel", reassign("a", 0, None)
    yield "reassign nothing", reassign("nope", 0, [1])
    yield "a feature as it is", feature("group.version", 1)
    yield "a feature down", feature("group.version", 0)
    yield "a feature down, asked for", feature("group.version", 0, 2)
    yield "a feature up", feature("group.version", 1)
    yield "a feature too high", feature("group.version", 9)
    yield "a feature unknown", feature("no.such.version", 1)
    yield "metadata.version down", feature("metadata.version", 29, 2)
    yield "metadata.version down, unsafely", feature("metadata.version", 29, 3)
    yield "metadata.version unknown", feature("metadata.version", 99)
    yield "user quota", quota({"user": "alice"}, ("producer_byte_rate", 1024.0), ("request_percentage", 12.5))
    yield "user quota again", quota({"user": "alice"}, ("producer_byte_rate", 1024.0))
    yield "default user and client", quota({"user": None, "client-id": "c"}, ("consumer_byte_rate", 2048.0))
    yield "address quota", quota({"ip": "127.0.0.1"}, ("connection_creation_rate", 10.0))
    yield "quota removed", quota({"user": "alice"}, ("request_percentage", None), ("consumer_byte_rate", None))
    yield "quota of nothing", quota({}, ("producer_byte_rate", 1.0))
    yield "quota of something unknown", quota({"planet": "earth"}, ("producer_byte_rate", 1.0))
    yield "quota with an unknown key", quota({"user": "bob"}, ("smiles_per_hour", 1.0))
    yield "quota with the wrong key", quota({"ip": "127.0.0.1"}, ("producer_byte_rate", 1.0))
    yield "quota of a user without a name", quota({"user": ""}, ("producer_byte_rate", 1.0))
    yield "quota below zero", quota({"user": "bob"}, ("producer_byte_rate", -1.0))
    yield "quota of a fraction", quota({"user": "bob"}, ("producer_byte_rate", 1.5))
    yield "quota of a combination", quota({"user": "bob", "ip": "127.0.0.1"}, ("producer_byte_rate", 1.0))
    yield "credentials", scram(upserted=[("alice", 1, 4096), ("alice", 2, 8192), ("bob", 1, 16384)])
    yield "credential deleted", scram(deleted=[("alice", 2)])
    yield "credential not there", scram(deleted=[("alice", 2), ("carol", 1)])
    yield "credential of a user without a name", scram(upserted=[("", 1, 4096)])
    yield "few iterations", scram(upserted=[("dave", 1, 4095)])
    yield "many iterations", scram(upserted=[("dave", 1, 16385)])
    yield "unknown mechanism", scram(upserted=[("dave", 7, 4096)], deleted=[("bob", 9)])
    yield "credential twice", scram(upserted=[("dave", 1, 4096), ("dave", 1, 8192), ("eve", 1, 4096)])
    yield "unregister an unknown broker", UnregisterBrokerRequest(broker_id=9)


def quotas(*filters: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in filters]
    return DescribeClientQuotasRequest(components=components, strict=strict)


def quorum(topic_name: str, *partitions: int) -> DescribeQuorumRequest:
    wanted = [PartitionData(partition_index=index) for index in partitions]
    return DescribeQuorumRequest(topics=[TopicData(topic_name=topic_name, partitions=wanted)])


def _describe_steps() -> Iterator[tuple[str, Message]]:
    yield "all", quotas()
    yield "all, strictly", quotas(strict=True)
    yield "a user", quotas(("user", 0, "alice"))
    yield "any user", quotas(("user", 2, None))
    yield "any user alone", quotas(("user", 2, None), strict=True)
    yield "the default user", quotas(("user", 1, None))
    yield "no kind", quotas(("", 0, "x"))
    yield "an unknown kind", quotas(("planet", 0, "x"))
    yield "an unknown match", quotas(("user", 9, None))
    yield "an exact match of nothing", quotas(("user", 0, None))
    yield "the default with a name", quotas(("user", 1, "x"))
    yield "a kind twice", quotas(("user", 0, "x"), ("user", 1, None))
    yield "kinds that do not mix", quotas(("user", 0, "x"), ("ip", 0, "1.1.1.1"))
    yield "all users", DescribeUserScramCredentialsRequest(users=None)
    yield "no users", DescribeUserScramCredentialsRequest(users=[])
    named = [UserName(name=name) for name in ("alice", "bob", "carol", "carol", "")]
    yield "some", DescribeUserScramCredentialsRequest(users=named)
    yield "all", ListPartitionReassignmentsRequest(topics=None)
    nothing = ListPartitionReassignmentsTopics(name="nope", partition_indexes=[0])
    yield "one that is not there", ListPartitionReassignmentsRequest(topics=[nothing])
    yield "another topic", quorum("orders", 0)
    yield "another partition", quorum("__cluster_metadata", 0, 1)
    yield "a token", CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    yield "a token longer", RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1)
    yield "a token shorter", ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1)
    yield "tokens", DescribeDelegationTokenRequest(owners=None)


def script() -> list[Step]:
    return [
        Step(f"{type(request).__name__.removesuffix('Request')}: {title}", request, type(request).versions.last)
        for title, request in (*_topic_steps(), *_config_steps(), *_other_steps(), *_describe_steps())
    ]


# ---- On Apache ----


def ask(port: int, step: Step) -> Message:
    """Send the request of this step on a connection of its own; return the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(b"".join(request_frame(step.request, step.version, 7, "script")))
        stream = connection.makefile("rb")
        size = int.from_bytes(stream.read(4), "big")
        body = stream.read(size)
    kind = ApiKey(step.request.api_key)
    header = 4 + (1 if response_header_version(kind.request, step.version) else 0)
    return kind.response.decode(body[header:], step.version)


# ---- What is compared ----

_SENTENCES = {"error_message", "throttle_time_ms", "unknown_tagged_fields"}


def comparable(value: Any) -> Any:
    """Return a response without the fields that differ between clusters, and with unordered lists sorted."""
    if isinstance(value, Struct):
        return {
            field.name: comparable(getattr(value, field.name)) for field in value.fields if field.name not in _SENTENCES
        }
    if isinstance(value, list):
        return sorted((comparable(item) for item in value), key=repr)
    if isinstance(value, Uuid):
        return value != ZERO_UUID
    return value
