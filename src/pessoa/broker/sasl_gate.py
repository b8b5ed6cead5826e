"""SASL on a listener: the shell around `security.sasl.server_session`.

    frame ──▶ gate ──▶ session ──Answer──▶ sent
                          ├─────Pass────▶ the listener's dispatcher: ApiVersions
                          └─────Failure─▶ sent after `connection.failed.authentication.delay.ms`, and closed; nothing of
                                          the connection is read meanwhile

A connection gets a gate when it is accepted, or when its broker begins to serve. Before the login it may ask for three
APIs in frames of at most `sasl.server.max.receive.size`, and has half a minute (Kafka gives it ten, the time of an idle
connection). After it the gate is taken away, so that a request costs nothing more; unless the session has an end
(KIP-368): then the gate stays, lets a client authenticate again, and closes the connection at the first request that
comes too late.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

from pessoa.base.config_table import int_value
from pessoa.broker.api_table import broker_rows
from pessoa.broker.oauth_verifier import make_verifier
from pessoa.broker.sasl_settings import (
    PLAIN,
    SUPPORTED,
    enabled_mechanisms,
    find_jaas,
    jaas_text,
    max_session_ms,
    passwords_of_nodes,
)
from pessoa.broker.token_logins import KeysMissing, LoginAfterKeys, TokenKeys, TokenUse
from pessoa.net.pending import Pending
from pessoa.security.sasl.exchange import MAX_TOKEN_BYTES, OAUTHBEARER, PRINCIPAL_TYPE
from pessoa.security.sasl.jaas import BadJaas, parse_jaas
from pessoa.security.sasl.oauthbearer import MAX_MESSAGE_BYTES, OAuthBearerExchange
from pessoa.security.sasl.plain import PlainExchange
from pessoa.security.sasl.scram import ScramServerExchange, ScramUsers, TokenCredential, most_common_credential_shape
from pessoa.security.sasl.scram_keys import NUMBERS
from pessoa.security.sasl.server_session import Answer, Failure, Mechanism, ServerSession, State
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode, ProtocolViolation
from pessoa.wire.message_headers import peek_api

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.base.clock import Clock
    from pessoa.base.entropy import Entropy
    from pessoa.broker.config import BrokerConfig
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.table_images import ScramImage
    from pessoa.net.connection import Connection
    from pessoa.net.listener import Listener
    from pessoa.net.server_protocol import Serve, ServerProtocol
    from pessoa.security.jwt.key_reader import KeyReader
    from pessoa.security.jwt.token_verifier import TokenVerifier
    from pessoa.security.sasl.exchange import ServerExchange
    from pessoa.security.sasl.scram import CredentialShape
    from pessoa.security.sasl.scram_keys import StoredCredential
    from pessoa.wire.frames import Buffer

# The address of a client, the mechanism, the principal (None for a login that failed) and the outcome.
LogIn = Callable[[str, str, str | None, str], None]

_LOGIN_MS = 30_000
_SECRET_BYTES = 32


class SaslListener:
    """What the SASL gates of a listener share: its settings, its users and its clock."""

    def __init__(
        self,
        name: str,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self.clock = clock
        # Called with the address, the mechanism, the principal and the outcome of each login.
        self.on_log_in: LogIn = lambda *_: None
        self._name = name
        self._config = config
        self._image = image
        self._entropy = entropy
        # What the salts of unknown users of SCRAM are made of, when the first one logs in: making it takes a while.
        self._secret: bytes | None = None
        # Mechanism → the image whose credentials were looked at, and the shape that most of them have.
        self._shapes: dict[int, tuple[ScramImage, CredentialShape]] = {}
        self._apis = frozenset(int(row.key) for row in broker_rows() if row.is_served_before_login)
        self.token_keys = TokenKeys()
        self._verifier: TokenVerifier | None = None
        # Mechanism → the text of its users, and what it says: parsed when it changes.
        self._parsed_jaas: dict[str, tuple[str | None, Mapping[str, str]]] = {}

    def __repr__(self) -> str:
        return f"<SaslListener {self._name}: {', '.join(enabled_mechanisms(self._config(), self._name))}>"

    async def start(self, reader: KeyReader | None = None) -> None:
        """Read the keys that verify OAUTHBEARER tokens, if the listener has them. Returns after the first attempt,
        successful or not. Raises a `ConfigProblem` for a file that is no key set."""
        jaas = find_jaas(self._config(), self._name, OAUTHBEARER)
        options = {} if jaas is None else jaas.options
        self._verifier = make_verifier(self._config(), self._name, self.clock, reader, options)
        if self._verifier is not None:
            await self._verifier.start()

    def close(self) -> None:
        if self._verifier is not None:
            self._verifier.close()

    def restrict(self, protocol: ServerProtocol) -> None:
        """Admit only the requests of a login on a connection that was just accepted."""
        limit = cast("int", self._config().of_listener(self._name, "sasl.server.max.receive.size"))
        protocol.connection.admit_only(self._apis, limit)

    def guard(self, protocol: ServerProtocol, listener: Listener) -> Serve:
        """Make a connection's login decide whether its requests are served; return the function that serves them."""
        protocol.connection.authenticate_by_ms = self.clock.monotonic_ms() + _LOGIN_MS
        gate = protocol.gate = SaslGate(self, protocol, listener, ServerSession(self.mechanisms)).serve
        return gate

    @property
    def failure_delay_ms(self) -> int:
        return int_value(self._config(), "connection.failed.authentication.delay.ms")

    def mechanisms(self) -> list[Mechanism]:
        config = self._config()
        return [
            Mechanism(
                name,
                partial(self._make_exchange, name),
                max_session_ms(config, self._name, name),
                MAX_MESSAGE_BYTES if name == OAUTHBEARER else MAX_TOKEN_BYTES,
            )
            for name in enabled_mechanisms(config, self._name)
            if name in SUPPORTED and (name != OAUTHBEARER or self._verifier is not None)
        ]

    def _make_exchange(self, mechanism: str) -> ServerExchange:
        if mechanism == PLAIN:
            return PlainExchange(self._plain_users())
        if mechanism == OAUTHBEARER:
            assert self._verifier is not None, "the mechanism is offered where there are keys"
            return OAuthBearerExchange(self._verifier.verify)
        if self._secret is None:
            self._secret = shared_secret(self._config(), self._entropy)
        number = NUMBERS[mechanism]
        users = ScramUsers(
            partial(self._find_user, number),
            partial(self._find_token, mechanism),
            self._secret,
            self._usual_shape(number),
        )
        return ScramServerExchange(mechanism, users, self._entropy.octets)

    def _usual_shape(self, mechanism: int) -> CredentialShape:
        image, known = self._image().scram, self._shapes.get(mechanism)
        if known is None or known[0] is not image:
            own = (one for (_, number), one in image.credentials.items() if number == mechanism)
            known = self._shapes[mechanism] = (image, most_common_credential_shape(own))
        return known[1]

    def _plain_users(self) -> Mapping[str, str]:
        text = jaas_text(self._config(), self._name, PLAIN)
        known = self._parsed_jaas.get(PLAIN)
        if known is None or known[0] != text:
            try:
                users = {} if text is None else parse_jaas(text, PLAIN).users()
            except BadJaas:
                # It was checked when it was set; one that another version let in has no users.
                users = {}
            known = self._parsed_jaas[PLAIN] = (text, users)
        return known[1]

    def _find_user(self, mechanism: int, name: str) -> StoredCredential | None:
        return self._image().scram.credentials.get((name, mechanism))

    def _find_token(self, mechanism: str, token_id: str, now_ms: int) -> TokenCredential | None:
        token = self._image().delegation_tokens.by_id.get(token_id)
        secret = self._config().value("delegation.token.secret.key")
        if token is None or not secret:
            return None
        expires_ms = min(token.max_timestamp_ms, token.expiration_timestamp_ms)
        kind, _, owner = token.owner.partition(":")
        # An owner of another type, as Apache Kafka may have stored it, must not become the user of that name.
        if expires_ms < now_ms or kind != PRINCIPAL_TYPE:
            return None
        return TokenCredential(self.token_keys.get(TokenUse(mechanism, str(secret), token_id)), owner, expires_ms)


