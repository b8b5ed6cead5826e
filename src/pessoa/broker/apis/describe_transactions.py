"""DescribeTransactions: the state of transactions by transactional id (KIP-664).

An id that is named several times is described once, unlike in Apache Kafka.

Authorised: DESCRIBE on each transactional id; partitions of topics that the client may not describe are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names
from pessoa.security.acl import DESCRIBE, TOPIC, TRANSACTIONAL_ID
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: DescribeTransactionsRequest) -> Reply:
    if broker.authorizer is None:
        return broker.transactions.describe(request, context)
    from pessoa.coordinator.shard_answers import then
    from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest

    denied = denied_names(broker, context, DESCRIBE, TRANSACTIONAL_ID, request.transactional_ids)
    rest = DescribeTransactionsRequest(
        transactional_ids=[name for name in request.transactional_ids if name not in denied]
    )

    def complete_response(response: Message) -> Message:
        return _with_denied_states(broker, context, request, cast("DescribeTransactionsResponse", response), denied)

    return then(broker.transactions.describe(rest, context), complete_response)


def _with_denied_states(
    broker: BrokerServices,
    context: RequestContext,
    request: DescribeTransactionsRequest,
    response: DescribeTransactionsResponse,
    denied: frozenset[str],
) -> DescribeTransactionsResponse:
    from pessoa.coordinator.transactions.transaction_descriptions import describe_error

    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    states = {one.transactional_id: one for one in response.transaction_states}
    states |= {name: describe_error(name, error) for name in denied}
    names = (topic.topic for one in states.values() for topic in one.topics)
    hidden = denied_names(broker, context, DESCRIBE, TOPIC, names, quietly=True)
    for one in states.values():
        one.topics = [topic for topic in one.topics if topic.topic not in hidden]
    response.transaction_states = [states[name] for name in dict.fromkeys(request.transactional_ids)]
    return response


ROW = ApiRow(
    ApiKey.DESCRIBE_TRANSACTIONS,
    "0",
    handle=handle,
)
