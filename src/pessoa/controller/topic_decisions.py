"""CreateTopics, DeleteTopics and CreatePartitions.

Every topic of a request stands for itself: one that cannot be created gets its error, and the others are created all
the same. With validate_only the answer is the one that creating would give, and nothing is written.

A new topic is one batch: the topic, its configuration, its partitions, in this order, so that no image has a topic
without its configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.controller.assignments import check_assignment, new_partition
from pessoa.controller.config_decisions import check_configs, config_record
from pessoa.controller.decision import MAX_RECORDS, Decision, check_named_once
from pessoa.controller.placement import place
from pessoa.controller.topic_names import colliding, why_illegal
from pessoa.metadata.image import ConfigResource
from pessoa.security.acl import ALTER, CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS, TOPIC
from pessoa.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from pessoa.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pessoa.wire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.controller.decision import Situation
    from pessoa.wire.schema import Message
    from pessoa.wire.stored.metadata_records import PartitionRecord

USE_DEFAULT = -1
# In the response to CreateTopics, for a client that may not see configurations.
_UNTOLD = -1
_METADATA_TOPIC = "__cluster_metadata"
# CreateTopics answers with the configuration from version 5 on (KIP-525).
_SHOWS_CONFIGS_SINCE = 5
# DeleteTopics has this error from version 3 on; older clients know INVALID_REQUEST.
_DELETION_DISABLED_SINCE = 3
# Since these versions clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_CREATION_STRICT_SINCE = 6
_DELETION_STRICT_SINCE = 5
_ADDITION_STRICT_SINCE = 3


def _spend(situation: Situation, partitions: int, strict_since: int) -> None:
    """Charge these partitions to the caller's mutation quota, if it has one."""
    if situation.mutations is not None:
        situation.mutations.spend(partitions, is_strict=situation.caller.version >= strict_since)


# ---- CreateTopics ----


def create_topics(situation: Situation, request: CreateTopicsRequest) -> Decision:
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    shown: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}
    asked = Counter(topic.name for topic in request.topics)
    _check_total(situation, request)
    may_create_all = situation.may_in_cluster(CREATE)
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        try:
            check_named_once(asked[name], f"The topic {name!r}")
            if not may_create_all:
                _check_may_create(situation, name)
            created, result, configs = _create(situation, topic)
            records += created
            results.append(result)
            if not situation.may(DESCRIBE_CONFIGS, TOPIC, name):
                result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.num_partitions = result.replication_factor = _UNTOLD
            elif situation.caller.version >= _SHOWS_CONFIGS_SINCE:
                # Topics that are created together mostly have the same configuration, which is long.
                key = tuple(sorted(configs.items()))
                if key not in shown:
                    shown[key] = list(situation.config.topic_configs(situation.image, configs))
                result.configs = shown[key]
        except Refusal as refusal:
            results.append(CreatableTopicResult(name=name, error_code=refusal.code, error_message=refusal.text))
    response = CreateTopicsResponse(throttle_time_ms=0, topics=results)
    return Decision([] if request.validate_only else records, response)


def _check_may_create(situation: Situation, name: str) -> None:
    if name != _METADATA_TOPIC and not situation.may(CREATE, TOPIC, name):
        raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _check_total(situation: Situation, request: CreateTopicsRequest) -> None:
    """Raise a Refusal if the request creates far too many partitions, before anything is built for it."""
    default = int(situation.config.broker_value("num.partitions"))
    total = sum(
        len(topic.assignments) or (default if topic.num_partitions == USE_DEFAULT else max(topic.num_partitions, 0))
        for topic in request.topics
    )
    if total > MAX_RECORDS:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION, f"{total} partitions in one request are too many; {MAX_RECORDS} are allowed."
        )


def _create(
    situation: Situation, topic: CreatableTopic
) -> tuple[list[Message], CreatableTopicResult, Mapping[str, str]]:
    """Return the records, the response and the configs of a new topic."""
    _check_new_name(situation, topic.name)
    configs = _new_configs(situation, topic)
    topic_id = situation.new_uuid()
    partitions = _new_partitions(situation, topic, topic_id)
    _spend(situation, len(partitions), _CREATION_STRICT_SINCE)
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [config_record(ConfigResource.TOPIC, topic.name, name, value) for name, value in configs.items()]
    records += partitions
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
    )
    return records, result, configs


