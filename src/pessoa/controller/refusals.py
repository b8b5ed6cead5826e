"""The response to a request that is refused as a whole: the error stands wherever the API has a place for one.

So answers a controller that does not lead (NOT_CONTROLLER), whoever could not reach one in time, and a decision that
refuses everything that was asked of it. Most APIs have one error for the whole; the others have one for every part,
and then each part of the request gets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pessoa.base.ids import ZERO_UUID
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.controller.decision import Refusal
    from pessoa.wire.schema import Message


def refused_response(request: Message, refusal: Refusal, version: int | None = None) -> Message:
    """`version` is that in which the response will be sent; without it, one that has a place for every error."""
    key = ApiKey(request.api_key)
    if key is ApiKey.ELECT_LEADERS:
        return _elect_leaders(request, refusal, has_place=version != 0)
    answer = _IN_PARTS.get(key)
    if answer is not None:
        return answer(request, refusal)
    fields: dict[str, object] = {"throttle_time_ms": 0, "error_code": refusal.code, **_WHOLE[key]}
    if any(field.name == "error_message" for field in key.response.fields):
        fields["error_message"] = refusal.message
    return key.response(**fields)


# One error for the whole: what else the response cannot be without.
_NO_TOKEN: dict[str, object] = {
    "principal_type": "",
    "principal_name": "",
    "issue_timestamp_ms": -1,
    "expiry_timestamp_ms": -1,
    "max_timestamp_ms": -1,
    "token_id": "",
    "hmac": b"",
}
_WHOLE: dict[ApiKey, dict[str, object]] = {
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": []},
    ApiKey.ALTER_PARTITION: {"topics": []},
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: {"directories": []},
    ApiKey.ALLOCATE_PRODUCER_IDS: {"producer_id_start": 0, "producer_id_len": 0},
    ApiKey.UPDATE_FEATURES: {},
    ApiKey.CREATE_DELEGATION_TOKEN: _NO_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN: {"expiry_timestamp_ms": -1},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"expiry_timestamp_ms": -1},
    ApiKey.BROKER_REGISTRATION: {},
    ApiKey.BROKER_HEARTBEAT: {"should_shut_down": False},
    ApiKey.CONTROLLER_REGISTRATION: {},
    ApiKey.UNREGISTER_BROKER: {},
}


# One error for every part.


def _create_topics(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.create_topics import CreatableTopicResult, CreateTopicsResponse

    names = dict.fromkeys(topic.name for topic in request.topics)
    results = [
        CreatableTopicResult(name=name, error_code=refusal.code, error_message=refusal.message) for name in names
    ]
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _delete_topics(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsResponse

    wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    wanted = wanted or [(name, ZERO_UUID) for name in request.topic_names]
    results = [
        DeletableTopicResult(name=name, topic_id=topic_id, error_code=refusal.code, error_message=refusal.message)
        for name, topic_id in wanted
    ]
    return DeleteTopicsResponse(throttle_time_ms=0, responses=results)


def _create_partitions(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult

    results = [
        CreatePartitionsTopicResult(name=topic.name, error_code=refusal.code, error_message=refusal.message)
        for topic in request.topics
    ]
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _elect_leaders(request: Any, refusal: Refusal, *, has_place: bool) -> Message:
    """The first version has no place for an error of the whole."""
    from pessoa.wire.api.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult

    results = [
        ReplicaElectionResult(
            topic=wanted.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=refusal.code, error_message=refusal.message)
                for index in wanted.partitions
            ],
        )
        for wanted in request.topic_partitions or ()
    ]
    code = refusal.code if has_place else ErrorCode.NONE
    return ElectLeadersResponse(throttle_time_ms=0, error_code=code, replica_election_results=results)


def _alter_partition_reassignments(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.alter_partition_reassignments import (
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionResponse,
        ReassignableTopicResponse,
    )

    responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=target.partition_index, error_code=refusal.code, error_message=refusal.message
                )
                for target in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message, responses=responses
    )


def _alter_configs(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse

    responses = [
        AlterConfigsResourceResponse(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _incremental_alter_configs(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.incremental_alter_configs import AlterConfigsResourceResponse, IncrementalAlterConfigsResponse

    responses = [
        AlterConfigsResourceResponse(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _alter_client_quotas(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.alter_client_quotas import (
        AlterClientQuotasResponse,
        AlterClientQuotasResponseEntityData,
        AlterClientQuotasResponseEntryData,
    )

    entries = [
        AlterClientQuotasResponseEntryData(
            error_code=refusal.code,
            error_message=refusal.message,
            entity=[
                AlterClientQuotasResponseEntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in entry.entity
            ],
        )
        for entry in request.entries
    ]
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)


def _alter_user_scram_credentials(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.alter_user_scram_credentials import (
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResult,
    )

    users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
    results = [
        AlterUserScramCredentialsResult(user=user, error_code=refusal.code, error_message=refusal.message)
        for user in users
    ]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


def _create_acls(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.create_acls import AclCreationResult, CreateAclsResponse

    results = [AclCreationResult(error_code=refusal.code, error_message=refusal.message) for _ in request.creations]
    return CreateAclsResponse(throttle_time_ms=0, results=results)


def _delete_acls(request: Any, refusal: Refusal) -> Message:
    from pessoa.wire.api.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse

    results = [
        DeleteAclsFilterResult(error_code=refusal.code, error_message=refusal.message, matching_acls=[])
        for _ in request.filters
    ]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


_IN_PARTS: dict[ApiKey, Callable[[Any, Refusal], Message]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
}
