"""What handlers ask about access, beside the work that it is about.

Without `authorizer.class.name` a node has no authorizer, and everything is allowed. What a request as a whole needs
stands in the row of its API (`api_row.Authorised`) and is checked where the request enters the node that serves it:

    a listener of a broker      `dispatch`: all but what is forwarded
    a listener of a controller  `dispatch`: everything; an envelope itself needs CLUSTER_ACTION
    an envelope                 `apis/envelope.py`: the request in it, with the principal and the address of the client
    the controller of the       `controller_client`: what a client has asked of the broker
    broker's own process

Parts of a request (topics, groups, configurations) are checked by its handler, or by what the controller decides
(`Situation.may`). A topic that may not be described is denied before it is looked for: the answer does not tell whether
it exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.authorizer_settings import ALLOW_EVERYONE, SUPER_USERS, has_authorizer
from pessoa.security.acl import (
    CLUSTER,
    CLUSTER_NAME,
    DESCRIBE,
    GROUP,
    SUPPORTED_OPERATIONS,
    TOPIC,
    operation_bits,
)
from pessoa.wire.request_context import THIS_NODE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.broker.api_row import AnyRow, AnyServices
    from pessoa.broker.config import BrokerConfig
    from pessoa.security.acl import Operation, ResourceType
    from pessoa.security.authorizer import Authorizer
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import Caller
    from pessoa.wire.schema import Message

NO_AUTHORIZER = "No Authorizer is configured."
_EVERYTHING = {kind: operation_bits(operations) for kind, operations in SUPPORTED_OPERATIONS.items()}


def make_authorizer(config: BrokerConfig) -> Authorizer | None:
    """Return the authorizer of a node; None if its configuration names none."""
    settings = config.static
    if not has_authorizer(settings):
        return None
    from pessoa.security.authorizer import Authorizer, parse_super_users

    allows = settings.get(ALLOW_EVERYONE, "false").strip().lower() == "true"
    return Authorizer(parse_super_users(settings.get(SUPER_USERS, "")), allows_without_acl=allows)


def may(
    node: AnyServices,
    caller: Caller,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    count: int = 1,
    quietly: bool = False,
) -> bool:
    """Return whether the caller is authorised for the operation on the resource. `quietly`: a denial is not logged."""
    authorizer = node.authorizer
    return authorizer is None or authorizer.may(caller, operation, kind, name, count, quietly=quietly)


def may_in_cluster(node: AnyServices, caller: Caller, operation: Operation, *, quietly: bool = False) -> bool:
    return may(node, caller, operation, CLUSTER, CLUSTER_NAME, quietly=quietly)


def denied_names(
    node: AnyServices,
    caller: Caller,
    operation: Operation,
    kind: ResourceType,
    names: Iterable[str],
    *,
    quietly: bool = False,
) -> frozenset[str]:
    """Return those of the names on which the caller may not do this operation. A name that comes twice is checked
    once."""
    if node.authorizer is None:
        return frozenset()
    return frozenset(
        name for name in dict.fromkeys(names) if not may(node, caller, operation, kind, name, quietly=quietly)
    )


def operations(node: AnyServices, caller: Caller, kind: ResourceType, name: str) -> int:
    """Return the caller's operations on a resource, as the bits of `authorized_operations`."""
    authorizer = node.authorizer
    return _EVERYTHING[kind] if authorizer is None else authorizer.operations(caller, kind, name)


def topic_operations(node: AnyServices, caller: Caller, name: str) -> int:
    return operations(node, caller, TOPIC, name)


def group_operations(node: AnyServices, caller: Caller, name: str) -> int:
    return operations(node, caller, GROUP, name)


def cluster_operations(node: AnyServices, caller: Caller) -> int:
    """Return the caller's operations on the cluster, as the bits of `authorized_operations`; 0 if it may not describe
    it."""
    if not may_in_cluster(node, caller, DESCRIBE):
        return 0
    return operations(node, caller, CLUSTER, CLUSTER_NAME)


def denial_response(
    authorizer: Authorizer | None, row: AnyRow, request: Message, caller: Caller, *, on_controller: bool
) -> Message | None:
    """Return the error response to a request that its caller may not make at all; None if it may."""
    if authorizer is None or caller.principal == THIS_NODE:
        return None
    refusal: Refusal | None = row.why_denied(authorizer, request, caller, on_controller=on_controller)
    return None if refusal is None else row.refuse(request, refusal, caller.version)
