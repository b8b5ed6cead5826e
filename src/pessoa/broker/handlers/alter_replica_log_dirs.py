"""AlterReplicaLogDirs: move replicas between the log directories of this broker (KIP-113).

A replica that is where it shall be stays there, which is all that a broker with one directory can be asked. To another
directory of the same broker no replica is moved, as Apache Kafka would: that is refused with KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices


def handle(
    broker: BrokerServices, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
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
    if all(directory.path != path for directory in broker.replicas.directories):
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = broker.replicas.get(topic, index)
    if partition is None:
        return broker.replicas.why_missing(broker.image, topic, index)
    return ErrorCode.NONE if partition.directory.path == path else ErrorCode.KAFKA_STORAGE_ERROR
