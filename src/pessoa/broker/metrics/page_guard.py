"""Who may read /metrics of a node: users of the cluster who may DESCRIBE it, over TLS.

With `pessoa.metrics.listener` the pages are served with the TLS of that listener. /health stays open: it names no topic
and no group, and what asks whether a node is well often has no login. The others take HTTP Basic with the name and the
password of a user of SCRAM, whose keys are in the metadata of this node, and the authorizer must allow DESCRIBE on the
cluster, as for clients that ask for the same by Kafka's protocol.

A password is salted as often as the credential says, in one thread beside the loop: a flood of guesses waits for that
thread, `MAX_CONNECTIONS` of them at once, and brokers go on. An unknown name takes as long as a wrong password. A login
that was right is remembered, as a digest under a key of this process, for as long as the user has the same credential.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import secrets
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pessoa.base.config_values import ConfigProblem
from pessoa.broker.metrics.http_endpoint import Page, text_page
from pessoa.net.handshakes import Handshakes
from pessoa.net.tls import TlsConnection
from pessoa.security.acl import CLUSTER, CLUSTER_NAME, DESCRIBE
from pessoa.security.sasl.scram_keys import NUMBERS, ScramKeys, keys_of_password

if TYPE_CHECKING:
    from pessoa.broker.stages.node_context import NodeContext
    from pessoa.security.sasl.scram_keys import StoredCredential

log = logging.getLogger("pessoa.broker")

OPEN_PAGES = frozenset(("/health",))
MAX_REMEMBERED = 100
# Longer ones are no user's.
_LONGEST = 1024
# What an unknown user has: as many iterations as `pessoa users` gives.
_UNKNOWN_USER = ScramKeys(b"no such user", b"", b"", 8192)
_CHALLENGE = 'WWW-Authenticate: Basic realm="pessoa"\r\n'


class PageGuard:
    def __init__(self, node: NodeContext, listener: str) -> None:
        if node.tls.server(listener) is None:
            raise ConfigProblem("pessoa.metrics.listener", listener, "it must name a listener of this node with TLS")
        self._node = node
        self._listener = listener
        self._handshakes = Handshakes(node.clock, asyncio.get_running_loop())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pessoa-metrics-login")
        self._key = secrets.token_bytes(32)
        # By digests of name and password: the credential that they were right for.
        self._right: OrderedDict[bytes, StoredCredential] = OrderedDict()

    def __repr__(self) -> str:
        return f"<PageGuard by {self._listener}, {len(self._right)} logins remembered>"

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def secure(self, inner: asyncio.BufferedProtocol) -> asyncio.BufferedProtocol:
        tls = self._node.tls.server(self._listener)
        assert tls is not None, "a listener keeps its protocol"
        return TlsConnection(
            inner,
            lambda incoming, outgoing: tls.context.wrap_bio(incoming, outgoing, server_side=True),
            self._handshakes,
            lambda _: None,
            lambda why: log.info("metrics: the TLS handshake failed: %s", why),
        )

    async def refusal(self, path: str, authorization: str | None, host: str) -> Page | None:
        if path in OPEN_PAGES:
            return None
        login = _login(authorization)
        if login is None or not await self._is_right(*login):
            return text_page(401, "A user of the cluster must log in.\n")._replace(more_head=_CHALLENGE)
        authorizer = self._node.authorizer
        if authorizer is None:
            return None
        verdict = authorizer.decide(f"User:{login[0]}", host, DESCRIBE, CLUSTER, CLUSTER_NAME)
        return None if verdict.is_allowed else text_page(403, "It needs DESCRIBE on the cluster.\n")

    async def _is_right(self, name: str, password: str) -> bool:
        digest = hmac.digest(self._key, f"{name}:{password}".encode(), "sha256")
        credentials = self._credentials(name)
        if self._right.get(digest) in credentials.values():
            return True
        loop = asyncio.get_running_loop()
        for mechanism, stored in (credentials or {"SCRAM-SHA-512": _UNKNOWN_USER}).items():
            made = await loop.run_in_executor(
                self._thread, keys_of_password, mechanism, password, stored.salt, stored.iterations
            )
            if hmac.compare_digest(made.stored_key, stored.stored_key):
                self._right[digest] = stored
                if len(self._right) > MAX_REMEMBERED:
                    self._right.popitem(last=False)
                return True
        return False

    def _credentials(self, name: str) -> dict[str, StoredCredential]:
        """Return the stored credentials of a user, by mechanism."""
        known = self._node.publisher.image.scram.credentials
        found = ((mechanism, known.get((name, number))) for mechanism, number in NUMBERS.items())
        return {mechanism: stored for mechanism, stored in found if stored is not None}


def _login(authorization: str | None) -> tuple[str, str] | None:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon and name and len(name) + len(password) <= _LONGEST else None
