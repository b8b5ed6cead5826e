"""WriteTxnMarkers: another broker's transaction coordinator has markers written to partitions that we lead.

v2 says in which version of the transaction protocol the transaction ended, by which epochs are checked (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised, Quota
from pessoa.broker.slices import Sliced
from pessoa.security.acl import ALTER, CLUSTER, CLUSTER_ACTION
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.broker.transaction_markers import LocalMarkers
    from pessoa.wire.api.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerResult,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )
    from pessoa.wire.errors import ErrorCode, Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


async def handle(
    broker: BrokerServices, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    from pessoa.broker.transaction_markers import LocalMarkers
    from pessoa.wire.api.write_txn_markers import WriteTxnMarkersResponse

    port = LocalMarkers(broker)
    return WriteTxnMarkersResponse(markers=[await _write(port, one) for one in request.markers])


async def _write(port: LocalMarkers, wanted: WritableTxnMarker) -> WritableTxnMarkerResult:
    from pessoa.coordinator.transactions.marker_writer import Marker

    marker = Marker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.coordinator_epoch,
        wanted.transaction_result,
        wanted.transaction_version,
    )
    # A partition that is named twice gets one marker.
    partitions = dict.fromkeys((topic.name, index) for topic in wanted.topics for index in topic.partition_indexes)
    found = port.write(marker, list(partitions))
    errors = await found if isinstance(found, Awaitable) else found
    return _result(wanted, lambda topic, index: errors[topic, index])


def _result(wanted: WritableTxnMarker, error_of: Callable[[str, int], ErrorCode]) -> WritableTxnMarkerResult:
    from pessoa.wire.api.write_txn_markers import (
        WritableTxnMarkerPartitionResult,
        WritableTxnMarkerResult,
        WritableTxnMarkerTopicResult,
    )

    return WritableTxnMarkerResult(
        producer_id=wanted.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=error_of(topic.name, index))
                    for index in topic.partition_indexes
                ],
            )
            for topic in wanted.topics
        ],
    )


def refuse(request: WriteTxnMarkersRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.write_txn_markers import WriteTxnMarkersResponse

    return WriteTxnMarkersResponse(markers=[_result(one, lambda *_: refusal.code) for one in request.markers])


ROW = ApiRow(
    ApiKey.WRITE_TXN_MARKERS,
    "1-2",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER, otherwise=CLUSTER_ACTION),
    sliced=Sliced("markers", "markers"),
    quota=Quota.NONE,
)
