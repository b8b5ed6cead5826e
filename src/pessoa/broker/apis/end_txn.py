"""EndTxn: commit or abort a transaction.

v2  hears PRODUCER_FENCED        v3  flexible        v4  hears TRANSACTION_ABORTABLE (KIP-890)
v5  the answer has the id and epoch of the next transaction (KIP-890)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import TRANSACTIONAL_ID, WRITE
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.end_txn import EndTxnRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: EndTxnRequest) -> Reply:
    return broker.transactions.end(request, context)


def refuse(request: EndTxnRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.end_txn import EndTxnResponse

    return EndTxnResponse(throttle_time_ms=0, error_code=refusal.code)


ROW = ApiRow(
    ApiKey.END_TXN,
    "0-5",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(WRITE, TRANSACTIONAL_ID, lambda request: request.transactional_id),
)
