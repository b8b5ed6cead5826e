"""A principal as the default principal builder serialises it, inside Envelope."""

from __future__ import annotations

from pessoa.wire.schema import Message, boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
