"""How simulated clients log in to a secured cluster, and the checks of logins.

`Access` sends the requests of a client of such a cluster after a login, and checks every response against the ACLs of
its user (`rights`). The client treats a refused request as one without a response, and retries it until it is allowed.

    ScramLogin   with the user's password, which may be changed at any time: it tries the passwords that were ever set
    TokenLogin   with delegation tokens that it creates itself, one after another; they are valid for a few seconds

The channel renews a session that expires (KIP-368). A `lazy` login hides the lifetime from the channel, so that the
session expires while the client works; a response to a request that was sent after the expiry is a Violation.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from pessoa.net.channel import Channel, ChannelFailed
from pessoa.security.sasl.exchange import AuthenticationFailed
from pessoa.security.sasl.scram import ScramClientExchange
from pessoa.wire.api.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pessoa.wire.errors import ErrorCode
from tests.simulation.history import Violation
from tests.simulation.node import EPOCH_MS
from tests.simulation.users import MECHANISM, password_of, salted

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from pessoa.net.network import Network
    from pessoa.security.sasl.client_login import Ask
    from pessoa.wire.schema import Message
    from tests.simulation.loop import SimulatedLoop
    from tests.simulation.rights import Rights

_NONCE_BYTES = 12
_FOR_TOKENS = ",tokenauth=true"
_TOKEN_REQUEST_MS = 700
# The clocks of two nodes differ by less than this, if none of them jumps.
_CLOCKS_DIFFER_MS = 1_000
# Nodes count milliseconds.
_CLOCK_TICK_S = 0.001


async def log_in(ask: Ask, name: str, password: str, nonce: str, extensions: str = "") -> int:
    """Log in and return how many milliseconds the session lasts, or 0. Raises `AuthenticationFailed`, as in
    `client_login`."""
    shaken = await ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
    assert isinstance(shaken, SaslHandshakeResponse)
    if shaken.error_code:
        raise AuthenticationFailed(f"{MECHANISM} is refused with {ErrorCode.of(shaken.error_code).name}")
    exchange = ScramClientExchange(MECHANISM, name, password, nonce, extensions, salted)
    first = await _authenticate(ask, exchange.first())
    last = await _authenticate(ask, exchange.final(first.auth_bytes))
    exchange.check(last.auth_bytes)
    return last.session_lifetime_ms


async def _authenticate(ask: Ask, token: bytes) -> SaslAuthenticateResponse:
    answer = await ask(SaslAuthenticateRequest(auth_bytes=token), 2)
    assert isinstance(answer, SaslAuthenticateResponse)
    if answer.error_code:
        raise AuthenticationFailed(answer.error_message or f"error {answer.error_code}")
    return answer


class _Session(NamedTuple):
    number: int
    ends_s: float


_NO_SESSION = _Session(0, float("inf"))


class ScramLogin:
    """The login hook of a client's channels, with SCRAM."""

    def __init__(self, user: str, rights: Rights, loop: SimulatedLoop, rng: Random, *, is_lazy: bool = False) -> None:
        self.user = user
        self._rights = rights
        self._loop = loop
        self._rng = rng
        self._is_lazy = is_lazy
        # Address → the session with that node.
        self._sessions: dict[str, _Session] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.user}: {self._count} sessions>"

    async def __call__(self, peer: str, ask: Ask) -> int:
        try:
            lifetime_ms = await self._log_in(ask)
        except AuthenticationFailed as problem:
            raise ChannelFailed(f"{peer}: {problem}") from problem
        self._count += 1
        ends_s = self._loop.now_s + lifetime_ms / 1000 if lifetime_ms else _NO_SESSION.ends_s
        self._sessions[peer] = _Session(self._count, ends_s)
        return 0 if self._is_lazy else lifetime_ms

    async def _log_in(self, ask: Ask) -> int:
        rights, user, generation = self._rights, self.user, self._choose_generation()
        before = rights.passwords()
        was_right = rights.is_password_everywhere(user, generation)
        was_wrong = rights.is_password_nowhere(user, generation)
        try:
            lifetime_ms = await log_in(ask, user, password_of(user, generation), self.nonce())
        except AuthenticationFailed as problem:
            if was_right and before.is_unchanged(rights.passwords()):
                raise Violation(
                    f"{user} has its password {generation} on all nodes, and is refused: {problem}"
                ) from None
            raise
        if was_wrong and rights.is_password_nowhere(user, generation) and before.is_unchanged(rights.passwords()):
            raise Violation(f"{user} logs in with its password {generation}, and no node has it any more")
        return lifetime_ms

    def _choose_generation(self) -> int:
        """Return mostly the newest generation of the password, sometimes any: a replaced password may become valid
        again if the request that set it arrives late."""
        newest = self._rights.generations.get(self.user, 0)
        return newest if newest == 0 or self._rng.random() < 0.8 else self._rng.randint(0, newest)

    def nonce(self) -> str:
        return self._rng.randbytes(_NONCE_BYTES).hex()

    def session(self, peer: str) -> _Session:
        return self._sessions.get(peer, _NO_SESSION)

    def check_session(self, peer: str, sent_s: float, session: _Session) -> None:
        """Check a response: `session`, in which its request was sent, must not have expired before `sent_s`."""
        if sent_s > session.ends_s + _CLOCK_TICK_S and self.session(peer) == session:
            raise Violation(
                f"{self.user} was served by {peer} at {sent_s:.3f} s, and its session had ended at "
                f"{session.ends_s:.3f} s"
            )


