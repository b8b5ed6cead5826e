"""DescribeLogDirs: the log directories of this broker and what lies in them (KIP-113). v2: flexible; v3: an error
for the whole; v4: the size of the disk; v5: whether it is cordoned.

A copy of a replica that moves here is marked as such, and lags behind its original, not behind the high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import CLUSTER, DESCRIBE
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.log.directory import LogDirectory
    from pessoa.wire.api.describe_log_dirs import (
        DescribeLogDirsPartition,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        DescribeLogDirsResult,
    )
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    from pessoa.wire.api.describe_log_dirs import DescribeLogDirsResponse

    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        results=[_result(broker, directory, wanted) for directory in broker.replicas.directories],
    )


def _result(
    broker: BrokerServices, directory: LogDirectory, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    from pessoa.wire.api.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic

    if directory.offline is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[])
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for (topic, index), log in directory.partitions.items():
        if wanted is None or (topic, index) in wanted:
            topics.setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=log.size,
                    offset_lag=max(0, log.high_watermark - log.log_end_offset),
                    is_future_key=False,
                )
            )
    for future in directory.futures:
        original = broker.replicas.ensure(*future.key)
        if original is not None and (wanted is None or future.key in wanted):
            topics.setdefault(future.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=future.partition,
                    partition_size=future.log.size,
                    offset_lag=max(0, original.log.log_end_offset - future.log.log_end_offset),
                    is_future_key=True,
                )
            )
    total, usable = _capacity(directory.path)
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=total,
        usable_bytes=usable,
    )


def _capacity(path: str) -> tuple[int, int]:
    """Return the size of the volume and its free space in bytes; -1 if unknown, as for a broker whose data is in
    memory."""
    import shutil

    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return -1, -1
    return usage.total, usage.free


def refuse(request: DescribeLogDirsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.describe_log_dirs import DescribeLogDirsResponse

    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=refusal.code, results=[])


ROW = ApiRow(
    ApiKey.DESCRIBE_LOG_DIRS,
    "1-5",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(DESCRIBE, CLUSTER),
)
