"""Clients in processes of their own, so that they can be killed and paused in the middle of their work.

    with open_transaction(stage) as producer:       a transaction with three acknowledged records, not ended
        producer.kill()                             SIGKILL; or `pause`, `resume`, and then `ask("commit")`
    with member(stage) as consumer:                 one more member of the group that reads IN, and owns a part of it

A process prints a line when it is ready. The history has the transaction as aborted from the beginning: only the
process could commit it, and it is asked to only after the coordinator has aborted it.

    python -m tests.chaos.doomed transaction SETTINGS ID VALUE…     the settings of a client as JSON
    python -m tests.chaos.doomed member SETTINGS GROUP
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Timer

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as RdTopicPartition

from tests.chaos.load import EAGER, GROUP, IN, OUT, PARTITIONS, retry_transient_errors
from tests.chaos.processes import IMPATIENT, TIMEOUT_S
from tests.chaos.stage import Stage
from tests.simulation.history import Outcome, TopicPartition

# The shortest session that a broker allows.
SESSION_MS = 6_000
TRANSACTION_MS = 4_000


class Client:
    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.chaos.doomed", *arguments]
        # The end offsets, after its records, of the partitions of its transaction.
        self.ends: dict[TopicPartition, int] = {}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __repr__(self) -> str:
        return f"<Client, process {self._process.pid}>"

    def hear(self) -> str:
        """Return the next line of output. A process that prints nothing for too long is killed, and the test fails."""
        assert self._process.stdout is not None
        impatience = Timer(2 * TIMEOUT_S, self._process.kill)
        impatience.start()
        try:
            line = self._process.stdout.readline()
        finally:
            impatience.cancel()
        assert line, f"{self!r} ended: {self._process.communicate()[1]}"
        return line.strip()

    def ask(self, question: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return self.hear()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def open_transaction(stage: Stage) -> Iterator[Client]:
    """Begin a transaction, wait until its records are acknowledged, and do not end it."""
    load = stage.load
    with load.lock:
        name = f"doomed-{len(load.history.transactions)}"
        transaction = load.history.begin_transaction(name)
        transaction.outcome = Outcome.FAILED
        values = [f"{name}:{number}" for number in range(PARTITIONS)]
        for number, value in enumerate(values):
            load.history.begin_write(value.encode(), TopicPartition(OUT, number), name, transaction)
    client = Client("transaction", json.dumps(load.client), name, *values)
    try:
        word, *ends = client.hear().split()
        assert word == "open"
        client.ends = {TopicPartition(OUT, number): int(end) for number, end in enumerate(ends)}
        yield client
    finally:
        client.kill()


@contextmanager
def member(stage: Stage) -> Iterator[Client]:
    client = Client("member", json.dumps(stage.load.client), GROUP)
    try:
        assert client.hear() == "owner"
        yield client
    finally:
        client.kill()


# In the process.


def main(arguments: list[str]) -> int:
    kind, text, name, *values = arguments
    client = json.loads(text)
    if kind == "transaction":
        hold_transaction(client, name, values)
    else:
        be_member(client, name)
    return 0


def hold_transaction(client: dict[str, str], name: str, values: list[str]) -> None:
    settings = {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_MS}
    producer = Producer({**settings, **EAGER, **client})
    retry_transient_errors(lambda: producer.init_transactions(TIMEOUT_S))
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(OUT, value, partition=number)
    assert producer.flush(TIMEOUT_S) == 0
    reader = Consumer({**client, "group.id": name, "isolation.level": "read_uncommitted"})
    ends = [
        retry_transient_errors(
            partial(reader.get_watermark_offsets, RdTopicPartition(OUT, number), TIMEOUT_S, cached=False)
        )[1]
        for number in range(len(values))
    ]
    reader.close()
    print("open", *ends, flush=True)
    for _ in sys.stdin:
        try:
            retry_transient_errors(lambda: producer.commit_transaction(TIMEOUT_S))
        except KafkaException as problem:
            print(f"refused: {problem.args[0].str()}", flush=True)
        else:
            print("committed", flush=True)


def be_member(client: dict[str, str], group: str) -> None:
    consumer = Consumer(
        {
            "group.id": group,
            "session.timeout.ms": SESSION_MS,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            **IMPATIENT,
            **client,
        }
    )

    def on_assign(_: Consumer, partitions: list[RdTopicPartition]) -> None:
        if partitions:
            print("owner", flush=True)

    consumer.subscribe([IN], on_assign=on_assign)
    while True:
        consumer.consume(100, 0.1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
