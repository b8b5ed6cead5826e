"""The token with which a client logs in by OAUTHBEARER, from the properties that Kafka's Java clients have.

    sasl.oauthbearer.token.endpoint.url        file: the token itself, read for each login; http(s): who gives them out
    sasl.oauthbearer.client.credentials.client.id, .client.secret, sasl.oauthbearer.scope
                                               what is told to get one (the client credentials grant of RFC 6749), or
                                               clientId, clientSecret and scope in sasl.jaas.config, as before Kafka 4.1
    ssl.truststore.* in sasl.jaas.config       whom an https: URL is trusted by; without, the system's authorities

A service that acts as its caller has the caller's token already, and gives it to our own client as the setting TOKEN.

The URL is in the user's own file, which is what allows it; Java wants it in a property of the system as well.
librdkafka asks URLs itself (`sasl.oauthbearer.method=oidc`), and gets the token of a file through a callback. Classes
of Java that retrieve tokens in other ways are refused. No error and no `repr` holds a token or a secret.
"""

from __future__ import annotations

import base64
import binascii
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import msgspec

from pessoa.client.client_errors import AuthenticationFailed, BadSettings
from pessoa.client.login_options import login_options
from pessoa.security.jwt.json_web_tokens import MAX_TOKEN_CHARACTERS
from pessoa.security.jwt.key_reader import SystemReader, Unreadable, request
from pessoa.security.jwt.token_verifier import BadKeyLocation, KeyLocation, parse_location

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

OAUTHBEARER = "OAUTHBEARER"
_PREFIX = "sasl.oauthbearer."
_URL = f"{_PREFIX}token.endpoint.url"
# The token itself. Only services set it, in memory: in a file, it would be there long after it has expired.
TOKEN = "pessoa.sasl.oauthbearer.token"  # noqa: S105 - the name of a setting
_RETRIEVER = f"{_PREFIX}jwt.retriever.class"
_RETRIEVERS = ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever")
# The most bytes of a response: the token and a few other fields.
_MAX_ANSWER_BYTES = 2 * MAX_TOKEN_CHARACTERS
# For a token that does not say when it ends: librdkafka wants to know when to ask again.
_UNKNOWN_LIFETIME_S = 300


class _Answer(msgspec.Struct):
    access_token: str


class _Claims(msgspec.Struct):
    exp: float


class TokenSettings(NamedTuple):
    """Where a client gets its OAUTHBEARER token; `repr` shows no secret."""

    location: KeyLocation
    client_id: str
    client_secret: str
    scope: str
    # Of the login module.
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<TokenSettings {self.location!r}>"


def token_settings(settings: Mapping[str, str]) -> TokenSettings:
    """Return the token settings of a client. Raises `BadSettings`."""
    options = login_options(settings)
    retriever = settings.get(_RETRIEVER, "").rpartition(".")[2]
    if retriever and retriever not in _RETRIEVERS:
        raise BadSettings(f"{_RETRIEVER} must be one of {', '.join(_RETRIEVERS)}")
    if not settings.get(_URL):
        raise BadSettings(f"sasl.mechanism={OAUTHBEARER} needs {_URL}: where tokens are, file:, https: or http:")
    try:
        location = parse_location(settings[_URL])
    except BadKeyLocation as problem:
        raise BadSettings(f"Invalid value for configuration {_URL}: {problem}") from None

    def find(name: str, option: str) -> str:
        # The last is librdkafka's own name.
        names = (f"{_PREFIX}{name}", f"{_PREFIX}{name.removeprefix('client.credentials.')}")
        return next((settings[one] for one in names if settings.get(one)), options.get(option, ""))

    found = TokenSettings(
        location,
        find("client.credentials.client.id", "clientId"),
        find("client.credentials.client.secret", "clientSecret"),
        find("scope", "scope"),
        options,
    )
    if location.path is None and not (found.client_id and found.client_secret):
        raise BadSettings(f"{_PREFIX}client.credentials.client.id and .client.secret are needed to ask for a token")
    return found


def get_token(settings: Mapping[str, str]) -> str:
    """Return a token for one login; waits for the token endpoint. Raises `BadSettings` or `AuthenticationFailed`."""
    if TOKEN in settings:
        return settings[TOKEN]
    found = token_settings(settings)
    try:
        if found.location.path is not None:
            return _read(found.location.path)
        return _ask(found)
    except Unreadable as failure:
        raise AuthenticationFailed(f"no token from {found.location.text.partition('?')[0]}: {failure}") from None


@dataclass(frozen=True, slots=True)
class FileCallback:
    """librdkafka's `oauth_cb`: returns the token of a file and its expiry."""

    path: str

    def __call__(self, _: str) -> tuple[str, float]:
        token = _read(self.path)
        return token, _expiry_s(token)


def for_librdkafka(settings: Mapping[str, str]) -> dict[str, str | FileCallback]:
    """Return the settings of OAUTHBEARER under librdkafka's names. Raises `BadSettings`."""
    found = token_settings(settings)
    if found.location.path is not None:
        return {"oauth_cb": FileCallback(found.location.path)}
    named = {
        "sasl.oauthbearer.method": "oidc",
        _URL: found.location.text,
        f"{_PREFIX}client.id": found.client_id,
        f"{_PREFIX}client.secret": found.client_secret,
        f"{_PREFIX}scope": found.scope,
        "https.ca.location": found.options.get("ssl.truststore.location", ""),
    }
    return {name: text for name, text in named.items() if text}


def _read(path: str) -> str:
    return SystemReader().read_file(path, MAX_TOKEN_CHARACTERS).decode("ascii", "replace").strip()


def _ask(found: TokenSettings) -> str:
    form = {"grant_type": "client_credentials", **({"scope": found.scope} if found.scope else {})}
    secret = base64.b64encode(f"{found.client_id}:{found.client_secret}".encode()).decode()
    headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/x-www-form-urlencoded"}
    answer = request(
        found.location.text, _MAX_ANSWER_BYTES, _tls(found.options), "POST", urlencode(form).encode(), headers
    )
    try:
        return msgspec.json.decode(answer, type=_Answer).access_token
    except (msgspec.DecodeError, RecursionError):
        raise Unreadable("the answer has no access_token") from None


def _tls(options: Mapping[str, str]) -> Callable[[], ssl.SSLContext]:
    def context() -> ssl.SSLContext:
        from pessoa.client.tls_stores import tls_context

        return tls_context(options)

    return context


def _expiry_s(token: str) -> float:
    """Return the expiry that the token claims, unverified: verification is up to the broker."""
    try:
        part = token.split(".")[1]
        return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=_Claims).exp
    except (IndexError, binascii.Error, msgspec.DecodeError, RecursionError):
        return time.time() + _UNKNOWN_LIFETIME_S