def _check_new_name(situation: Situation, name: str) -> None:
    if name == _METADATA_TOPIC:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{name} is the controllers' own and cannot be created.")
    problem = why_illegal(name)
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topics = situation.image.topics.by_name
    if name in topics:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"The topic {name!r} already exists.")
    other = colliding(name, topics)
    if other is not None:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"The topic name {name!r} collides with {other!r}: '.' and '_' are the same in the names of metrics.",
        )


def _new_configs(situation: Situation, topic: CreatableTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"The configuration {config.name!r} has no value.")
        configs[config.name] = config.value
    if configs:
        check_configs(situation, ConfigResource.TOPIC, configs, topic.name)
    return configs


def _new_partitions(situation: Situation, topic: CreatableTopic, topic_id: Uuid) -> list[PartitionRecord]:
    if topic.assignments:
        if topic.replication_factor != USE_DEFAULT or topic.num_partitions != USE_DEFAULT:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                "With a replica assignment, the numbers of partitions and replicas follow from it and must both be -1.",
            )
        return _assigned_partitions(situation, topic_id, _assignments(topic))
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is {topic.replication_factor}; it must be at least 1, or -1 for the default.",
        )
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions is {topic.num_partitions}; it must be at least 1, or -1 for the default.",
        )
    count, factor = topic.num_partitions, topic.replication_factor
    if count == USE_DEFAULT:
        count = int(situation.config.broker_value("num.partitions"))
    if factor == USE_DEFAULT:
        factor = int(situation.config.broker_value("default.replication.factor"))
    return _placed_partitions(situation, topic_id, 0, count, factor)


def _assignments(topic: CreatableTopic) -> dict[int, Sequence[int]]:
    assignments: dict[int, Sequence[int]] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in assignments:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {assignment.partition_index} is assigned twice."
            )
        assignments[assignment.partition_index] = assignment.broker_ids
    if sorted(assignments) != list(range(len(assignments))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The assigned partitions must be numbered from 0 without gaps."
        )
    return assignments


def _assigned_partitions(
    situation: Situation, topic_id: Uuid, assignments: Mapping[int, Sequence[int]], factor: int | None = None
) -> list[PartitionRecord]:
    cluster = situation.image.cluster
    partitions = []
    for index, replicas in assignments.items():
        check_assignment(cluster, replicas, factor)
        factor = len(replicas)
        record = new_partition(cluster, topic_id, index, replicas)
        if record is None:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"None of the brokers that partition {index} is assigned to is up.",
            )
        partitions.append(record)
    return partitions


def _placed_partitions(
    situation: Situation, topic_id: Uuid, start: int, count: int, factor: int
) -> list[PartitionRecord]:
    cluster = situation.image.cluster
    placed = place(cluster.brokers.values(), count, factor, situation.random_below)
    partitions = []
    for index, replicas in enumerate(placed, start):
        record = new_partition(cluster, topic_id, index, replicas)
        assert record is not None, "the first replica of a placement is up"
        partitions.append(record)
    return partitions


# ---- DeleteTopics ----


