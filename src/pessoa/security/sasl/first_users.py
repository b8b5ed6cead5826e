"""The first SCRAM users of a cluster, as `kafka-storage format --add-scram` names them.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name="alice",iterations=8192,salt="base64",saltedpassword="base64"]

They become records that the metadata log begins with, so that they can log in before any request was served.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable

from pessoa.security.sasl.scram_keys import (
    ALGORITHMS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    NUMBERS,
    derived_keys,
    salted_password,
    text_salt,
)
from pessoa.wire.stored.metadata_records import UserScramCredentialRecord

_SALT_BYTES = 17
_ARGUMENT = re.compile(r"(?P<mechanism>[^=\s]+)\s*=\s*\[(?P<parts>.*)\]\s*", re.DOTALL)
_PART = re.compile(r"\s*(?P<name>\w+)\s*=\s*(?:\"(?P<quoted>[^\"]*)\"|(?P<plain>[^,\"]*))\s*(?:,|$)")
_NAMES = frozenset(("name", "password", "saltedpassword", "salt", "iterations"))


class BadFirstUser(Exception):
    """An `add-scram` argument is wrong; the message says why, and contains no password."""


def parse_first_users(arguments: Iterable[str], octets: Callable[[int], bytes]) -> list[UserScramCredentialRecord]:
    """Return a record for each argument. `octets` gives random bytes for salts. Raises `BadFirstUser`."""
    found: dict[tuple[str, int], UserScramCredentialRecord] = {}
    for argument in arguments:
        record = _parse(argument, octets)
        if (record.name, record.mechanism) in found:
            raise BadFirstUser(f"The user {record.name!r} is named twice for one SCRAM mechanism.")
        found[record.name, record.mechanism] = record
    return list(found.values())


def _parse(argument: str, octets: Callable[[int], bytes]) -> UserScramCredentialRecord:
    match = _ARGUMENT.fullmatch(argument)
    if match is None:
        raise BadFirstUser("A first user is written SCRAM-SHA-256=[name=alice,password=alice-secret].")
    mechanism = match["mechanism"]
    if mechanism not in NUMBERS:
        raise BadFirstUser(f"The SCRAM mechanism {mechanism} is not supported; there are {', '.join(NUMBERS)}.")
    parts = _parse_attributes(match["parts"])
    iterations = _iterations(parts.get("iterations", str(MIN_ITERATIONS)))
    salt, salted = _salt_password(mechanism, parts, iterations, octets)
    stored_key, server_key = derived_keys(ALGORITHMS[mechanism], salted)
    return UserScramCredentialRecord(
        name=parts["name"],
        mechanism=NUMBERS[mechanism],
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=iterations,
    )


def _parse_attributes(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    place = 0
    while place < len(text):
        match = _PART.match(text, place)
        if match is None or match["name"] not in _NAMES or match["name"] in parts:
            raise BadFirstUser(f"Each of {', '.join(sorted(_NAMES))} may stand in the brackets, once.")
        parts[match["name"]] = match["quoted"] if match["quoted"] is not None else match["plain"].strip()
        place = match.end()
    if not parts.get("name"):
        raise BadFirstUser("You must supply 'name' to add-scram.")
    return parts


def _iterations(text: str) -> int:
    iterations = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise BadFirstUser(f"The 'iterations' of add-scram must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}.")
    return iterations


def _salt_password(
    mechanism: str, parts: dict[str, str], iterations: int, octets: Callable[[int], bytes]
) -> tuple[bytes, bytes]:
    """Return the salt, and the password salted with it."""
    given_salt = _base64(parts, "salt")
    if ("password" in parts) is ("saltedpassword" in parts):
        raise BadFirstUser("You must supply one of 'password' or 'saltedpassword' to add-scram.")
    if "saltedpassword" in parts:
        if given_salt is None:
            raise BadFirstUser("You must supply 'salt' with 'saltedpassword' to add-scram.")
        return given_salt, _base64(parts, "saltedpassword") or b""
    if not parts["password"]:
        raise BadFirstUser("The 'password' of add-scram must not be empty.")
    salt = given_salt if given_salt is not None else text_salt(octets(_SALT_BYTES))
    return salt, salted_password(ALGORITHMS[mechanism], parts["password"], salt, iterations)


def _base64(parts: dict[str, str], name: str) -> bytes | None:
    if name not in parts:
        return None
    try:
        found = base64.b64decode(parts[name], validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found:
        raise BadFirstUser(f"The '{name}' of add-scram must be base64.")
    return found
