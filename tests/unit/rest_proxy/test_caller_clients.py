"""The Kafka clients of callers: whose they are, how many there may be, when they are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry

from pessoa.base.clock import ManualClock
from pessoa.base.config_values import ConfigProblem
from pessoa.rest_proxy.caller_clients import EXPIRY_CHECK_MS, CallerClients, caller_identity
from pessoa.rest_proxy.producing import ProducerMetrics
from pessoa.rest_proxy.proxy_config import Config, from_properties
from pessoa.web.auth import BearerCredentials, Caller, PasswordCredentials
from pessoa.web.problems import HttpProblem

SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "client.security.protocol": "SASL_PLAINTEXT",
    "client.sasl.mechanism": "SCRAM-SHA-512",
    "client.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
    ' username="kafka-rest" password="of the proxy";',
    "pessoa.authentication.kafka": "true",
    "confluent.rest.auth.propagate.method": "JETTY_AUTH",
    "pessoa.caller.clients.max": "3",
    "pessoa.caller.clients.idle.ms": "10000",
}
SECRET = "planted-7Q"


def caller(name: str, password: str = SECRET) -> Caller:
    return Caller(name, PasswordCredentials(name, password))


def run(test: Callable[[CallerClients, ManualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = ManualClock()
        found = CallerClients(from_properties(SETTINGS), ProducerMetrics(CollectorRegistry()), clock)
        await test(found, clock)
        await found.close()

    asyncio.run(main())


def test_clients_log_in_as_the_caller_and_never_as_the_proxy() -> None:
    config = from_properties(SETTINGS)
    found = caller_identity(config, caller("ana", 'a "good" pass\\word'))
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


def test_idle_clients_make_room_for_another_caller_and_those_in_use_do_not() -> None:
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


def test_a_caller_with_a_token_is_told_to_come_with_a_password() -> None:
    with pytest.raises(HttpProblem) as refused:
        caller_identity(from_properties(SETTINGS), Caller("ana", BearerCredentials(SECRET, 0)))
    assert refused.value.status == 403
    assert SECRET not in refused.value.message


@pytest.mark.parametrize(
    "without", ["pessoa.authentication.kafka", "client.security.protocol", "client.sasl.mechanism"]
)
def test_acting_as_callers_needs_their_logins_and_a_cluster_that_takes_them(without: str) -> None:
    with pytest.raises(ConfigProblem, match=r"confluent\.rest.auth\.propagate\.method"):
        from_properties({key: value for key, value in SETTINGS.items() if key != without})


def test_a_proxy_acts_as_itself_unless_it_is_told_otherwise() -> None:
    assert not Config().acts_as_callers
