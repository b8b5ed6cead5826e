"""REST proxies in front of a cluster of Pessoa and one of Apache Kafka; tests with the fixture `rest` run on both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pessoa.testing import Broker
from tests.services.rest_proxy.stage import Rest, proxy_in_front_of

# Members of share and streams groups get their assignment with a later heartbeat; the default intervals are seconds.
SHORT_INTERVALS = {
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="session")
def pessoa_cluster() -> Iterator[str]:
    with Broker(SHORT_INTERVALS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def apache_cluster() -> Iterator[str]:
    from tests.apache.broker import ApacheKafka

    settings = {
        **SHORT_INTERVALS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "group.initial.rebalance.delay.ms": "0",
    }
    with ApacheKafka(properties=settings) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="session", params=["pessoa", pytest.param("apache", marks=pytest.mark.apache)])
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_cluster")
    return found


@pytest.fixture(scope="session")
def rest(bootstrap_servers: str) -> Iterator[Rest]:
    with proxy_in_front_of(bootstrap_servers) as running:
        yield running


@pytest.fixture(scope="session")
def apache_rest(apache_cluster: str) -> Iterator[Rest]:
    with proxy_in_front_of(apache_cluster) as running:
        yield running


@pytest.fixture(scope="session")
def pessoa_rest(pessoa_cluster: str) -> Iterator[Rest]:
    with proxy_in_front_of(pessoa_cluster) as running:
        yield running
