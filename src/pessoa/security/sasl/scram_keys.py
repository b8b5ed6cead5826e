"""The keys of SCRAM (RFC 5802) and how they follow from a password.

    SaltedPassword = PBKDF2(password, salt, iterations)
    ClientKey = HMAC(SaltedPassword, "Client Key")    StoredKey = H(ClientKey)
    ServerKey = HMAC(SaltedPassword, "Server Key")

A server stores salt, iterations, StoredKey and ServerKey. With these it can check a login and prove itself, and from
them alone no login can be made.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple, Protocol

# The mechanisms, by the numbers that requests and records have for them.
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NUMBERS = {name: number for number, name in MECHANISMS.items()}
ALGORITHMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# RFC 7677 asks for 4096 at least; Kafka's upper bound keeps a login from burning the CPU of a node.
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384


class StoredCredential(Protocol):
    """The credential of a user for one mechanism, as a server stores it."""

    @property
    def salt(self) -> bytes: ...

    @property
    def stored_key(self) -> bytes: ...

    @property
    def server_key(self) -> bytes: ...

    @property
    def iterations(self) -> int: ...


class ScramKeys(NamedTuple):
    """A `StoredCredential` that was derived from a password, not read from metadata."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(algorithm: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)


def derived_keys(algorithm: str, salted: bytes) -> tuple[bytes, bytes]:
    """Return StoredKey and ServerKey (RFC 5802) of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    return hashlib.new(algorithm, client_key).digest(), hmac.digest(salted, b"Server Key", algorithm)


def keys_of_password(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramKeys:
    algorithm = ALGORITHMS[mechanism]
    stored_key, server_key = derived_keys(algorithm, salted_password(algorithm, password, salt, iterations))
    return ScramKeys(salt, stored_key, server_key, iterations)


def text_salt(octets: bytes) -> bytes:
    """Return a salt as Kafka's tools make them: a random number of 130 bits in base 36, with digits and letters."""
    number = int.from_bytes(octets, "big") & ((1 << 130) - 1)
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    text = ""
    while number:
        number, digit = divmod(number, len(digits))
        text = digits[digit] + text
    return text.encode()
