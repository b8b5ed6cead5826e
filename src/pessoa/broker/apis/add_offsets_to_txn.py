"""AddOffsetsToTxn: a transaction will commit offsets of a group, whose partition is added to it.

    v2  hears PRODUCER_FENCED        v3  flexible        v4  hears TRANSACTION_ABORTABLE (KIP-890)

Producers of transaction.version 2 do not send it: TxnOffsetCommit adds the partition by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import GROUP, READ, TRANSACTIONAL_ID, WRITE
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: AddOffsetsToTxnRequest) -> Reply:
    return broker.transactions.add_offsets(request, context)


def refuse(request: AddOffsetsToTxnRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnResponse

    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=refusal.code)


ROW = ApiRow(
    ApiKey.ADD_OFFSETS_TO_TXN,
    "0-4",
    handle=handle,
    refuse=refuse,
    authorised=(
        Authorised(WRITE, TRANSACTIONAL_ID, lambda request: request.transactional_id),
        Authorised(READ, GROUP, lambda request: request.group_id),
    ),
)