def shared_secret(config: BrokerConfig, entropy: Entropy) -> bytes:
    """Return the secret from which the salts of unknown SCRAM users are made. All nodes should have the same, or
    different salts for one name on two nodes would show that there is no such user: so it is derived from what nodes
    share, if they share anything."""
    shared = str(config.value("delegation.token.secret.key") or "")
    if not shared and (passwords := passwords_of_nodes(config)):
        shared = json.dumps(passwords, sort_keys=True)
    return _derive_salt_secret(shared) if shared else entropy.octets(_SECRET_BYTES)


@lru_cache(maxsize=16)
def _derive_salt_secret(shared: str) -> bytes:
    """Return a slow hash of the shared secret. A peer gets salts before it logs in, and could try secrets on them
    offline: each try shall be expensive."""
    return hashlib.scrypt(shared.encode(), salt=b"salts of unknown SCRAM users", n=2**14, r=8, p=1, dklen=_SECRET_BYTES)


class SaslGate:
    """Serves the frames of one connection in place of the listener, which gets them only while the client is logged
    in."""

    def __init__(
        self, settings: SaslListener, protocol: ServerProtocol, listener: Listener, session: ServerSession
    ) -> None:
        self._settings = settings
        self._protocol = protocol
        self._listener = listener
        self._session = session
        self._is_refusal_noted = False

    def __repr__(self) -> str:
        return f"<SaslGate of {self._session!r}>"

    def serve(self, connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        session, clock = self._session, self._settings.clock
        if session.state is State.DONE and not self._begins_again(data, start, end):
            return self._listener.serve(connection, data, start, end)
        try:
            outcome = session.receive(data, start, end, clock.now_ms(), clock.monotonic_ms())
        except KeysMissing as missing:
            # Nothing has changed, so the same frame can be received again.
            again = partial(self.serve, connection, data, start, end)
            return LoginAfterKeys(self._settings.token_keys, missing.use, again)
        if isinstance(outcome, Failure):
            if not self._is_refusal_noted:
                self._report_login(connection, None, ErrorCode.SASL_AUTHENTICATION_FAILED)
            return _DelayedFailure(connection, outcome, clock, self._settings.failure_delay_ms)
        if not isinstance(outcome, Answer):
            return self._listener.serve(connection, data, start, end)
        if outcome.refusal is not None:
            # Noted now: many clients close the connection on this refusal, without the step that makes it a failure.
            self._report_login(connection, None, ErrorCode.SASL_AUTHENTICATION_FAILED)
            self._is_refusal_noted = True
        if session.state is State.DONE:
            self._let_in(connection)
        elif session.takes_raw_tokens:
            connection.admit_any_frame()
        return outcome.frames

    def _begins_again(self, data: bytearray, start: int, end: int) -> bool:
        """Return whether a frame on an authenticated connection begins a re-authentication."""
        session, now_ms = self._session, self._settings.clock.monotonic_ms()
        if session.expires_at_ms is None:
            return False
        if peek_api(data, start, end)[0] == ApiKey.SASL_HANDSHAKE and session.may_begin_again(now_ms):
            session.begin_again(now_ms)
            return True
        if now_ms > session.expires_at_ms:
            raise ProtocolViolation("its session has expired, and it has not authenticated again")
        return False

    def _let_in(self, connection: Connection) -> None:
        identity = self._session.identity
        assert identity is not None
        connection.principal, connection.is_token_authenticated = identity.principal, identity.is_token
        self._report_login(connection, identity.principal, ErrorCode.NONE)
        connection.authenticate_by_ms = None
        connection.admit_all(self._listener.limits.socket_request_max_bytes)
        if self._session.expires_at_ms is None:
            self._protocol.gate = None

    def _report_login(self, connection: Connection, principal: str | None, outcome: ErrorCode) -> None:
        self._settings.on_log_in(connection.host, self._session.mechanism, principal, outcome.name)


class _DelayedFailure(Pending):
    """The delayed error response to a failed login; the connection is closed after it."""

    __slots__ = ("_connection", "_failure", "_timer")

    is_last_step = True

    def __init__(self, connection: Connection, failure: Failure, clock: Clock, delay_ms: int) -> None:
        super().__init__()
        self._connection = connection
        self._failure = failure
        self._timer = clock.call_after_ms(delay_ms, self.ready)

    def frames(self) -> list[Buffer] | None:
        # What is owed before it has been answered: this connection has one request in progress at a time.
        self._connection.refuse(ProtocolViolation(f"authentication failed: {self._failure.why}"))
        return self._failure.frames

    def cancel(self) -> None:
        super().cancel()
        self._timer.cancel()
