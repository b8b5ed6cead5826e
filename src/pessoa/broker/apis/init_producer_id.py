"""InitProducerId: give a producer its id and epoch, and fence older producers with the same transactional id.

    v2  flexible        v3  a producer goes on with its id after an error (KIP-360)
    v4  hears PRODUCER_FENCED        v5  hears TRANSACTION_ABORTABLE (KIP-890)

Version 6 (two-phase commit, KIP-939) is not served.

Authorised: WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import may_in_cluster
from pessoa.security.acl import IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.init_producer_id import InitProducerIdRequest
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: InitProducerIdRequest) -> Reply:
    denied = _why_denied(broker, context, request)
    if denied is None:
        return broker.transactions.begin_producer(request, context)
    from pessoa.wire.api.init_producer_id import InitProducerIdResponse

    return InitProducerIdResponse(throttle_time_ms=0, error_code=denied, producer_id=-1, producer_epoch=-1)


def _why_denied(broker: BrokerServices, context: RequestContext, request: InitProducerIdRequest) -> ErrorCode | None:
    authorizer, name = broker.authorizer, request.transactional_id
    if authorizer is None:
        return None
    if name is not None:
        is_allowed = authorizer.may(context, WRITE, TRANSACTIONAL_ID, name)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    is_allowed = may_in_cluster(broker, context, IDEMPOTENT_WRITE, quietly=True) or authorizer.may_with_some(
        context, WRITE, TOPIC
    )
    return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


ROW = ApiRow(
    ApiKey.INIT_PRODUCER_ID,
    "0-5",
    handle=handle,
)
