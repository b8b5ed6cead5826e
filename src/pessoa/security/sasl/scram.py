"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): a client proves that it knows its password without sending it.

    client                                        server
    first: name, nonce            ──▶             a nonce of its own, the salt and iterations of the user
    final: proof                  ──▶             is H(proof XOR HMAC(StoredKey, all messages)) the StoredKey?
    is the signature right?       ◀──             HMAC(ServerKey, all messages)

What Apache Kafka does otherwise: it refuses an unknown user at the first message and a wrong password at the second, so
that the number of rounds tells which users there are. Here an unknown user gets a salt as well, made of its name and a
secret of the cluster, so that it is the same whenever and wherever it is asked for, and the proof then fails. Salt and
iterations have the shape that most credentials of the mechanism have, and are made for users that exist as well, so
that the time does not tell either. A user whose credential has another shape can be told from one that does not exist.

The nonce of the final message must be the whole of what the server sent (CVE-2024-56128), and a node that logs in takes
only iterations that Kafka allows: fewer would help one who listens, and many would keep the node busy.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pessoa.security.sasl.exchange import AuthenticationFailed, Identity
from pessoa.security.sasl.scram_keys import (
    ALGORITHMS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramKeys,
    StoredCredential,
    salted_password,
    text_salt,
)
from pessoa.security.sasl.scram_messages import (
    BadScramMessage,
    ClientFirst,
    encoded,
    escaped,
    read_client_final,
    read_client_first,
    read_server_final,
    read_server_first,
    write_server_first,
)

_NONCE_BYTES = 18
_FOR_TOKENS = "tokenauth"


class TokenCredential(NamedTuple):
    """A delegation token that is valid: its keys, its owner's name, and when it ends by the wall clock."""

    keys: StoredCredential
    owner: str
    expires_at_ms: int


class CredentialShape(NamedTuple):
    """The properties of a credential that a client sees after its first message, apart from the salt itself. The
    default is that of Kafka's tools, and of every delegation token."""

    iterations: int = MIN_ITERATIONS
    # The length of a salt of random bytes; 0: one of letters and digits (`text_salt`).
    salt_bytes: int = 0


def most_common_credential_shape(credentials: Iterable[StoredCredential]) -> CredentialShape:
    """Return the shape that most of these credentials have; if several are as common, the largest, so that all nodes
    choose the same."""
    counts = Counter(_shape_of(one) for one in credentials if one.iterations >= MIN_ITERATIONS)
    return max(counts, key=lambda shape: (counts[shape], shape), default=CredentialShape())


def _shape_of(credential: StoredCredential) -> CredentialShape:
    salt = credential.salt
    return CredentialShape(credential.iterations, 0 if salt.isalnum() and salt == salt.lower() else len(salt))


class ScramUsers(NamedTuple):
    """The lookup functions by which an exchange finds users and tokens; they return None for an unknown user or
    token."""

    find: Callable[[str], StoredCredential | None]
    find_token: Callable[[str, int], TokenCredential | None]
    # What the salts of unknown users are made of.
    secret: bytes
    # The shape of the credential that an unknown user seems to have.
    shape: CredentialShape = CredentialShape()


