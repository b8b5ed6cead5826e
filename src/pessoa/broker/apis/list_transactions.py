"""ListTransactions: the transactions that this broker coordinates (KIP-664).

    v1  only those that have been open for longer than a duration        v2  only those whose id matches a pattern

Authorised: DESCRIBE on a transactional id, or it is left out.

Patterns are matched in linear time, and very large ones are refused (`coordinator/bounded_regex.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names
from pessoa.security.acl import DESCRIBE, TRANSACTIONAL_ID
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: ListTransactionsRequest) -> Reply:
    answer = broker.transactions.list_transactions(request, context)
    if broker.authorizer is None:
        return answer
    from pessoa.coordinator.shard_answers import then

    return then(
        answer,
        lambda response: _without_hidden_transactions(broker, context, cast("ListTransactionsResponse", response)),
    )


def _without_hidden_transactions(
    broker: BrokerServices, context: RequestContext, response: ListTransactionsResponse
) -> ListTransactionsResponse:
    names = (state.transactional_id for state in response.transaction_states)
    hidden = denied_names(broker, context, DESCRIBE, TRANSACTIONAL_ID, names, quietly=True)
    response.transaction_states = [one for one in response.transaction_states if one.transactional_id not in hidden]
    return response


ROW = ApiRow(
    ApiKey.LIST_TRANSACTIONS,
    "0-2",
    handle=handle,
)
