"""What a decision sees, and what comes out of it.

    Situation + request ──decide──▶ Decision: records for the metadata log, and the response

A function that decides looks at the situation and changes nothing. The records alone change the image of the cluster,
once they are in the log: for the controller, for every broker, and again after every restart. So a decision that is
never written never was, and a response leaves only after its records are committed.

A part of a request that cannot be done is a `Refusal`: the error code for that part, and a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from pessoa.base.ids import Uuid
from pessoa.security.acl import CLUSTER, CLUSTER_NAME
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import THIS_NODE

if TYPE_CHECKING:
    from pessoa.controller.sessions import BrokerSessions
    from pessoa.metadata.image import MetadataImage
    from pessoa.quota.mutations import MutationCharge
    from pessoa.security.acl import Operation, ResourceType
    from pessoa.security.authorizer import Authorizer
    from pessoa.wire.api.create_topics import CreatableTopicConfigs
    from pessoa.wire.request_context import Answer, Caller
    from pessoa.wire.schema import Message

# No decision writes more records than this: they all go into one batch.
MAX_RECORDS = 10_000


class ControllerConfig(Protocol):
    """The configuration keys of topics, brokers and groups, for decisions. The tables of keys are the broker's."""

    def broker_value(self, name: str) -> str:
        """Return the value of a key in the node's own file, or the key's default."""

    def problem(
        self, resource_type: int, configs: Mapping[str, str], resource_name: str | None = None
    ) -> tuple[ErrorCode, str] | None:
        """Return what is wrong with these configs of a resource, taken together; None if they are valid. Whether the
        name is that of one broker or "" for all matters: some keys can be set for one of both only."""

    def is_list(self, resource_type: int, name: str) -> bool:
        """Return whether the key is a list, so that entries can be appended and subtracted."""

    def default(self, resource_type: int, name: str) -> str:
        """The default value of a key, as text."""

    def topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
        """Return the whole configuration of a topic with these overrides, for the CreateTopics response."""


class Situation(NamedTuple):
    image: MetadataImage
    caller: Caller
    # By the clock that only grows: sessions are measured with it.
    now_ms: int
    # Where the first record of the decision will stand.
    next_offset: int
    cluster_id: str
    config: ControllerConfig
    sessions: BrokerSessions
    # The doors for chance: a new id, and a number from 0 up to a bound.
    new_uuid: Callable[[], Uuid]
    random_below: Callable[[int], int]
    # Of the broker in the controller's own process, if there is one.
    incarnation_id: Uuid | None = None
    # Why the quorum cannot raise kraft.version at this moment; None if it can.
    kraft_version_problem: Callable[[], str | None] = lambda: None
    # What the caller has left of its quota of mutations; None if it has none.
    mutations: MutationCharge | None = None
    # None: everything is allowed.
    authorizer: Authorizer | None = None
    # By the clock of people and records.
    wall_ms: int = 0

    def may(self, operation: Operation, kind: ResourceType, name: str, *, quietly: bool = False) -> bool:
        """Return whether the caller is authorised for this resource. What the request as a whole needs was checked
        before."""
        if self.authorizer is None or self.caller.principal == THIS_NODE:
            return True
        return self.authorizer.may(self.caller, operation, kind, name, quietly=quietly)

    def may_in_cluster(self, operation: Operation) -> bool:
        """Return whether the caller is authorised for the cluster; if not, an ACL for a single topic is enough."""
        return self.may(operation, CLUSTER, CLUSTER_NAME, quietly=True)

    def after(self, records: Sequence[Message]) -> Situation:
        """Return the situation after these records: for a decision that is made in two steps."""
        if not records:
            return self
        end = self.next_offset + len(records)
        return self._replace(image=self.image.apply(records, end - 1, self.image.epoch), next_offset=end)


class Decision(NamedTuple):
    records: Sequence[Message]
    response: Message
    # What to remember outside the log, once the decision stands: that a broker was heard of.
    then: Callable[[], None] | None = None
    # The level that the quorum shall write down, with its voters.
    kraft_version: int | None = None


# The quorum's own answer to a request: the controller hands it to its quorum, of either kind.
ServeInQuorum: TypeAlias = "Callable[[Any, Message, int], Answer[Message]]"


class DecidedApi(Protocol):
    """An API that the controller decides, or the quorum that it leads."""

    @property
    def serve_in_quorum(self) -> ServeInQuorum | None: ...

    def decide(self, situation: Situation, request: Message) -> Decision:
        """Return the decision. Raises a `Refusal` of the whole request."""

    def refuse(self, request: Message, refusal: Refusal, version: int) -> Message:
        """Return the error response for a refusal, in the version in which it is sent."""


class NotController(Exception):
    """This node is not the active controller, or stopped being it; the request may or may not have an effect."""


def check_named_once(count: int, what: str) -> None:
    if count > 1:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{what} is named more than once.")


def check_record_count(records: Sequence[Message]) -> None:
    if len(records) > MAX_RECORDS:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"The request would write {len(records)} records, more than the {MAX_RECORDS} that one change may have; "
            "split it.",
        )
