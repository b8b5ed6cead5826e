"""AlterConfigs and IncrementalAlterConfigs: topics, brokers, groups and client metrics.

Both end in ConfigRecords, one for each key that changes; a null value is a key that goes back to its default. What is
checked is always the whole that would come out, since keys can contradict each other.

Each resource stands for itself. Within one resource it is all or nothing.

While eligible leader replicas are in use, `min.insync.replicas` must mean the same on every broker: it can be set for
a topic and for the whole cluster, not for one broker, and the setting for the cluster can be changed but not removed.
A change of it makes what is known about eligible leaders void (KIP-966), which a ClearElrRecord says. A partition with
an empty ISR is spared that: nothing is committed there, so its ELR is still right, and is all that it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from pessoa.controller.decision import Decision, check_named_once, check_record_count
from pessoa.controller.partition_change import MIN_INSYNC_REPLICAS
from pessoa.controller.topic_names import why_illegal
from pessoa.metadata.image import ConfigResource
from pessoa.metadata.supported_features import ELIGIBLE_LEADER_REPLICAS
from pessoa.metadata.table_images import MAX_BROKER_ID_DIGITS
from pessoa.security.acl import ALTER_CONFIGS, CLUSTER, CLUSTER_NAME, GROUP, TOPIC
from pessoa.wire.api.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from pessoa.wire.api.incremental_alter_configs import AlterableConfig as IncrementalConfig
from pessoa.wire.api.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from pessoa.wire.api.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from pessoa.wire.api.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import ClearElrRecord, ConfigRecord, PartitionChangeRecord

if TYPE_CHECKING:
    from pessoa.controller.decision import Situation
    from pessoa.wire.schema import Message

CLUSTER_DEFAULT = ""

# Key → what it becomes; None goes back to the default.
Changes = dict[str, str | None]
Resource = TypeVar("Resource", AlterConfigsResource, IncrementalResource)
Response = TypeVar("Response")


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def config_record(resource_type: int, resource: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value)


def check_configs(situation: Situation, resource_type: int, configs: Mapping[str, str], name: str) -> None:
    """Raise a Refusal if a resource cannot have these configs."""
    problem = situation.config.problem(resource_type, configs, name)
    if problem is not None:
        raise Refusal(*problem)


# ---- IncrementalAlterConfigs (KIP-339) ----


def incremental_alter_configs(situation: Situation, request: IncrementalAlterConfigsRequest) -> Decision:
    records, responses = _alter(situation, request.resources, _incremental_changes, IncrementalResourceResponse)
    answer = IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)
    return Decision([] if request.validate_only else records, answer)


def _incremental_changes(situation: Situation, resource: IncrementalResource) -> Changes:
    kind = resource.resource_type
    present = situation.image.configs.of(kind, resource.resource_name)
    changes: Changes = {}
    for config in resource.configs:
        operation = config.config_operation
        if operation not in Operation._value2member_map_:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"There is no operation {operation} on configurations.")
        if operation == Operation.DELETE:
            changes[config.name] = None
            continue
        value = _required_value(config.name, config.value)
        if operation == Operation.SET:
            changes[config.name] = value
        else:
            changes[config.name] = _changed_list(situation, kind, config, present.get(config.name))
    return changes


def _changed_list(situation: Situation, kind: int, config: IncrementalConfig, present: str | None) -> str:
    if not situation.config.is_list(kind, config.name):
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"{config.name} is not a list, so nothing can be added to it or taken from it."
        )
    if present is None:
        present = situation.config.default(kind, config.name)
    entries = present.split(",") if present else []
    changed = (config.value or "").split(",")
    if config.config_operation == Operation.APPEND:
        return ",".join(dict.fromkeys(entries + changed))
    return ",".join(entry for entry in entries if entry not in changed)


# ---- AlterConfigs ----


def alter_configs(situation: Situation, request: AlterConfigsRequest) -> Decision:
    records, responses = _alter(situation, request.resources, _whole_changes, AlterConfigsResourceResponse)
    answer = AlterConfigsResponse(throttle_time_ms=0, responses=responses)
    return Decision([] if request.validate_only else records, answer)


def _whole_changes(situation: Situation, resource: AlterConfigsResource) -> Changes:
    """Return the changes of AlterConfigs, which replaces all settings: keys that the request does not name are
    reset."""
    changes: Changes = dict.fromkeys(situation.image.configs.of(resource.resource_type, resource.resource_name))
    changes.update((config.name, _required_value(config.name, config.value)) for config in resource.configs)
    return changes


# ---- What both have in common ----


def _alter(
    situation: Situation,
    resources: Sequence[Resource],
    changes_of: Callable[[Situation, Resource], Changes],
    respond: Callable[..., Response],
) -> tuple[list[Message], list[Response]]:
    """Return the records of all resources whose changes are valid, and a response for each resource."""
    records: list[Message] = []
    responses: list[Response] = []
    asked = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        code, message = ErrorCode.NONE, None
        try:
            check_named_once(asked[kind, name], f"The resource {name!r}")
            _check_allowed(situation, kind, name)
            _check_resource(kind, name)
            _check_names([config.name for config in resource.configs])
            records += _records(situation, kind, name, changes_of(situation, resource))
        except Refusal as refusal:
            code, message = refusal.code, refusal.text
        responses.append(respond(error_code=code, error_message=message, resource_type=kind, resource_name=name))
    records += _after_new_minimum(situation, records)
    check_record_count(records)
    return records, responses


def _required_value(name: str, value: str | None) -> str:
    if value is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"The configuration {name!r} has no value.")
    return value


def _check_names(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise Refusal(ErrorCode.INVALID_REQUEST, "A configuration key is named more than once.")


def _check_allowed(situation: Situation, kind: int, name: str) -> None:
    """Raise the Refusal of a client that may not alter this resource, before an error could show whether it exists."""
    if kind == ConfigResource.TOPIC:
        if not situation.may(ALTER_CONFIGS, TOPIC, name):
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif kind == ConfigResource.GROUP:
        if not situation.may(ALTER_CONFIGS, GROUP, name):
            raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif not situation.may(ALTER_CONFIGS, CLUSTER, CLUSTER_NAME):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _check_resource(kind: int, name: str) -> None:
    if kind == ConfigResource.TOPIC:
        problem = why_illegal(name)
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    elif kind == ConfigResource.BROKER:
        _check_broker_name(name)
    elif kind in (ConfigResource.GROUP, ConfigResource.CLIENT_METRICS):
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "The name of the resource is empty.")
    else:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Resources of type {kind} have no configuration here.")


def _check_broker_name(name: str) -> None:
    is_id = len(name) <= MAX_BROKER_ID_DIGITS and name.isascii() and name.isdigit()
    if name != CLUSTER_DEFAULT and not is_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{name!r} is not the id of a broker.")


def _check_exists(situation: Situation, kind: int, name: str) -> None:
    """Raise a Refusal if the resource does not exist. As in Kafka, errors in the configs themselves come first."""
    if kind == ConfigResource.TOPIC and name not in situation.image.topics.by_name:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
    if kind == ConfigResource.BROKER and name != CLUSTER_DEFAULT:
        cluster = situation.image.cluster
        if int(name) not in cluster.brokers and int(name) not in cluster.controllers:
            raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} is registered.")


def _records(situation: Situation, kind: int, name: str, changes: Mapping[str, str | None]) -> list[Message]:
    present = situation.image.configs.of(kind, name)
    outcome = {key: value for key, value in {**present, **changes}.items() if value is not None}
    _check_min_insync(situation, kind, name, changes)
    check_configs(situation, kind, outcome, name)
    _check_exists(situation, kind, name)
    # A record is written even if the value stays: a broker then reads its key and certificate files again.
    return [
        config_record(kind, name, key, value)
        for key, value in changes.items()
        if kind == ConfigResource.BROKER or present.get(key) != value
    ]


def _after_new_minimum(situation: Situation, records: Sequence[Message]) -> list[Message]:
    """Return the records that clear the ELR of all partitions for which these records change min.insync.replicas."""
    if not _uses_elr(situation):
        return []
    cleared: list[Message] = [
        ClearElrRecord(topic_name=record.resource_name if record.resource_type == ConfigResource.TOPIC else "")
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS
    ]
    names = {record.topic_name for record in cleared if isinstance(record, ClearElrRecord)}
    for topic in situation.image.topics.by_name.values():
        if names.isdisjoint(("", topic.name)):
            continue
        cleared += [
            PartitionChangeRecord(
                topic_id=topic.id,
                partition_id=index,
                eligible_leader_replicas=list(partition.elr) or None,
                last_known_elr=list(partition.last_known_elr) or None,
            )
            for index, partition in topic.partitions.items()
            if not partition.isr and (partition.elr or partition.last_known_elr)
        ]
    return cleared


def _check_min_insync(situation: Situation, kind: int, name: str, changes: Mapping[str, str | None]) -> None:
    if kind != ConfigResource.BROKER or MIN_INSYNC_REPLICAS not in changes or not _uses_elr(situation):
        return
    if name != CLUSTER_DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC_REPLICAS} cannot be set for one broker while eligible leader replicas are in use.",
        )
    if changes[MIN_INSYNC_REPLICAS] is None:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC_REPLICAS} of the cluster cannot be removed while eligible leader replicas are in use.",
        )


def _uses_elr(situation: Situation) -> bool:
    return situation.image.features.level(ELIGIBLE_LEADER_REPLICAS) > 0
