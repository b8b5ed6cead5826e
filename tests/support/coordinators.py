"""Requests to a coordinator, as a broker's handlers hand them over: by API."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pessoa.broker.api_table import row_of
from pessoa.coordinator.group_coordinator import GroupCoordinator
from pessoa.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from pessoa.wire.request_context import Answer, Caller
from pessoa.wire.schema import Message


def submit(coordinator: GroupCoordinator | TransactionCoordinator, request: Message, caller: Caller) -> Answer[Message]:
    handle: Any = row_of(request.api_key).handle
    services = SimpleNamespace(groups=coordinator, transactions=coordinator, authorizer=None)
    answer: Answer[Message] = handle(services, caller, request)
    return answer
