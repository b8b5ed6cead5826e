"""Delegation tokens: created and used with Apache's tools and with raw requests."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pessoa.security.sasl.scram import ScramClientExchange
from pessoa.testing import Broker
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
from pessoa.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from pessoa.wire.errors import ErrorCode
from tests.apache.broker import run_tool
from tests.support.clients import until
from tests.support.crash_wire import Wire
from tests.support.sasl import PASSWORD, USER, ask, authenticate, jaas, server_settings, shake_hands

SETTINGS = {
    **server_settings(),
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "delegation.token.secret.key": "a key of the cluster",
}
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class Ports:
    def __init__(self, broker: Broker) -> None:
        names = broker.inspect(lambda one: {held.endpoint.name: held.listener.port for held in one.listeners})
        self.sasl, self.plaintext = names["SASL_PLAINTEXT"], names["PLAINTEXT"]
        self.broker = broker


@pytest.fixture(scope="module")
def ports() -> Iterator[Ports]:
    with Broker(SETTINGS) as broker:
        yield Ports(broker)


def logged_in(ports: Ports, user: str = USER, password: str = PASSWORD) -> Wire:
    wire = Wire(ports.sasl)
    shake_hands(wire, "PLAIN")
    assert authenticate(wire, f"\0{user}\0{password}".encode()).error_code == 0
    return wire


def create(wire: Wire, owner: str = "") -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="User", principal_name="bo")],
        max_lifetime_ms=-1,
        owner_principal_type="User" if owner else None,
        owner_principal_name=owner or None,
    )
    response = ask(wire, request, 3, CreateDelegationTokenResponse)
    assert isinstance(response, CreateDelegationTokenResponse)
    return response


def described(wire: Wire, owners: list[str] | None) -> list[str]:
    named = None
    if owners is not None:
        named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=one) for one in owners]
    response = ask(wire, DescribeDelegationTokenRequest(owners=named), 3, DescribeDelegationTokenResponse)
    assert isinstance(response, DescribeDelegationTokenResponse)
    assert response.error_code == 0
    return [one.token_id for one in response.tokens]


def token_login(ports: Ports, mechanism: str, token_id: str, password: str) -> tuple[Wire, int, int]:
    """Return the connection, the error code of the login and the lifetime of its session."""
    wire = Wire(ports.sasl)
    shake_hands(wire, mechanism)
    exchange = ScramClientExchange(mechanism, token_id, password, "abc", ",tokenauth=true")
    last = authenticate(wire, exchange.final(authenticate(wire, exchange.first()).auth_bytes))
    if not last.error_code:
        exchange.check(last.auth_bytes)
    return wire, last.error_code, last.session_lifetime_ms


def password_of(made: CreateDelegationTokenResponse) -> str:
    return base64.b64encode(made.hmac).decode()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_with_a_delegation_token_may_not_create_or_describe_tokens(ports: Ports, mechanism: str) -> None:
    with logged_in(ports) as owner:
        made = create(owner)
        assert made.error_code == 0
    ports.broker.inspect(lambda broker: broker.image.delegation_tokens.by_id[made.token_id])
    wire, code, lifetime_ms = token_login(ports, mechanism, made.token_id, password_of(made))
    with wire:
        assert code == 0
        assert 86_000_000 < lifetime_ms <= 86_400_000
        assert create(wire).error_code == NOT_ALLOWED
        request = DescribeDelegationTokenRequest(owners=None)
        response = ask(wire, request, 3, DescribeDelegationTokenResponse)
        assert isinstance(response, DescribeDelegationTokenResponse)
        assert response.error_code == NOT_ALLOWED
    principals = ports.broker.inspect(
        lambda broker: [one.connection.principal for held in broker.listeners for one in held.listener.connections]
    )
    assert set(principals) <= {f"User:{USER}", "User:node", "User:ANONYMOUS"}


def test_a_delegation_token_with_a_wrong_secret_and_an_expired_token_are_refused(ports: Ports) -> None:
    with logged_in(ports) as owner:
        made = create(owner)
        wire, code, _ = token_login(ports, "SCRAM-SHA-256", made.token_id, "wrong")
        wire.close()
        assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
        removed = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        answer = ask(owner, removed, 2, ExpireDelegationTokenResponse)
        assert isinstance(answer, ExpireDelegationTokenResponse)
        assert answer.error_code == 0
        until(lambda: described(owner, None), lambda known: made.token_id not in known, "the token removed")
    wire, code, _ = token_login(ports, "SCRAM-SHA-256", made.token_id, password_of(made))
    wire.close()
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_delegation_token_requests_without_a_login_are_refused(ports: Ports) -> None:
    with Wire(ports.plaintext) as wire:
        refused = create(wire)
        assert (refused.error_code, refused.principal_name, refused.hmac) == (NOT_ALLOWED, "ANONYMOUS", b"")
        for request, response in (
            (RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), RenewDelegationTokenResponse),
            (ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), ExpireDelegationTokenResponse),
        ):
            answer = ask(wire, request, 2, response)
            assert answer.error_code == NOT_ALLOWED  # type: ignore[attr-defined]


def test_delegation_tokens_are_described_for_the_requested_owners(ports: Ports) -> None:
    with logged_in(ports) as ana, logged_in(ports, "node", "node") as node:
        own, of_zoe = create(ana).token_id, create(ana, "zoe").token_id
        until(lambda: described(node, None), lambda known: {own, of_zoe} <= {*known}, "both tokens")
        assert own in described(ana, [USER])
        assert of_zoe not in described(ana, [USER])
        assert described(ana, ["zoe"]) == [of_zoe]
        assert described(ana, []) == []


def properties(folder: Path, name: str, mechanism: str, options: dict[str, str]) -> str:
    path = folder / name
    text = jaas(mechanism, options)
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={text}\n")
    return str(path)


def run_own_tool(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name(name)
    return subprocess.run([tool, *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("run", [pytest.param(run_tool, marks=pytest.mark.apache, id="Apache's"), run_own_tool])
def test_tools_create_a_delegation_token_log_in_with_it_renew_it_and_expire_it(
    ports: Ports, tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    server = ("--bootstrap-server", f"127.0.0.1:{ports.sasl}")
    own = ("--command-config", properties(tmp_path, "own", "PLAIN", {"username": USER, "password": PASSWORD}))
    done = run("kafka-delegation-tokens", *server, *own, "--create", "--max-life-time-period", "-1")
    assert done.returncode == 0, done.stdout + done.stderr
    token_id, mac = re.findall(r"^(\S+)\s+(\S+==)\s+User:ana", done.stdout, re.MULTILINE)[0]
    options = {"username": token_id, "password": mac, "tokenauth": "true"}
    by_token = ("--command-config", properties(tmp_path, "by-token", "SCRAM-SHA-512", options))
    done = run("kafka-topics", *server, *by_token, "--create", "--topic", f"made-with-{token_id}")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run("kafka-delegation-tokens", *server, *by_token, "--create", "--max-life-time-period", "-1")
    assert "Delegation Token requests are not allowed" in done.stdout + done.stderr
    done = run("kafka-delegation-tokens", *server, *own, "--renew", "--renew-time-period", "-1", "--hmac", mac)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run("kafka-delegation-tokens", *server, *own, "--expire", "--expiry-time-period", "-1", "--hmac", mac)
    assert done.returncode == 0, done.stdout + done.stderr
