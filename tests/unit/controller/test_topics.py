"""Topics are created, get partitions and are deleted; refusals have Kafka's error codes."""

from __future__ import annotations

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.metadata.image import ConfigResource
from pessoa.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pessoa.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pessoa.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from tests.unit.controller.conftest import Cluster


def topic(
    name: str = "t",
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


def create(cluster: Cluster, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return cluster.ask(request, CreateTopicsResponse).topics


def test_creating_a_topic_writes_one_batch_of_topic_config_and_partition_records(cluster: Cluster) -> None:
    (result,) = create(cluster, topic("t", 2, configs={"retention.ms": "5"}))
    assert result.error_code == ErrorCode.NONE
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    kinds = [type(record) for record in cluster.last_batch]
    assert kinds == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    made = cluster.image.topics.by_name["t"]
    assert made.id == result.topic_id
    assert made.partitions[1].directories == (Uuid.of(5001),)
    assert made.partitions[1].leader == 1
    assert cluster.image.configs.of(ConfigResource.TOPIC, "t") == {"retention.ms": "5"}


def test_a_partition_count_and_replication_factor_of_minus_one_are_the_defaults(cluster: Cluster) -> None:
    cluster.config.values["num.partitions"] = "4"
    (result,) = create(cluster, topic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 1)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 0, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, -1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, -1, {1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, {0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, {0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_that_cannot_be_created_gets_its_error_and_no_record_is_written(
    cluster: Cluster, asked: CreatableTopic, code: ErrorCode
) -> None:
    before = len(cluster.quorum.batches)
    (result,) = create(cluster, asked)
    assert ErrorCode.of(result.error_code) is code
    assert result.error_message
    assert len(cluster.quorum.batches) == before


def test_a_topic_name_of_249_characters_is_accepted(cluster: Cluster) -> None:
    (result,) = create(cluster, topic("x" * 249))
    assert result.error_code == ErrorCode.NONE


def test_topic_names_that_differ_only_in_dots_and_underscores_collide(cluster: Cluster) -> None:
    create(cluster, topic("a.b"))
    (collision,) = create(cluster, topic("a_b"))
    assert collision.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    (again,) = create(cluster, topic("a.b"))
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_topic_name_that_is_repeated_is_refused_and_the_others_are_created(cluster: Cluster) -> None:
    results = create(cluster, topic("a"), topic("b"), topic("a"))
    assert {one.name: ErrorCode.of(one.error_code) for one in results} == {
        "a": ErrorCode.INVALID_REQUEST,
        "b": ErrorCode.NONE,
    }
    assert list(cluster.image.topics.by_name) == ["b"]


def test_create_topics_with_validate_only_returns_the_results_and_writes_no_record(cluster: Cluster) -> None:
    results = create(cluster, topic("t", 3), topic("u", 0), validate_only=True)
    assert [ErrorCode.of(one.error_code) for one in results] == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert results[0].num_partitions == 3
    assert not cluster.image.topics.by_name


def test_a_create_topics_request_with_far_too_many_partitions_is_refused(cluster: Cluster) -> None:
    results = create(cluster, topic("a"), topic("b", 10_000))
    assert {ErrorCode.of(one.error_code) for one in results} == {ErrorCode.POLICY_VIOLATION}
    assert not cluster.image.topics.by_name


def test_a_manual_replica_assignment_is_used_unchanged(trio: Cluster) -> None:
    (result,) = create(trio, topic("t", -1, -1, {0: [3, 1], 1: [2, 3]}))
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    partitions = trio.image.topics.by_name["t"].partitions
    assert [(one.replicas, one.leader) for one in partitions.values()] == [((3, 1), 3), ((2, 3), 2)]


def test_a_manual_assignment_with_unequal_replication_factors_is_refused(trio: Cluster) -> None:
    (result,) = create(trio, topic("t", -1, -1, {0: [1, 2], 1: [3]}))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_manual_assignment_to_fenced_brokers_is_refused_or_leaves_them_out_of_the_isr(trio: Cluster) -> None:
    trio.heartbeat(3, want_fence=True)
    refused, created = create(trio, topic("refused", -1, -1, {0: [3]}), topic("created", -1, -1, {0: [3, 2]}))
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert created.error_code == ErrorCode.NONE
    partition = trio.image.topics.by_name["created"].partitions[0]
    assert (partition.isr, partition.leader) == ((2,), 2)


def test_no_topic_can_be_created_while_all_brokers_are_fenced(cluster: Cluster) -> None:
    cluster.heartbeat(1, want_fence=True)
    (result,) = create(cluster, topic("t"))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


# ---- DeleteTopics ----


def delete(cluster: Cluster, *states: DeleteTopicState) -> list[ErrorCode]:
    request = DeleteTopicsRequest(topics=list(states), timeout_ms=1000)
    response = cluster.ask(request, DeleteTopicsResponse, version=6)
    return [ErrorCode.of(one.error_code) for one in response.responses]


def test_a_topic_is_deleted_by_name_or_by_id_together_with_its_configs(cluster: Cluster) -> None:
    create(cluster, topic("a", configs={"retention.ms": "5"}), topic("b"))
    topic_id = cluster.image.topics.by_name["a"].id
    states = [DeleteTopicState(name=None, topic_id=topic_id), DeleteTopicState(name="b", topic_id=ZERO_UUID)]
    assert delete(cluster, *states) == [ErrorCode.NONE, ErrorCode.NONE]
    assert not cluster.image.topics.by_name
    assert not cluster.image.topics.by_id
    assert not cluster.image.configs.of(ConfigResource.TOPIC, "a")


def test_older_clients_delete_by_name(cluster: Cluster) -> None:
    create(cluster, topic("a"))
    request = DeleteTopicsRequest(topic_names=["a", "nope"], timeout_ms=1000)
    response = cluster.ask(request, DeleteTopicsResponse, version=5)
    assert [(one.name, ErrorCode.of(one.error_code)) for one in response.responses] == [
        ("a", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_topic_that_cannot_be_deleted_gets_its_error(cluster: Cluster) -> None:
    create(cluster, topic("a"))
    topic_id = cluster.image.topics.by_name["a"].id
    assert delete(cluster, DeleteTopicState(name=None, topic_id=ZERO_UUID)) == [ErrorCode.INVALID_REQUEST]
    assert delete(cluster, DeleteTopicState(name="a", topic_id=topic_id)) == [ErrorCode.INVALID_REQUEST]
    assert delete(cluster, DeleteTopicState(name=None, topic_id=Uuid.of(12345))) == [ErrorCode.UNKNOWN_TOPIC_ID]
    twice = [DeleteTopicState(name="a", topic_id=ZERO_UUID), DeleteTopicState(name=None, topic_id=topic_id)]
    assert delete(cluster, *twice) == [ErrorCode.INVALID_REQUEST] * 2
    cluster.config.values["delete.topic.enable"] = "false"
    assert delete(cluster, DeleteTopicState(name="a", topic_id=ZERO_UUID)) == [ErrorCode.TOPIC_DELETION_DISABLED]
    assert "a" in cluster.image.topics.by_name


def test_a_topic_that_is_created_again_has_another_topic_id(cluster: Cluster) -> None:
    (first,) = create(cluster, topic("a"))
    delete(cluster, DeleteTopicState(name="a", topic_id=ZERO_UUID))
    (second,) = create(cluster, topic("a"))
    assert first.topic_id != second.topic_id


# ---- CreatePartitions ----


def grow(cluster: Cluster, name: str, count: int, assignments: list[list[int]] | None = None) -> ErrorCode:
    wanted = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=wanted)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False)
    return ErrorCode.of(cluster.ask(request, CreatePartitionsResponse).results[0].error_code)


def test_added_partitions_have_the_replication_factor_of_the_topic(trio: Cluster) -> None:
    create(trio, topic("t", 1, 2))
    before = trio.image.topics.by_name["t"].partitions[0]
    assert grow(trio, "t", 4) is ErrorCode.NONE
    partitions = trio.image.topics.by_name["t"].partitions
    assert [len(one.replicas) for one in partitions.values()] == [2, 2, 2, 2]
    assert partitions[0] == before
    assert grow(trio, "t", 5, [[3, 1]]) is ErrorCode.NONE
    assert trio.image.topics.by_name["t"].partitions[4].replicas == (3, 1)


def test_partitions_that_cannot_be_added_get_an_error(trio: Cluster) -> None:
    create(trio, topic("t", 2, 2))
    assert grow(trio, "t", 2) is ErrorCode.INVALID_PARTITIONS
    assert grow(trio, "t", 1) is ErrorCode.INVALID_PARTITIONS
    assert grow(trio, "u", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(trio, "t", 4, [[1, 2]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(trio, "t", 3, [[1]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(trio, "t", 3, [[1, 7]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(trio, "t", 20_000) is ErrorCode.POLICY_VIOLATION
    assert len(trio.image.topics.by_name["t"].partitions) == 2