class ScramServerExchange:
    """The server's side of SCRAM. `octets(count)` returns random bytes."""

    refusal = None

    def __init__(self, mechanism: str, users: ScramUsers, octets: Callable[[int], bytes]) -> None:
        self._mechanism = mechanism
        self._algorithm = ALGORITHMS[mechanism]
        self._users = users
        self._octets = octets
        self._client_first: ClientFirst | None = None
        self._server_first = ""
        self._nonce = ""
        self._keys: StoredCredential
        # The user if the proof is right; None if there is no such user.
        self._claimed_identity: Identity | None = None
        self.identity: Identity | None = None

    def __repr__(self) -> str:
        return f"<ScramServerExchange {self._mechanism}: {self.identity}>"

    def step(self, token: bytes, now_ms: int) -> bytes:
        try:
            return self._begin(token, now_ms) if self._client_first is None else self._finish(token, self._client_first)
        except BadScramMessage as problem:
            raise AuthenticationFailed(str(problem)) from None

    def _begin(self, token: bytes, now_ms: int) -> bytes:
        first = read_client_first(token)
        self._keys, self._claimed_identity = self._look_up(first, now_ms)
        if first.authorization_id not in ("", first.name):
            text = "Client requested an authorization id that is different from username"
            raise AuthenticationFailed(text, f"Authentication failed: {text}")
        self._client_first = first
        self._nonce = first.nonce + encoded(self._octets(_NONCE_BYTES))
        self._server_first = write_server_first(self._nonce, self._keys.salt, self._keys.iterations)
        return self._server_first.encode()

    def _look_up(self, first: ClientFirst, now_ms: int) -> tuple[StoredCredential, Identity | None]:
        # Computed in any case, so that the response time does not reveal whether the user exists.
        if first.extensions.get(_FOR_TOKENS, "").lower() == "true":
            unknown = self._keys_of_unknown_user(first.name, CredentialShape())
            token = self._users.find_token(first.name, now_ms)
            if token is not None:
                return token.keys, Identity(token.owner, token.expires_at_ms, is_token=True)
        else:
            unknown = self._keys_of_unknown_user(first.name, self._users.shape)
            known = self._users.find(first.name)
            if known is not None and known.iterations >= MIN_ITERATIONS:
                return known, Identity(first.name)
        return unknown, None

    def _keys_of_unknown_user(self, name: str, shape: CredentialShape) -> ScramKeys:
        key_material = hmac.digest(self._users.secret, f"{self._mechanism} {name}".encode(), self._algorithm)
        salt = hashlib.shake_256(key_material).digest(shape.salt_bytes) if shape.salt_bytes else text_salt(key_material)
        return ScramKeys(salt, key_material, key_material, shape.iterations)

    def _finish(self, token: bytes, first: ClientFirst) -> bytes:
        final = read_client_final(token)
        if not hmac.compare_digest(final.nonce, self._nonce):
            raise AuthenticationFailed("the nonce of the final message is not the one that was sent")
        if final.binding != first.gs2.encode():
            raise AuthenticationFailed("the final message repeats another beginning")
        messages = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        is_proved = self._is_proof(final.proof, messages)
        if not is_proved or self._claimed_identity is None:
            known = "wrong password" if self._claimed_identity is not None else "no such credential"
            raise AuthenticationFailed(f"{known} for {first.name!r}")
        self.identity = self._claimed_identity
        return b"v=" + encoded(hmac.digest(self._keys.server_key, messages, self._algorithm)).encode()

    def _is_proof(self, proof: bytes, messages: bytes) -> bool:
        signature = hmac.digest(self._keys.stored_key, messages, self._algorithm)
        if len(proof) != len(signature):
            return False
        client_key = hashlib.new(self._algorithm, _xor(proof, signature)).digest()
        return hmac.compare_digest(client_key, self._keys.stored_key)


class ScramClientExchange:
    """The client's side of SCRAM: `first()`, then `final(answer)`, then `check(answer)`."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        nonce: str,
        extensions: str = "",
        salt_password: Callable[[str, str, bytes, int], bytes] = salted_password,
    ) -> None:
        self._algorithm = ALGORITHMS[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare_message = f"n={escaped(username)},r={nonce}{extensions}"
        self._salt_password = salt_password
        self._expected_signature = b""

    def __repr__(self) -> str:
        return f"<ScramClientExchange {self._algorithm}>"

    def first(self) -> bytes:
        return f"n,,{self._bare_message}".encode()

    def final(self, server_first: bytes) -> bytes:
        try:
            server_message = read_server_first(server_first)
        except BadScramMessage as problem:
            raise AuthenticationFailed(str(problem)) from None
        if not server_message.nonce.startswith(self._nonce) or server_message.nonce == self._nonce:
            raise AuthenticationFailed("the nonce of the server does not begin with ours")
        if not MIN_ITERATIONS <= server_message.iterations <= MAX_ITERATIONS:
            raise AuthenticationFailed(f"the server asks for {server_message.iterations} iterations")
        salted = self._salt_password(self._algorithm, self._password, server_message.salt, server_message.iterations)
        without_proof = f"c={encoded(b'n,,')},r={server_message.nonce}"
        messages = f"{self._bare_message},{server_first.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._algorithm)
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        proof = _xor(client_key, hmac.digest(stored_key, messages, self._algorithm))
        server_key = hmac.digest(salted, b"Server Key", self._algorithm)
        self._expected_signature = hmac.digest(server_key, messages, self._algorithm)
        return f"{without_proof},p={encoded(proof)}".encode()

    def check(self, server_final: bytes) -> None:
        """Raise `AuthenticationFailed` unless the server knows the user's keys."""
        try:
            signature = read_server_final(server_final)
        except BadScramMessage as problem:
            raise AuthenticationFailed(str(problem)) from None
        if not hmac.compare_digest(signature, self._expected_signature):
            raise AuthenticationFailed("the signature of the server is wrong")


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")
