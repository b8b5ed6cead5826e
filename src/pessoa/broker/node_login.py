"""How a node logs in where other nodes demand it: the hook of its channels.

Credentials are read from the configuration at every connection, so that a changed password holds for the next one. A
login that fails is a `ChannelFailed` like any other, and is tried again with the next request; the log has a line when
it fails, and not for each repetition.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.base.config_values import ConfigProblem
from pessoa.net.channel import ChannelFailed
from pessoa.security.sasl.exchange import AuthenticationFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.entropy import Entropy
    from pessoa.security.sasl.client_login import Ask, Credentials

log = logging.getLogger("pessoa.broker")


class NodeLogin:
    """Logs this node in to others; `credentials` returns None if no login is required."""

    def __init__(self, credentials: Callable[[], Credentials | None], entropy: Entropy) -> None:
        self._credentials = credentials
        self._entropy = entropy
        self._last_problem = ""

    def __repr__(self) -> str:
        return f"<NodeLogin: {self._last_problem or 'no problem'}>"

    async def __call__(self, peer: str, ask: Ask) -> int:
        """Log in; return the length of the session in milliseconds, 0 if it has no end."""
        try:
            credentials = self._credentials()
            if credentials is None:
                return 0
            from pessoa.security.sasl.client_login import log_in

            lifetime_ms = await log_in(credentials, ask, self._entropy.octets)
        except (AuthenticationFailed, ConfigProblem) as problem:
            self._report(f"cannot log in to {peer}: {problem}")
            raise ChannelFailed(f"{peer}: {problem}") from problem
        self._last_problem = ""
        return lifetime_ms

    def _report(self, problem: str) -> None:
        if problem != self._last_problem:
            self._last_problem = problem
            log.warning("%s", problem)
