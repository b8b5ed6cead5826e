"""What a decision sees, and what comes out of it.

    Situation + request ──decide──▶ Decision: records for the metadata log, and the response

A function that decides looks at the situation and changes nothing. The records alone change the picture of the cluster,
once they are in the log: for the controller, for every broker, and again after every restart. So a decision that is
never written never was, and a response leaves only after its records are committed.

A part of a request that cannot be done is a `Refusal`: the error code for that part, and a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pessoa.base.ids import Uuid
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.controller.sessions import BrokerSessions
    from pessoa.metadata.image import MetadataImage
    from pessoa.wire.api.create_topics import CreatableTopicConfigs
    from pessoa.wire.schema import Message

# No decision writes more records than this: they all go into one batch.
MAX_RECORDS = 10_000


class Caller(Protocol):
    """Who asks, and in which version of the protocol."""

    @property
    def version(self) -> int: ...

    @property
    def principal(self) -> str: ...


class ControllerConfig(Protocol):
    """What a controller knows about configurations. The tables of keys are the broker's."""

    def broker_value(self, name: str) -> str:
        """What the node's own file says about a key, or the key's default."""

    def problem(
        self, resource_type: int, configs: Mapping[str, str], resource_name: str | None = None
    ) -> tuple[ErrorCode, str] | None:
        """What is wrong with these settings of a resource, taken together; None if nothing is.

        The name says whether a broker is meant or all of them: not everything can be set for both.
        """

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether entries can be added to the value and taken from it."""

    def default(self, resource_type: int, name: str) -> str:
        """The value of a key that nobody has set, as text."""

    def topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
        """The whole configuration of a topic with these settings, as the answer to its creation shows it."""


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
    # Of the broker that lives in the controller's own process, if one does.
    incarnation_id: Uuid | None = None
    # Why the quorum cannot raise kraft.version at this moment; None if it can.
    kraft_version_problem: Callable[[], str | None] = lambda: None

    def after(self, records: Sequence[Message]) -> Situation:
        """The same, with these records written: for what is decided in two steps."""
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


class NotController(Exception):
    """This node does not lead the metadata quorum, or no longer does; what was asked for may or may not happen."""


class Refusal(Exception):
    """What was asked for cannot be done, and why."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = message if message is not None else code.text
        super().__init__(f"{code.name}: {self.message}")


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
