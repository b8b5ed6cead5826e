"""A whole answer: status, media type, body, and few other headers.

It is a Starlette Response, so that any ASGI server can send it; but Starlette makes a list of encoded headers for each,
which our own protocol (http.py) does not need. So the list is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

# Where an app finds the exchange (http.py), to take a body and to answer without ASGI's messages.
EXCHANGE_KEY = "pessoa.exchange"


class Answer(Response):
    # Not what Starlette's would do: nothing is rendered, and nothing added to the media type.
    def __init__(
        self,
        body: bytes = b"",
        status: int = 200,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.body = body
        self.status_code = status
        self.content_type = content_type
        self.extra_headers = dict(headers or {})
        self.background = None

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:  # type: ignore[override]
        named = {"content-type": self.content_type} if self.content_type else {}
        if self.status_code not in (204, 304):
            named["content-length"] = str(len(self.body))
        every = {**named, **self.extra_headers}
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in every.items()]
