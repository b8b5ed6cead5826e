"""AlterReplicaLogDirs: move replicas between the log directories of this broker (KIP-113).

The answer says that the move has begun; DescribeLogDirs tells how far it is. Asking for the directory in which the
replica is stops a move elsewhere. A replica that is not on this broker is answered with REPLICA_NOT_AVAILABLE, and made
in the named directory if it comes. v2: flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.security.acl import ALTER, CLUSTER
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.alter_replica_log_dirs import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(
    broker: BrokerServices, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    from pessoa.wire.api.alter_replica_log_dirs import (
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )

    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[]))
            result.partitions.extend(
                AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=_move(broker, topic.name, index, wanted.path)
                )
                for index in topic.partitions
            )
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=list(results.values()))


def _move(broker: BrokerServices, topic: str, index: int, path: str) -> ErrorCode:
    replicas = broker.replicas
    destination = next((one for one in replicas.directories if one.path == path), None)
    if destination is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if destination.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = replicas.ensure(topic, index)
    if partition is None:
        replicas.moves.request_directory(topic, index, destination)
        missing = replicas.why_missing(broker.image, topic, index)
        return ErrorCode.REPLICA_NOT_AVAILABLE if missing is ErrorCode.NOT_LEADER_OR_FOLLOWER else missing
    return replicas.moves.move(partition, destination)


def refuse(request: AlterReplicaLogDirsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.alter_replica_log_dirs import (
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )

    indexes: dict[str, list[int]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            indexes.setdefault(topic.name, []).extend(topic.partitions)
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=refusal.code) for index in of_topic
            ],
        )
        for name, of_topic in indexes.items()
    ]
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=results)


ROW = ApiRow(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    "1-2",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER),
    audited=Audited.YES,
)
