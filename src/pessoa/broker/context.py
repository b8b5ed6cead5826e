"""What is known about a request besides its body, and about a reply that is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.wire.schema import Message

ANONYMOUS = "User:ANONYMOUS"


class RequestContext:
    __slots__ = (
        "api_key",
        "client_host",
        "client_id",
        "connection_id",
        "correlation_id",
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
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host
        self.connection_id = connection_id
        self.listener = listener
        self.principal = principal

    def __repr__(self) -> str:
        return (
            f"<request {self.correlation_id} of {self.client_id!r} from {self.client_host}: "
            f"API {self.api_key} version {self.version}, {self.principal} on {self.listener}>"
        )


M = TypeVar("M", bound="Message")


# An awaitable by its method alone, as `Acknowledging`: whether something is of a kind that inherits from Awaitable is
# slow to find out, and asked of every reply that is not at hand.
class Replicating(Generic[M]):
    """The reply to a request whose records are in our log; what it waits for are disks and other replicas."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Awaitable[M]) -> None:
        self._reply = reply

    def __await__(self) -> Generator[Any, None, M]:
        return self._reply.__await__()


class Parked:
    """A reply that is made when somebody calls `ready`. A connection asks to be called then; who has none awaits it."""

    __slots__ = ("_on_ready", "is_ready")

    def __init__(self) -> None:
        self.is_ready = False
        self._on_ready: Callable[[], object] | None = None

    def ready(self) -> None:
        """The reply can be made. Whoever calls this goes on first: it is made by those who wait for it."""
        if not self.is_ready:
            self.is_ready = True
            if self._on_ready is not None:
                self._on_ready()

    def when_ready(self, call: Callable[[], object]) -> None:
        self._on_ready = call
        if self.is_ready:
            call()

    def reply(self) -> Message | None:
        """Asked for once, after `ready`."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._on_ready = None

    def __await__(self) -> Generator[Any, None, Message | None]:
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def call() -> None:
            if not called.done():
                called.set_result(None)

        self.when_ready(call)
        try:
            yield from called
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.reply()


class OwnRequest(NamedTuple):
    """The context of what a broker asks for itself, or for a client whose own request was another one."""

    version: int
    client_id: str | None = None
    client_host: str = ""
    principal: str = ANONYMOUS
    listener: str = ""
