"""What is known about a request besides its body."""

from __future__ import annotations

from typing import NamedTuple

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


class OwnRequest(NamedTuple):
    """The context of what a broker asks for itself, or for a client whose own request was another one."""

    version: int
    client_id: str | None = None
    client_host: str = ""
    principal: str = ANONYMOUS
    listener: str = ""
