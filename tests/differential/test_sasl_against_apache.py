"""The same valid and invalid logins on Apache Kafka and on Pessoa: the same responses and closed connections.

Each scenario is a list of a client's requests on a connection of its own. The responses are written down: the fields
of each response, or that the connection was closed. Intended differences are in `DIFFERENT` with both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import pack
from typing import NamedTuple

import pytest

from pessoa.security.sasl.scram import ScramClientExchange
from pessoa.testing import Broker
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from pessoa.wire.api.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse
from pessoa.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from tests.apache.broker import HOST, ApacheKafka, reserve_port
from tests.support.clients import until
from tests.support.crash_wire import Closed, Wire, framed, now_ms
from tests.support.sasl import (
    PASSWORD,
    USER,
    add_scram_users,
    ask,
    authenticate,
    server_settings,
    shake_hands,
)

pytestmark = pytest.mark.apache

# The listener whose sessions have a lifetime.
LASTING_MS = 60_000
PLAIN_TOKEN = f"\0{USER}\0{PASSWORD}".encode()
Step = Callable[[Wire], str]


class Ports(NamedTuple):
    """The ports of one broker: a listener with endless sessions, and one whose sessions last a minute."""

    endless: int
    lasting: int


def settings() -> dict[str, str]:
    return {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,ENDLESS:SASL_PLAINTEXT,LASTING:SASL_PLAINTEXT"
        ),
        **server_settings("endless"),
        **server_settings("lasting"),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.lasting.connections.max.reauth.ms": str(LASTING_MS),
        "delegation.token.secret.key": "a key of the cluster",
    }


@pytest.fixture(scope="module")
def apache() -> Iterator[Ports]:
    ports = {name: reserve_port() for name in ("PLAINTEXT", "CONTROLLER", "ENDLESS", "LASTING")}
    listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    kafka = ApacheKafka(properties={**settings(), "listeners": listeners, "advertised.listeners": listeners})
    kafka.nodes[0].port, kafka.nodes[0].controller_port = ports["PLAINTEXT"], ports["CONTROLLER"]
    with kafka:
        add_scram_users({"bootstrap.servers": kafka.bootstrap_servers})
        yield Ports(ports["ENDLESS"], ports["LASTING"])


@pytest.fixture(scope="module")
def ours() -> Iterator[Ports]:
    ports = {name: reserve_port() for name in ("PLAINTEXT", "CONTROLLER", "ENDLESS", "LASTING")}
    listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    with Broker({**settings(), "listeners": listeners}):
        add_scram_users({"bootstrap.servers": f"{HOST}:{ports['PLAINTEXT']}"})
        yield Ports(ports["ENDLESS"], ports["LASTING"])


# What a client does.


def versions(version: int = 3) -> Step:
    def step(wire: Wire) -> str:
        request = ApiVersionsRequest(client_software_name="tester", client_software_version="1")
        answer = ask(wire, request, version, ApiVersionsResponse)
        assert isinstance(answer, ApiVersionsResponse)
        return f"versions: {answer.error_code}"

    return step


def unknown_versions(wire: Wire) -> str:
    # A header with tagged fields, which every future version will have.
    wire.send(framed(pack(">hhihb", 18, 99, 7, -1, 0)))
    body = wire.frame()
    return f"versions: {int.from_bytes(body[4:6], 'big')}"


def handshake(mechanism: str, version: int = 1) -> Step:
    def step(wire: Wire) -> str:
        answer = shake_hands(wire, mechanism, version)
        return f"handshake: {answer.error_code} {sorted(answer.mechanisms)}"

    return step


def token(data: bytes, version: int = 2) -> Step:
    def step(wire: Wire) -> str:
        answer = authenticate(wire, data, version)
        rest = f"{answer.error_message} {answer.auth_bytes!r} {answer.session_lifetime_ms}"
        return f"authenticate: {answer.error_code} {rest}"

    return step


def raw_token(data: bytes) -> Step:
    def step(wire: Wire) -> str:
        wire.send(framed(data))
        return f"raw: {wire.frame()!r}"

    return step


def metadata(wire: Wire) -> str:
    answer = ask(wire, MetadataRequest(topics=[]), 1, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    return f"metadata: {len(answer.brokers)} brokers"


def send(data: bytes) -> Step:
    def step(wire: Wire) -> str:
        wire.send(data)
        return f"answer of {len(wire.frame())} bytes"

    return step


def scram(mechanism: str, user: str = USER, password: str = PASSWORD, spoil: Callable[[str], str] = str) -> Step:
    """Return a step that sends both messages of a SCRAM login; `spoil` changes the second."""

    def step(wire: Wire) -> str:
        exchange = ScramClientExchange(mechanism, user, password, "abc")
        first = authenticate(wire, exchange.first())
        if first.error_code:
            return f"first: {first.error_code} {first.error_message}"
        final = spoil(exchange.final(first.auth_bytes).decode())
        last = authenticate(wire, final.encode())
        if not last.error_code:
            exchange.check(last.auth_bytes)
        return f"final: {last.error_code} {last.error_message} {last.session_lifetime_ms}"

    return step


def other_nonce(final: str) -> str:
    return final.replace("r=abc", "r=abcd")


SCRAM = "SCRAM-SHA-256"
ENDLESS: dict[str, list[Step]] = {
    "plain": [versions(), handshake("PLAIN"), token(PLAIN_TOKEN), metadata],
    "plain, older": [versions(0), handshake("PLAIN"), token(PLAIN_TOKEN, 0), metadata],
    "plain without versions": [handshake("PLAIN"), token(PLAIN_TOKEN, 1), metadata],
    "plain with raw tokens": [handshake("PLAIN", 0), raw_token(PLAIN_TOKEN), metadata],
    "plain with a wrong raw token": [handshake("PLAIN", 0), raw_token(b"\0ana\0wrong")],
    "plain, same authorization id": [handshake("PLAIN"), token(USER.encode() + PLAIN_TOKEN), metadata],
    "plain, other authorization id": [handshake("PLAIN"), token(b"node" + PLAIN_TOKEN), metadata],
    "plain, other authorization id, wrong password": [handshake("PLAIN"), token(b"node\0ana\0wrong"), metadata],
    "plain, wrong password": [versions(), handshake("PLAIN"), token(b"\0ana\0wrong"), metadata],
    "plain, unknown user": [handshake("PLAIN"), token(b"\0nobody\0wrong"), metadata],
    "plain, no user": [handshake("PLAIN"), token(b"\0\0wrong"), metadata],
    "plain, no password": [handshake("PLAIN"), token(b"\0ana\0"), metadata],
    "plain, two parts": [handshake("PLAIN"), token(b"ana\0wrong"), metadata],
    "plain, four parts": [handshake("PLAIN"), token(PLAIN_TOKEN + b"\0"), metadata],
    "plain, nothing": [handshake("PLAIN"), token(b""), metadata],
    "plain, no UTF-8": [handshake("PLAIN"), token(b"\0\xff\0\xff"), metadata],
    "scram 256": [versions(), handshake(SCRAM), scram(SCRAM), metadata],
    "scram 512": [versions(), handshake("SCRAM-SHA-512"), scram("SCRAM-SHA-512"), metadata],
    "scram, wrong password": [handshake(SCRAM), scram(SCRAM, password="wrong"), metadata],
    "scram, unknown user": [handshake(SCRAM), scram(SCRAM, user="nobody"), metadata],
    "scram, other nonce": [handshake(SCRAM), scram(SCRAM, spoil=other_nonce), metadata],
    "scram, no proof": [handshake(SCRAM), scram(SCRAM, spoil=lambda final: final.rpartition(",")[0]), metadata],
    "scram, garbage": [handshake(SCRAM), token(b"garbage"), metadata],
    "scram, nothing": [handshake(SCRAM), token(b""), metadata],
    "scram, other authorization id": [handshake(SCRAM), token(f"n,a=node,n={USER},r=x".encode()), metadata],
    "scram, channel binding": [handshake(SCRAM), token(f"p=tls-unique,,n={USER},r=x".encode()), metadata],
    "unknown mechanism": [versions(), handshake("GSSAPI"), token(PLAIN_TOKEN)],
    "mechanism in lower case": [handshake("plain"), token(PLAIN_TOKEN)],
    "unknown version of versions": [unknown_versions, versions(), handshake("PLAIN"), token(PLAIN_TOKEN), metadata],
    "versions twice": [versions(), versions()],
    "versions after the handshake": [handshake("PLAIN"), versions()],
    "handshake twice": [handshake("PLAIN"), handshake("PLAIN")],
    "token first": [token(PLAIN_TOKEN)],
    "token after versions": [versions(), token(PLAIN_TOKEN)],
    "metadata first": [metadata],
    "metadata after versions": [versions(), metadata],
    "metadata after the handshake": [handshake("PLAIN"), metadata, metadata],
    "handshake after the login": [handshake("PLAIN"), token(PLAIN_TOKEN), handshake("PLAIN"), metadata],
    "token after the login": [handshake("PLAIN"), token(PLAIN_TOKEN), token(PLAIN_TOKEN), metadata],
    "versions after the login": [handshake("PLAIN"), token(PLAIN_TOKEN), versions(), versions(), metadata],
    "no request": [send(framed(b"hello"))],
    "HTTP": [send(b"GET / HTTP/1.1\r\n\r\n")],
    "an empty frame": [send(framed(b""))],
    "too large": [send(pack(">i", 524_289))],
    "an unknown version of the handshake": [send(framed(pack(">hhih", 17, 9, 7, -1)))],
    "an unknown version of the token": [handshake("PLAIN"), send(framed(pack(">hhih", 36, 9, 7, -1)))],
}  # fmt: skip

LASTING: dict[str, list[Step]] = {
    "lasting": [handshake("PLAIN"), token(PLAIN_TOKEN), metadata],
    "lasting, older": [handshake("PLAIN"), token(PLAIN_TOKEN, 0), metadata],
    "lasting with scram": [handshake(SCRAM), scram(SCRAM), metadata],
    "again": [handshake("PLAIN"), token(PLAIN_TOKEN), metadata, handshake("PLAIN"), token(PLAIN_TOKEN), metadata],
    "again with scram": [handshake(SCRAM), scram(SCRAM), handshake(SCRAM), scram(SCRAM), metadata],
    "again too soon": [
        *(handshake("PLAIN"), token(PLAIN_TOKEN), handshake("PLAIN"), token(PLAIN_TOKEN)),
        *(handshake("PLAIN"), metadata),
    ],
    "again as another": [handshake("PLAIN"), token(PLAIN_TOKEN), handshake("PLAIN"), token(b"\0node\0node"), metadata],
    "again with a wrong password": [handshake("PLAIN"), token(PLAIN_TOKEN), handshake("PLAIN"), token(b"\0ana\0x")],
    "again with another mechanism": [handshake("PLAIN"), token(PLAIN_TOKEN), handshake(SCRAM), scram(SCRAM), metadata],
    "metadata between": [handshake("PLAIN"), token(PLAIN_TOKEN), handshake("PLAIN"), metadata],
}  # fmt: skip

SCRAM_REFUSED = f"58 Authentication failed during authentication due to invalid credentials with SASL mechanism {SCRAM}"
OTHER_MECHANISM = (
    f"SASL mechanism '{SCRAM}' requested by client is not supported for re-authentication of mechanism 'PLAIN'"
)


class Tokens:
    """Steps with delegation token requests on one connection; the last created token is remembered."""

    def __init__(self) -> None:
        self.mac = b""

    def create(self, owner: str | None = None, renewer_type: str = "User", lifetime_ms: int = -1) -> Step:
        def step(wire: Wire) -> str:
            request = CreateDelegationTokenRequest(
                renewers=[CreatableRenewers(principal_type=renewer_type, principal_name="bo")],
                max_lifetime_ms=lifetime_ms,
                owner_principal_type=owner and "User",
                owner_principal_name=owner,
            )
            made = ask(wire, request, 3, CreateDelegationTokenResponse)
            assert isinstance(made, CreateDelegationTokenResponse)
            self.mac = made.hmac or self.mac
            names = f"{made.principal_type}:{made.principal_name} for {made.token_requester_principal_name}"
            lasts = (
                made.expiry_timestamp_ms - made.issue_timestamp_ms,
                made.max_timestamp_ms - made.issue_timestamp_ms,
            )
            shape = f"{len(made.token_id)} {len(made.hmac)}"
            return f"create: {made.error_code} {names} {lasts} {shape}"

        return step

    def renew(self, period_ms: int, mac: bytes | None = None) -> Step:
        def ask_once(wire: Wire) -> RenewDelegationTokenResponse:
            request = RenewDelegationTokenRequest(hmac=self.mac if mac is None else mac, renew_period_ms=period_ms)
            answer = ask(wire, request, 2, RenewDelegationTokenResponse)
            assert isinstance(answer, RenewDelegationTokenResponse)
            return answer

        def step(wire: Wire) -> str:
            # Apache's controller applies a new token shortly after it has answered.
            answer = until(lambda: ask_once(wire), lambda one: mac is not None or one.error_code != 62, "the token")
            return f"renew: {answer.error_code} {answer.expiry_timestamp_ms > 0}"

        return step

    def expire(self, period_ms: int, mac: bytes | None = None) -> Step:
        def step(wire: Wire) -> str:
            request = ExpireDelegationTokenRequest(
                hmac=self.mac if mac is None else mac, expiry_time_period_ms=period_ms
            )
            answer = ask(wire, request, 2, ExpireDelegationTokenResponse)
            assert isinstance(answer, ExpireDelegationTokenResponse)
            is_now = abs(answer.expiry_timestamp_ms - now_ms()) < 30_000
            return f"expire: {answer.error_code} {answer.expiry_timestamp_ms > 0} {is_now}"

        return step


def describe(wire: Wire) -> str:
    none_of_these = [DescribeDelegationTokenOwner(principal_type="User", principal_name="no-such-owner")]
    answer = ask(wire, DescribeDelegationTokenRequest(owners=none_of_these), 3, DescribeDelegationTokenResponse)
    assert isinstance(answer, DescribeDelegationTokenResponse)
    return f"describe: {answer.error_code} {len(answer.tokens)}"


def token_scenarios() -> dict[str, list[Step]]:
    tokens = Tokens()
    login = [handshake("PLAIN"), token(PLAIN_TOKEN)]
    as_node = [handshake("PLAIN"), token(b"\0node\0node")]
    return {
        "a token": [*login, tokens.create(), describe, metadata],
        "a short token": [*login, tokens.create(lifetime_ms=5000), metadata],
        "a token for another": [*login, tokens.create(owner="zoe"), metadata],
        "a renewer that is no user": [*login, tokens.create(renewer_type="Group"), metadata],
        "renewed": [*login, tokens.create(), tokens.renew(-1), tokens.renew(1000), metadata],
        "unknown": [*login, tokens.renew(-1, b"x"), tokens.expire(-1, b"x"), metadata],
        "of another": [*as_node, tokens.renew(-1), tokens.expire(-1), metadata],
        "expired": [*login, tokens.create(), tokens.renew(-1), tokens.expire(60_000), tokens.expire(-1), metadata],
        "without a login": [tokens.create()],
    }


# Scenario → the first line in which they differ: Apache's and ours. docs/DEVIATIONS.md has the reasons.
DIFFERENT = {
    "scram, unknown user": (f"first: {SCRAM_REFUSED}", f"final: {SCRAM_REFUSED} 0"),
    # Apache reads the request, and answers it with ILLEGAL_SASL_STATE before it closes.
    "versions after the handshake": ("versions: 34", "closed"),
    "metadata after the handshake": ("metadata: 0 brokers", "closed"),
    "metadata between": ("metadata: 0 brokers", "closed"),
    # Apache writes the message to its log only.
    "again with another mechanism": (
        "closed",
        f"first: 58 {OTHER_MECHANISM}",
    ),
}


def transcript(port: int, steps: list[Step]) -> list[str]:
    lines = []
    with Wire(port) as wire:
        for step in steps:
            try:
                lines.append(step(wire))
            except Closed:
                lines.append("closed")
                return lines
        lines.append("closed" if "metadata" not in lines[-1] and wire.is_closed() else "open")
    return lines


def first_difference(theirs: list[str], ours: list[str]) -> tuple[str, str] | None:
    return next(((one, other) for one, other in zip(theirs, ours, strict=False) if one != other), None)


def compare(scenarios: dict[str, list[Step]], theirs: int, ours: int) -> dict[str, tuple[str, str]]:
    found = {}
    for name, steps in scenarios.items():
        difference = first_difference(transcript(theirs, steps), transcript(ours, steps))
        if difference is not None:
            found[name] = difference
    return found


def test_logins_are_answered_as_by_apache(apache: Ports, ours: Ports) -> None:
    expected = {name: lines for name, lines in DIFFERENT.items() if name in ENDLESS}
    assert compare(ENDLESS, apache.endless, ours.endless) == expected


def test_logins_with_a_session_lifetime_are_answered_as_by_apache(apache: Ports, ours: Ports) -> None:
    expected = {name: lines for name, lines in DIFFERENT.items() if name in LASTING}
    assert compare(LASTING, apache.lasting, ours.lasting) == expected


def test_delegation_token_requests_are_answered_as_by_apache(apache: Ports, ours: Ports) -> None:
    theirs = {name: transcript(apache.endless, steps) for name, steps in token_scenarios().items()}
    found = {name: transcript(ours.endless, steps) for name, steps in token_scenarios().items()}
    assert found == theirs


def test_the_transcript_of_a_plain_login_ends_with_metadata_and_an_open_connection(ours: Ports) -> None:
    lines = transcript(ours.endless, ENDLESS["plain"])
    assert lines[-2:] == ["metadata: 1 brokers", "open"]
