"""WriteTxnMarkers: another broker's transaction coordinator has markers written to partitions that we lead.

v2 says in which version of the transaction protocol the transaction ended, by which epochs are checked (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pessoa.broker.transaction_markers import LocalMarkers
from pessoa.coordinator.transactions.markers import Marker
from pessoa.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices


async def handle(
    broker: BrokerServices, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    port = LocalMarkers(broker)
    return WriteTxnMarkersResponse(markers=[await _write(port, one) for one in request.markers])


async def _write(port: LocalMarkers, wanted: WritableTxnMarker) -> WritableTxnMarkerResult:
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
    return WritableTxnMarkerResult(
        producer_id=wanted.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=errors[topic.name, index])
                    for index in topic.partition_indexes
                ],
            )
            for topic in wanted.topics
        ],
    )
