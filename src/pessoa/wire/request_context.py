"""The context of a request: its header, and the connection on which it arrived.

Caller          what decisions may depend on: the version, the client, the principal
RequestContext  of a request that came on a connection
OwnRequest      of a request that a broker makes itself
Answer          the response to a request: at once, or awaited
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.wire.schema import Message

T = TypeVar("T")
# Most requests are answered within the call: then no task, no future and no turn of the loop is spent on them.
Answer: TypeAlias = T | Awaitable[T]

ANONYMOUS = "User:ANONYMOUS"
# The principal of a node's own requests. No connection or envelope has it: their principals have a type and a colon.
THIS_NODE = ""


class Caller(Protocol):
    """The client and the API version of a request. `RequestContext` and `OwnRequest` implement it."""

    @property
    def api_key(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...

    @property
    def principal(self) -> str: ...


class Charge(Protocol):
    """The usage that a request is charged with in the quotas of its client (`broker.throttling`): what handlers and
    `Pending` call."""

    def limit_fetch(self, max_bytes: int) -> int:
        """Return how many bytes may be read for a fetch that asks for `max_bytes`."""

    def admits_fetch(self, size: int) -> bool:
        """Return whether so many bytes may be sent now; if not, the client gets an empty response."""

    def count_fetched(self, size: int) -> None:
        """Count bytes that are sent in any case."""

    def make(self, response: Callable[[], Message | None]) -> Message | None:
        """Make the response, with the throttle time of its client in it."""

    def lose(self) -> None:
        """Charge what the request has used, since it gets no response. It may be called more than once."""


class RequestContext:
    __slots__ = (
        "api_key",
        "charge",
        "client_host",
        "client_id",
        "connection_id",
        "correlation_id",
        "is_token_authenticated",
        "listener",
        "principal",
        "version",
    )

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        client_host: str,
        connection_id: int,
        listener: str = "PLAINTEXT",
        principal: str = ANONYMOUS,
        is_token_authenticated: bool = False,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host
        self.connection_id = connection_id
        self.listener = listener
        self.principal = principal
        # Whether the client logged in with a delegation token: then it may not manage tokens.
        self.is_token_authenticated = is_token_authenticated
        # What the request counts for; None if no quota holds for its client.
        self.charge: Charge | None = None

    def __repr__(self) -> str:
        return (
            f"<request {self.correlation_id} of {self.client_id!r} from {self.client_host}: "
            f"API {self.api_key} version {self.version}, {self.principal} on {self.listener}>"
        )


class OwnRequest(NamedTuple):
    """The context of a request that a broker makes for itself, or on behalf of a client whose own request was
    another one: then it has the client's principal, and is authorised as the client's."""

    version: int
    client_id: str | None = None
    client_host: str = ""
    principal: str = THIS_NODE
    listener: str = ""
    # Of the request that this one is made for.
    api_key: int = -1
