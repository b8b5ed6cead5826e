"""A request that arrives too late changes nothing (KIP-98, KIP-890).

The network may delay a Produce or an EndTxn for any time. Meanwhile the producer was replaced by another one with its
transactional id, or has begun its next transaction. The late request must then neither write to the log, where its
records would belong to the transaction that is open then, nor end a transaction that it does not belong to.

librdkafka keeps one epoch for all its transactions, so it is protected only by its successor's new epoch. Clients that
use EndTxn 5 get a new epoch with every response, and are also protected from their own late requests; the tests have
such a client, request by request.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer

from pessoa.client.client_errors import RequestFailed, check
from pessoa.client.cluster_client import Cluster
from pessoa.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from tests.chaos.checks import read_all
from tests.chaos.holding_proxy import HOST, HoldingProxy
from tests.chaos.load import EAGER, retry_transient_errors
from tests.chaos.processes import BROKERS, TIMEOUT_S, BrokerProcesses, Home, until
from tests.support.batches import transactional

# A broker answers with either, depending on which check finds the old epoch.
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


class Proxied(NamedTuple):
    brokers: BrokerProcesses
    proxies: dict[int, HoldingProxy]

    def hold(self, client_id: str, api: ApiKey) -> None:
        """Hold back the next request of this kind, to whichever broker it is sent."""
        for proxy in self.proxies.values():
            proxy.hold(client_id, api)

    def wait_for_the_held(self) -> HoldingProxy:
        until(lambda: any(one.is_holding for one in self.proxies.values()), "a request to hold")
        for proxy in self.proxies.values():
            proxy.pass_everything()
        return next(one for one in self.proxies.values() if one.is_holding)

    def producer(self, name: str, transactional_id: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.brokers.bootstrap_servers,
                "client.id": name,
                "transactional.id": transactional_id,
                **EAGER,
                # Long, because the client must not send the held request again.
                "request.timeout.ms": 60_000,
                "socket.timeout.ms": 60_000,
            }
        )
        retry_transient_errors(lambda: producer.init_transactions(TIMEOUT_S))
        return producer

    def committed(self, topic: str) -> list[bytes]:
        [records] = read_all(self.brokers, (topic,), "read_committed", partitions=1).values()
        return list(records.values())

    def written(self, topic: str) -> list[bytes]:
        [records] = read_all(self.brokers, (topic,), "read_uncommitted", partitions=1).values()
        return list(records.values())


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    directory = tmp_path_factory.mktemp("delayed")
    with ExitStack() as stack:
        proxies = {number: stack.enter_context(HoldingProxy()) for number in BROKERS}
        homes = {number: _home(directory, number, proxy) for number, proxy in proxies.items()}
        brokers = BrokerProcesses(directory, homes=homes)
        for number, proxy in proxies.items():
            proxy.target = (HOST, int(brokers.address(number).rpartition(":")[2]))
        yield Proxied(stack.enter_context(brokers), proxies)


def _home(directory: Path, number: int, proxy: HoldingProxy) -> Home:
    advertised = f"PLAINTEXT://{HOST}:{proxy.port}"
    return Home(directory / f"data-{number}", settings={"advertised.listeners": advertised})


def test_a_produce_that_arrives_after_its_producer_was_replaced_is_not_written(proxied: Proxied) -> None:
    proxied.brokers.create_topic("late-produce", 1)
    zombie = proxied.producer("zombie", "late-produce")
    zombie.begin_transaction()
    zombie.produce("late-produce", b"in time")
    assert zombie.flush(TIMEOUT_S) == 0
    proxied.hold("zombie", ApiKey.PRODUCE)
    zombie.produce("late-produce", b"too late")
    zombie.poll(0)
    holder = proxied.wait_for_the_held()
    successor = proxied.producer("successor", "late-produce")
    successor.begin_transaction()
    successor.produce("late-produce", b"of the successor")
    assert successor.flush(TIMEOUT_S) == 0

    holder.release()

    retry_transient_errors(lambda: successor.commit_transaction(TIMEOUT_S))
    assert proxied.written("late-produce") == [b"in time", b"of the successor"]
    assert proxied.committed("late-produce") == [b"of the successor"]


def test_a_commit_that_arrives_after_its_producer_was_replaced_commits_nothing(proxied: Proxied) -> None:
    proxied.brokers.create_topic("late-commit", 1)
    zombie = proxied.producer("zombie", "late-commit")
    zombie.begin_transaction()
    zombie.produce("late-commit", b"of the zombie")
    assert zombie.flush(TIMEOUT_S) == 0
    proxied.hold("zombie", ApiKey.END_TXN)
    refused: list[KafkaException] = []
    committing = Thread(target=_commit, args=(zombie, refused), daemon=True)
    committing.start()
    holder = proxied.wait_for_the_held()
    successor = proxied.producer("successor", "late-commit")
    successor.begin_transaction()
    successor.produce("late-commit", b"of the successor")
    assert successor.flush(TIMEOUT_S) == 0

    holder.release()

    assert proxied.committed("late-commit") == []
    retry_transient_errors(lambda: successor.abort_transaction(TIMEOUT_S))
    assert proxied.committed("late-commit") == []
    assert proxied.written("late-commit") == [b"of the zombie", b"of the successor"]


def _commit(producer: Producer, refused: list[KafkaException]) -> None:
    """Commit, with a request that the proxy holds; the outcome for the client is not tested."""
    try:
        producer.commit_transaction(1)
    except KafkaException as problem:
        refused.append(problem)


class Client:
    """Transactions version 2: Produce adds partitions, and every EndTxn gives a new epoch."""

    def __init__(self, brokers: BrokerProcesses, topic: str) -> None:
        self.topic = topic
        self._cluster = Cluster(brokers.bootstrap_servers)
        self._leader = brokers.leader_of(topic, 0)
        self._coordinator = self._cluster.coordinator(topic, transactions=True)
        request = InitProducerIdRequest(transactional_id=topic, transaction_timeout_ms=60_000)

        def begin() -> InitProducerIdResponse:
            answer = self._cluster.ask(request, InitProducerIdResponse, node=self._coordinator)
            check(answer.error_code)
            return answer

        begun = self._cluster.retried(begin, name="initProducerId")
        self.id, self.epoch = begun.producer_id, begun.producer_epoch

    def close(self) -> None:
        self._cluster.close()

    def produce(self, epoch: int, sequence: int, version: int = 12) -> ErrorCode:
        """Produce a record with the value `p<producer>-<sequence>`. Version 12 is the last one with topic names."""
        batch = transactional(self.id, sequence, producer_epoch=epoch)
        data = TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(transactional_id=self.topic, acks=-1, timeout_ms=60_000, topic_data=[data])

        def attempt() -> ErrorCode:
            connection = self._cluster.connection(self._leader)
            answer = connection.send(request, ProduceResponse, time.monotonic() + TIMEOUT_S, version=version)
            code = ErrorCode.of(answer.responses[0].partition_responses[0].error_code)
            if code.retriable:
                raise RequestFailed(code)
            return code

        return self._cluster.retried(attempt, name="produce")

    def end(self, epoch: int, *, committed: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.topic, producer_id=self.id, producer_epoch=epoch, committed=committed
        )

        def attempt() -> ErrorCode:
            answer = self._cluster.ask(request, EndTxnResponse, node=self._coordinator)
            code = ErrorCode.of(answer.error_code)
            if code.retriable:
                raise RequestFailed(code)
            if not code:
                self.epoch = answer.producer_epoch
            return code

        return self._cluster.retried(attempt, name="endTxn")


@pytest.fixture
def client(proxied: Proxied, request: pytest.FixtureRequest) -> Iterator[Client]:
    topic = request.node.name[-60:]
    proxied.brokers.create_topic(topic, 1)
    client = Client(proxied.brokers, topic)
    yield client
    client.close()


def test_a_produce_of_an_abandoned_transaction_is_not_written_into_the_next(proxied: Proxied, client: Client) -> None:
    late = client.epoch
    assert client.end(late, committed=False) is ErrorCode.NONE
    assert client.epoch > late
    assert client.produce(client.epoch, 0) is ErrorCode.NONE
    assert client.produce(late, 0) in FENCED
    assert client.produce(late, 1) in FENCED
    assert client.end(client.epoch, committed=True) is ErrorCode.NONE
    assert proxied.written(client.topic) == [b"p%d-0" % client.id]
    assert proxied.committed(client.topic) == [b"p%d-0" % client.id]


def test_a_commit_that_arrives_twice_commits_one_transaction_and_not_the_next(proxied: Proxied, client: Client) -> None:
    late = client.epoch
    assert client.produce(late, 0) is ErrorCode.NONE
    assert client.end(late, committed=True) is ErrorCode.NONE
    next_epoch = client.epoch
    # A repeated EndTxn before any other request gets the same response.
    assert client.end(late, committed=True) is ErrorCode.NONE
    assert client.epoch == next_epoch
    assert client.produce(next_epoch, 0) is ErrorCode.NONE
    assert client.end(late, committed=True) in FENCED
    assert client.end(late, committed=False) in FENCED
    assert proxied.committed(client.topic) == [b"p%d-0" % client.id]
    assert client.end(next_epoch, committed=False) is ErrorCode.NONE
    assert proxied.committed(client.topic) == [b"p%d-0" % client.id]
    assert proxied.written(client.topic) == 2 * [b"p%d-0" % client.id]


def test_a_late_produce_of_the_older_protocol_leaves_no_hanging_transaction(proxied: Proxied, client: Client) -> None:
    # In this version AddPartitionsToTxn opens a transaction, and the client has not sent it.
    refused = client.produce(client.epoch, 0, version=11)
    assert refused in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    assert proxied.written(client.topic) == []
    assert client.produce(client.epoch, 0) is ErrorCode.NONE
    assert client.end(client.epoch, committed=True) is ErrorCode.NONE
    assert proxied.committed(client.topic) == [b"p%d-0" % client.id]
