"""The Kafka clients that the proxy has for callers: one per caller, their limit, and when they are closed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pessoa.base.clock import ManualClock
from pessoa.base.config_values import ConfigProblem
from pessoa.rest_proxy.caller_clients import (
    EXPIRY_CHECK_MS,
    MAX_TOKENS_OF_ONE,
    CallerClients,
    password_identity,
    token_identity,
)
from pessoa.rest_proxy.caller_tokens import CallerToken
from pessoa.rest_proxy.producing import ProducerMetrics
from pessoa.rest_proxy.proxy_config import Config, from_properties
from pessoa.web.auth import BearerCredentials, HttpCaller, PasswordCredentials
from pessoa.web.problems import HttpProblem
from tests.support.tokens import Issuer

SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "client.security.protocol": "SASL_PLAINTEXT",
    "client.sasl.mechanism": "SCRAM-SHA-512",
    "client.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
    ' username="kafka-rest" password="of the proxy";',
    "pessoa.authentication.kafka": "true",
    "confluent.rest.auth.propagate.method": "JETTY_AUTH",
    "pessoa.caller.clients.idle.ms": "10000",
}
SECRET = "planted-7Q"


def caller(name: str, password: str = SECRET) -> HttpCaller:
    return HttpCaller(name, PasswordCredentials(name, password))


def run(test: Callable[[CallerClients, ManualClock], Awaitable[None]], room: int = 3) -> None:
    async def main() -> None:
        clock = ManualClock()
        config = from_properties({**SETTINGS, "pessoa.caller.clients.max": str(room)})
        found = CallerClients(config, ProducerMetrics(CollectorRegistry()), clock)
        await test(found, clock)
        await found.close()

    asyncio.run(main())


def test_clients_log_in_as_the_caller_and_never_as_the_proxy() -> None:
    config = from_properties(SETTINGS)
    ana = caller("ana", 'a "good" pass\\word')
    assert isinstance(ana.credentials, PasswordCredentials)
    found = password_identity(config, ana, ana.credentials)
    assert found.owner == "User:ana"
    for settings in (found.producer, found.consumer, found.admin):
        assert (settings["sasl.username"], settings["sasl.password"]) == ("ana", 'a "good" pass\\word')
        assert settings["sasl.mechanisms"] == "SCRAM-SHA-512"
        assert "of the proxy" not in str(settings)
    assert "of the proxy" not in str(found.java_admin)
    assert "good" not in repr(found)


def test_clients_are_shared_by_the_requests_of_one_caller_and_by_no_other() -> None:
    async def test(callers: CallerClients, _: ManualClock) -> None:
        ana = callers.take(caller("ana"))
        assert callers.take(caller("ana")) is ana
        assert callers.take(caller("rui")) is not ana
        # The same name with another password is not yet known to be the same user.
        assert callers.take(caller("ana", "another")) is not ana
        assert SECRET not in repr(callers) + repr(ana) + repr(vars(callers)["_entries"])

    run(test)


def test_idle_clients_are_closed_in_favour_of_another_caller_and_used_ones_are_not() -> None:
    async def test(callers: CallerClients, _: ManualClock) -> None:
        first = callers.take(caller("a"))
        callers.take(caller("b"))
        callers.take(caller("c"))
        with pytest.raises(HttpProblem) as full:
            callers.take(caller("d"))
        assert full.value.status == 429
        callers.release(caller("a"))
        callers.take(caller("d"))
        assert len(callers) == 3
        callers.release(caller("d"))
        assert callers.take(caller("a")) is not first

    run(test)


def test_clients_that_were_idle_for_too_long_are_closed() -> None:
    async def test(callers: CallerClients, clock: ManualClock) -> None:
        expiry = asyncio.create_task(callers.expire_forever())
        for name in ("idle", "busy"):
            callers.take(caller(name))
        callers.release(caller("idle"))
        seen = []
        for _ in range(10_000 // EXPIRY_CHECK_MS):
            await asyncio.sleep(0)
            clock.advance_ms(EXPIRY_CHECK_MS)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(len(callers))
        assert seen == [2] * 9 + [1]
        expiry.cancel()

    run(test)


def test_clients_of_a_caller_with_a_token_log_in_with_it_and_not_with_the_proxys_credentials() -> None:
    given = BearerCredentials(SECRET, 5000)
    found = token_identity(from_properties(SETTINGS), HttpCaller("ana", given), given, CallerToken(given))
    for settings in (found.producer, found.consumer, found.admin):
        assert settings["sasl.mechanisms"] == "OAUTHBEARER"
        ask = settings["oauth_cb"]
        assert callable(ask)
        assert ask("") == (SECRET, 5.0)
        assert not {"sasl.username", "sasl.password"} & settings.keys()
    assert found.java_admin["sasl.mechanism"] == "OAUTHBEARER"
    assert "sasl.jaas.config" not in found.java_admin
    assert SECRET not in repr(found) + repr(found.token)


def test_a_token_is_replaced_only_by_one_that_expires_later() -> None:
    token = CallerToken(BearerCredentials("first", 5000))
    token.renew(BearerCredentials("earlier", 4999))
    assert token("") == ("first", 5.0)
    token.renew(BearerCredentials("later", 6000))
    assert token("") == ("later", 6.0)


def bearer(name: str, token: str, expires_at_ms: int = 100_000) -> HttpCaller:
    return HttpCaller(name, BearerCredentials(token, expires_at_ms))


def test_a_refreshed_token_gets_new_clients_and_renews_the_login_of_the_consumers() -> None:
    async def test(callers: CallerClients, _: ManualClock) -> None:
        first = callers.take(bearer("ana", "1"))
        assert callers.take(bearer("ana", "1")) is first
        second = callers.take(bearer("ana", "2", 200_000))
        assert second is not first
        assert second.identity.token is first.identity.token
        token = first.identity.token
        assert token is not None
        for clients, expected in ((first, ("1", 100.0)), (second, ("2", 200.0)), (first, ("2", 200.0))):
            # As when a broker has accepted it.
            assert clients.identity.renewal is not None
            clients.identity.renewal()
            assert token("") == expected
        assert callers.take(bearer("rui", "2")).identity.token is not first.identity.token

    run(test)


def test_one_principal_with_many_tokens_leaves_room_for_others() -> None:
    async def test(callers: CallerClients, _: ManualClock) -> None:
        for number in range(MAX_TOKENS_OF_ONE):
            callers.take(bearer("ana", str(number)))
        with pytest.raises(HttpProblem) as full:
            callers.take(bearer("ana", "more"))
        assert full.value.status == 429
        callers.release(bearer("ana", "2"))
        callers.take(bearer("ana", "more"))
        assert len(callers) == MAX_TOKENS_OF_ONE
        callers.take(bearer("rui", "1"))

    run(test, room=50)


def test_clients_are_closed_when_the_token_of_their_caller_expires() -> None:
    async def test(callers: CallerClients, clock: ManualClock) -> None:
        expiry = asyncio.create_task(callers.expire_forever())
        now_ms = clock.now_ms()
        for name, life_ms in (("short", 3000), ("busy", 3000), ("long", 60_000)):
            callers.take(bearer(name, SECRET, now_ms + life_ms))
        callers.release(bearer("short", SECRET))
        callers.release(bearer("long", SECRET))
        seen = []
        for _ in range(4):
            await asyncio.sleep(0)
            clock.advance_ms(EXPIRY_CHECK_MS)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(len(callers))
        assert seen == [3, 3, 2, 2]
        # Within the seconds that clocks may be apart, the verifier still lets such a caller in.
        with pytest.raises(HttpProblem) as refused:
            callers.take(bearer("short", SECRET, now_ms + 3000))
        assert refused.value.status == 401
        expiry.cancel()
        gc.collect()
        assert sorted(callers._tokens) == ["User:busy", "User:long"]

    run(test)


def test_client_sasl_mechanism_may_be_oauthbearer_only_if_no_caller_logs_in_with_a_password(tmp_path: Path) -> None:
    keys = Issuer().write(tmp_path / "jwks.json")
    settings = {key: value for key, value in SETTINGS.items() if key != "pessoa.authentication.kafka"} | {
        "client.sasl.mechanism": "OAUTHBEARER",
        "client.sasl.oauthbearer.token.endpoint.url": f"file:{tmp_path / 'token'}",
        "oauthbearer.jwks.endpoint.url": f"file:{keys}",
    }
    assert from_properties(settings).acts_as_callers
    with pytest.raises(ConfigProblem, match=r"client\.sasl\.mechanism must be PLAIN"):
        from_properties({**settings, "pessoa.authentication.users.file": str(tmp_path / "users")})


@pytest.mark.parametrize(
    "without", ["pessoa.authentication.kafka", "client.security.protocol", "client.sasl.mechanism"]
)
def test_acting_as_callers_needs_their_logins_and_a_cluster_that_takes_them(without: str) -> None:
    with pytest.raises(ConfigProblem, match=r"confluent\.rest.auth\.propagate\.method"):
        from_properties({key: value for key, value in SETTINGS.items() if key != without})


def test_a_proxy_acts_as_itself_unless_it_is_configured_otherwise() -> None:
    assert not Config().acts_as_callers
