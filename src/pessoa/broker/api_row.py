"""The row of an API: everything that the parts of a broker and of a controller have to know about it.

Each file of `broker/apis` ends with one, and `api_table` collects them: both listeners' dispatch tables, the answer of
ApiVersions, what brokers forward to the controller and how, what is served in slices, and the form of refusals. There
is no other table by API.

    handle                 answers on the listeners of brokers
    handle_on_controller   answers on the listeners of controllers; often the same function
    decide                 the controller's decision about it: records and a response (`pessoa.controller`)
    serve_in_quorum        the metadata quorum's answer to it (`pessoa.quorum`)
    refuse                 the response to a request that is refused as a whole: the error stands wherever the API has a
                           place for one. So answers a controller that does not lead (NOT_CONTROLLER), a broker that
                           could not reach one in time, a decision that refuses everything that was asked of it, and
                           the check of what is `authorised`
    authorised             what a client must be allowed to do to make the request at all (`broker.authorization`);
                           APIs that refuse parts of requests check those in their handlers

The types of all of them say the same request, or mypy objects.

About imports: ApiVersions collects every row, so a file of `broker/apis` imports little at its top. Files of APIs that
every client uses at once import what they need; the others import the wire's classes and what decides within their
functions, at the first request.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from pessoa.security.acl import (
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Operation,
    ResourceType,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message
from pessoa.wire.versions import Versions

if TYPE_CHECKING:
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.broker.services import BrokerServices
    from pessoa.broker.slices import Sliced
    from pessoa.controller.decision import Decision, Situation
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.security.authorizer import Authorizer
    from pessoa.wire.catalogue import ApiKey
    from pessoa.wire.request_context import Answer, Caller, RequestContext

R = TypeVar("R", bound=Message)
AnyServices: TypeAlias = "BrokerServices | ControllerServices"
# A row whose request is not known here: that of a table by API key.
AnyRow: TypeAlias = "ApiRow[Any]"
# What a handler gives: the response, or None for a request that wants none.
Reply: TypeAlias = "Answer[Message | None]"


class ControllerChannel(Enum):
    """The connections of a broker to the controller. Each has its own, since a controller serves the requests of one
    connection one after another: a heartbeat must not wait behind the creation of a thousand topics."""

    FORWARDING = "forwarding"
    # Of the broker's own creations: a controller mutes their connection if they exceed a quota, and that must stop
    # neither what clients have asked for nor the allocation of producer ids.
    INTERNAL_TOPICS = "internal-topics"
    HEARTBEAT = "heartbeat"
    REGISTRATION = "registration"
    ALTER_PARTITION = "alter-partition"
    DIRECTORY_ASSIGNMENTS = "directory-assignments"


class Quota(Enum):
    """The client quota that a request counts for. Every quota but NONE includes REQUEST, as in Kafka."""

    NONE = "none: between brokers and controllers, and before a client has its name"
    REQUEST = "request_percentage"
    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    CONTROLLER_MUTATION = "controller_mutation_rate"


class Audited(Enum):
    """Whether the audit log has the requests of an API, which change the cluster or what it holds."""

    NO = "no"
    YES = "yes"
    # The numbers of resource types and operations in them are those of access control lists.
    OF_ACLS = "yes, as a change of access control lists"


class Counted(Enum):
    """What the metrics count of a request, beside the request itself, its time and its errors."""

    REQUESTS = "nothing else"
    PRODUCED = "batches and records taken, by topic"
    FETCHED = "bytes given, by topic, and those given to followers"
    COMMITTED = "offsets committed"
    SHARED = "share fetches and acknowledgements, by topic"


def _cluster(_request: Message) -> str:
    return CLUSTER_NAME


class Authorised(NamedTuple):
    """What a client must be allowed to do: `Authorised(ALTER, CLUSTER)`, `Authorised(READ, GROUP, lambda request:
    request.group_id)`."""

    operation: Operation
    resource: ResourceType
    # The name of the resource that a request is about.
    name_of: Callable[[Any], str] = _cluster
    # Another operation that will do as well.
    otherwise: Operation | None = None

    def is_met(self, authorizer: Authorizer, request: Message, caller: Caller) -> bool:
        name = self.name_of(request)
        if self.otherwise is None:
            return authorizer.may(caller, self.operation, self.resource, name)
        return authorizer.may(caller, self.operation, self.resource, name, quietly=True) or authorizer.may(
            caller, self.otherwise, self.resource, name
        )


# The error of what a client may not do, by the type of the resource.
DENIED = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# What nodes ask of each other.
BETWEEN_NODES = Authorised(CLUSTER_ACTION, CLUSTER)


class ApiRow(Generic[R]):
    __slots__ = (
        "_decide",
        "_refuse",
        "advertised",
        "audited",
        "authorised",
        "authorised_on_controller",
        "controller_channel",
        "counted",
        "handle",
        "handle_on_controller",
        "is_forwarded",
        "is_offered",
        "is_served_before_login",
        "key",
        "quota",
        "serve_in_quorum",
        "sliced",
        "versions",
    )

    def __init__(
        self,
        key: ApiKey,
        versions: str,
        *,
        handle: Callable[[BrokerServices, RequestContext, R], Reply] | None = None,
        handle_on_controller: Callable[[ControllerServices, RequestContext, R], Reply] | None = None,
        advertised: str | None = None,
        is_offered: Callable[[BrokerServices], bool] | None = None,
        is_forwarded: bool = False,
        is_served_before_login: bool = False,
        audited: Audited = Audited.NO,
        counted: Counted = Counted.REQUESTS,
        controller_channel: ControllerChannel | None = None,
        decide: Callable[[Situation, R], Decision] | None = None,
        serve_in_quorum: Callable[[RaftQuorum, R, int], Answer[Message]] | None = None,
        refuse: Callable[[R, Refusal, int], Message] | None = None,
        sliced: Sliced | None = None,
        authorised: Authorised | tuple[Authorised, ...] = (),
        authorised_on_controller: Authorised | None = None,
        quota: Quota = Quota.REQUEST,
    ) -> None:
        self.key = key
        self.versions = Versions.parse(versions)
        self.advertised = Versions.parse(advertised or versions)
        # Whether a broker tells clients of it; None: every one does.
        self.is_offered = is_offered
        # None: not served on such listeners.
        self.handle = handle
        self.handle_on_controller = handle_on_controller
        # Whether a controller takes it in an envelope, from a broker that a client has asked (KIP-590).
        self.is_forwarded = is_forwarded
        # Whether a client may ask for it on a listener with SASL before it has logged in.
        self.is_served_before_login = is_served_before_login
        self.audited = audited
        self.counted = counted
        # The connection on which a broker sends it to the controller as it is, for itself; None: in an envelope.
        self.controller_channel = controller_channel
        self._decide = decide
        self.serve_in_quorum = serve_in_quorum
        self._refuse = refuse
        # The list that a large request is cut by; None: served whole.
        self.sliced = sliced
        # All of them are checked, in this order; none: nothing is.
        self.authorised = (authorised,) if isinstance(authorised, Authorised) else authorised
        # On the listeners of controllers, where it is another check.
        self.authorised_on_controller = (
            self.authorised if authorised_on_controller is None else (authorised_on_controller,)
        )
        assert refuse is not None or not (self.authorised or self.authorised_on_controller), f"{key.title} needs refuse"
        self.quota = quota

    def __repr__(self) -> str:
        return f"<ApiRow {self.key.title} {self.versions}>"

    def decide(self, situation: Situation, request: R) -> Decision:
        assert self._decide is not None, f"{self.key.title} is nothing that a controller decides about"
        return self._decide(situation, request)

    def why_denied(
        self, authorizer: Authorizer, request: Message, caller: Caller, *, on_controller: bool
    ) -> Refusal | None:
        """Return why the caller may not make the request; None if it may."""
        for one in self.authorised_on_controller if on_controller else self.authorised:
            if not one.is_met(authorizer, request, caller):
                code = DENIED[one.resource]
                return Refusal(code, code.text)
        return None

    def refuse(self, request: R, refusal: Refusal, version: int) -> Message:
        """Return the error response to the request; `version` is the one in which it is sent."""
        assert self._refuse is not None, f"{self.key.title} has no refusal of the whole"
        return self._refuse(request, refusal, version)