def delete_topics(situation: Situation, request: DeleteTopicsRequest) -> Decision:
    wanted = request.topics or [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    repeated = Counter((state.name, state.topic_id) for state in wanted)
    asked = Counter(_name_or_id(situation, state) for state in wanted)
    may_delete_all = situation.may_in_cluster(DELETE)
    records: list[Message] = []
    results: dict[tuple[str | None, Uuid], DeletableTopicResult] = {}
    for state in wanted:
        # A topic that is named twice is answered once.
        name = state.name if state.name is not None else _shown_name(situation, state.topic_id, may_delete_all)
        result = DeletableTopicResult(name=name, topic_id=state.topic_id, error_code=ErrorCode.NONE)
        results[state.name, state.topic_id] = result
        try:
            _check_deletion_enabled(situation)
            check_named_once(repeated[state.name, state.topic_id], f"The topic {name or state.topic_id!r}")
            topic_id = _find(situation, state, may_delete_all)
            # Its name and its id may both be there. This is said to none but those who may delete it.
            check_named_once(asked[_name_or_id(situation, state)], f"The topic {name!r}")
            result.topic_id = topic_id
            _spend(situation, len(situation.image.topics.by_id[topic_id].partitions), _DELETION_STRICT_SINCE)
            records.append(RemoveTopicRecord(topic_id=topic_id))
        except Refusal as refusal:
            result.error_code, result.error_message = refusal.code, refusal.text
    return Decision(records, DeleteTopicsResponse(throttle_time_ms=0, responses=list(results.values())))


def _name_or_id(situation: Situation, state: DeleteTopicState) -> str | Uuid:
    """Return the name of the topic if it has one, else its id."""
    if state.name is not None:
        return state.name
    return situation.image.topics.name_of(state.topic_id) or state.topic_id


def _shown_name(situation: Situation, topic_id: Uuid, may_delete_all: bool) -> str | None:
    """Return the name of a topic of which the client gave the id; None if it may not describe the topic."""
    name = situation.image.topics.name_of(topic_id)
    if name is None or may_delete_all or situation.may(DESCRIBE, TOPIC, name, quietly=True):
        return name
    return None


def _check_deletion_enabled(situation: Situation) -> None:
    if situation.config.broker_value("delete.topic.enable").strip().lower() != "false":
        return
    is_known = situation.caller.version >= _DELETION_DISABLED_SINCE
    raise Refusal(ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST)


def _find(situation: Situation, state: DeleteTopicState, may_delete_all: bool) -> Uuid:
    """Return the id of a topic that the client may delete. A client that may not describe a topic gets the same error
    whether it exists or not; ids are no secret."""
    topics = situation.image.topics
    if state.name is None:
        if state.topic_id == ZERO_UUID:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Neither the name nor the id of a topic is given.")
        if state.topic_id not in topics.by_id:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
        if not may_delete_all and not situation.may(DELETE, TOPIC, topics.by_id[state.topic_id].name):
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return state.topic_id
    if state.topic_id != ZERO_UUID:
        raise Refusal(ErrorCode.INVALID_REQUEST, "A topic is named either by its name or by its id, not by both.")
    if not may_delete_all and not situation.may(DESCRIBE, TOPIC, state.name):
        raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    known = topics.by_name.get(state.name)
    if known is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not may_delete_all and not situation.may(DELETE, TOPIC, state.name):
        raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return known.id


# ---- CreatePartitions ----


def create_partitions(situation: Situation, request: CreatePartitionsRequest) -> Decision:
    records: list[Message] = []
    results: list[CreatePartitionsTopicResult] = []
    asked = Counter(topic.name for topic in request.topics)
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        result = CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE)
        results.append(result)
        try:
            check_named_once(asked[name], f"The topic {name!r}")
            records += _add_partitions(situation, topic)
        except Refusal as refusal:
            result.error_code, result.error_message = refusal.code, refusal.text
    response = CreatePartitionsResponse(throttle_time_ms=0, results=results)
    return Decision([] if request.validate_only else records, response)


def _add_partitions(situation: Situation, topic: CreatePartitionsTopic) -> Sequence[PartitionRecord]:
    if not situation.may(ALTER, TOPIC, topic.name):
        raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    known = situation.image.topics.by_name.get(topic.name)
    if known is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(known.partitions)
    if topic.count <= present:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name!r} has {present} partition(s), and {topic.count} would be no increase.",
        )
    added = topic.count - present
    if added > MAX_RECORDS:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION, f"{added} partitions in one request are too many; {MAX_RECORDS} are allowed."
        )
    factor = len(known.partitions[0].replicas)
    if topic.assignments is None:
        _spend(situation, added, _ADDITION_STRICT_SINCE)
        return _placed_partitions(situation, known.id, present, added, factor)
    if len(topic.assignments) != added:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added} partition(s) are added, but {len(topic.assignments)} assignment(s) are given.",
        )
    _spend(situation, added, _ADDITION_STRICT_SINCE)
    assignments = {index: one.broker_ids for index, one in enumerate(topic.assignments, present)}
    return _assigned_partitions(situation, known.id, assignments, factor)
