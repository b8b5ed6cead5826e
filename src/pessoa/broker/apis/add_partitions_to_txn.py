"""AddPartitionsToTxn: add partitions to a transaction.

v2  hears PRODUCER_FENCED        v3  flexible
v4  several transactions, from brokers only: to add, or to verify that partitions belong to it (KIP-890)
v5  hears TRANSACTION_ABORTABLE (KIP-890)

Authorised: before v4 WRITE on the transactional id and on each topic, and all or nothing; from v4 on CLUSTER_ACTION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names, may, may_in_cluster
from pessoa.security.acl import CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: AddPartitionsToTxnRequest) -> Reply:
    from pessoa.wire.api.add_partitions_to_txn import FIRST_ADD_PARTITIONS_OF_BROKERS

    if context.version >= FIRST_ADD_PARTITIONS_OF_BROKERS:
        if may_in_cluster(broker, context, CLUSTER_ACTION):
            return broker.transactions.add_partitions(request, context)
        from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnResponse

        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not may(broker, context, WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return _error_response(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    names = (topic.name for topic in request.v3_and_below_topics)
    return broker.transactions.add_partitions(request, context, denied_names(broker, context, WRITE, TOPIC, names))


def _error_response(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    from pessoa.wire.api.add_partitions_to_txn import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTopicResult,
    )

    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ],
    )


ROW = ApiRow(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    "0-5",
    handle=handle,
)