class _Token(NamedTuple):
    token_id: str
    hmac: bytes
    expires_ms: int


class TokenLogin(ScramLogin):
    """A login with a delegation token. Without a valid token it creates one first, over a connection of its own to the
    same node."""

    def __init__(
        self,
        user: str,
        rights: Rights,
        loop: SimulatedLoop,
        rng: Random,
        open_channel: Callable[[str, int, ScramLogin], Channel],
        *,
        has_jumping_clocks: bool,
    ) -> None:
        super().__init__(user, rights, loop, rng)
        self._own_login = ScramLogin(user, rights, loop, rng)
        self._open_channel = open_channel
        self._has_jumping_clocks = has_jumping_clocks
        self._token: _Token | None = None
        # Set by the nemesis: the token is to be expired early.
        self.must_expire = False

    async def __call__(self, peer: str, ask: Ask) -> int:
        if self._rng.random() < 0.5:
            self._is_lazy = not self._is_lazy
        now_ms = EPOCH_MS + int(self._loop.now_s * 1000)
        token = self._token
        # Sometimes it tries an expired token.
        is_worth_trying = token is not None and (now_ms < token.expires_ms or self._rng.random() < 0.2)
        if token is None or not is_worth_trying or self.must_expire:
            await self._renew(peer)
        return await super().__call__(peer, ask)

    async def _renew(self, peer: str) -> None:
        host, _, port = peer.rpartition(":")
        channel = self._open_channel(host, int(port), self._own_login)
        try:
            if self.must_expire and self._token is not None:
                await self._expire(channel, self._token)
            lifetime_ms = self._rng.choice((1_200, 2_500, 5_000))
            created = await channel.send(
                CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=lifetime_ms), 3, _TOKEN_REQUEST_MS
            )
        finally:
            channel.close()
        assert isinstance(created, CreateDelegationTokenResponse)
        if created.error_code:
            raise ChannelFailed(f"{peer} gives no token: {ErrorCode.of(created.error_code).name}")
        self._token = _Token(created.token_id, bytes(created.hmac), created.expiry_timestamp_ms)

    async def _expire(self, channel: Channel, token: _Token) -> None:
        expired = await channel.send(
            ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2, _TOKEN_REQUEST_MS
        )
        assert isinstance(expired, ExpireDelegationTokenResponse)
        self.must_expire = False

    async def _log_in(self, ask: Ask) -> int:
        token = self._token
        assert token is not None
        now_ms = EPOCH_MS + int(self._loop.now_s * 1000)
        has_ended = now_ms > token.expires_ms + _CLOCKS_DIFFER_MS and not self._has_jumping_clocks
        password = base64.b64encode(token.hmac).decode()
        lifetime_ms = await log_in(ask, token.token_id, password, self.nonce(), _FOR_TOKENS)
        if has_ended:
            raise Violation(f"{self.user} logs in with a token that ended {now_ms - token.expires_ms} ms ago")
        return lifetime_ms


class Access:
    """Sends the requests of a client of a secured cluster and checks the responses."""

    def __init__(self, principal: str, login: ScramLogin, rights: Rights, loop: SimulatedLoop) -> None:
        self.principal = principal
        self.login = login
        self._rights = rights
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Access of {self.principal}: {self.login!r}>"

    async def send(self, channel: Channel, request: Message, version: int, timeout_ms: int) -> Message:
        peer, sent_s = f"{channel.host}:{channel.port}", self._loop.now_s
        before, session = self._rights.before(self.principal), self.login.session(peer)
        response = await channel.send(request, version, timeout_ms)
        self.login.check_session(peer, sent_s, session)
        if self._rights.check(self.principal, request, before, response):
            raise ChannelFailed(f"{self.principal} is denied {type(request).__name__}")
        return response


def open_channel(network: Network, name: str) -> Callable[[str, int, ScramLogin], Channel]:
    return lambda host, port, login: Channel(network, host, port, name, login=login)
