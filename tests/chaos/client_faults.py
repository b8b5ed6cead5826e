"""Faults of clients: they are killed in the middle of work, resume too late, and open very many connections.

The same kind of function as in `faults`. A producer that dies with an open transaction must not block read_committed
consumers for longer than the transaction timeout, and one that resumes later must not commit it. A dead member's
partitions go to the other members. A broker without a descriptor for another connection keeps serving its existing
connections and its own work; and accepts new connections when the others are closed.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.doomed import member, open_transaction
from tests.chaos.faults import MORE, Fault, a_leader
from tests.chaos.load import IN, PARTITIONS
from tests.chaos.processes import TIMEOUT_S, can_connect, until
from tests.chaos.stage import Stage
from tests.simulation.history import TopicPartition

# More than the broker has descriptors for, and fewer than the backlog of a listener that does not accept them.
_SPARE_DESCRIPTORS = 5
_CROWD = 60
_HORDE = 2_000


def kill_a_producer(stage: Stage) -> None:
    with open_transaction(stage) as producer:
        producer.kill()
        _wait_for_readers(stage, producer.ends)


def pause_a_producer(stage: Stage) -> None:
    with open_transaction(stage) as producer:
        producer.pause()
        _wait_for_readers(stage, producer.ends)
        producer.resume()
        answer = producer.ask("commit")
        assert answer.startswith("refused"), f"a transaction that was given up was {answer}"


def _wait_for_readers(stage: Stage, ends: dict[TopicPartition, int]) -> None:
    """Wait until read_committed consumers may read up to these offsets."""

    def is_so() -> bool:
        stage.load.raise_problems()
        return all(stage.watch.floor("last stable offset", one) >= end for one, end in ends.items())

    until(is_so, lambda: f"last stable offsets up to {ends} ({stage.watch!r})")


def kill_a_member(stage: Stage) -> None:
    with member(stage) as consumer:
        stage.load.wait_for(MORE)
        consumer.kill()
        _wait_for_members(stage)


def pause_a_member(stage: Stage) -> None:
    """Pause a member until others own its partitions; then it resumes, and learns of it."""
    with member(stage) as consumer:
        stage.load.wait_for(MORE)
        consumer.pause()
        _wait_for_members(stage)
        consumer.resume()
        stage.load.wait_for(MORE)


def _wait_for_members(stage: Stage) -> None:
    """Wait until the other members have polled, in every partition, a record that is written after this call."""
    ends = {one: stage.watch.floor("high watermark", one) for one in _partitions(IN)}

    def is_so() -> bool:
        stage.load.raise_problems()
        with stage.load.lock:
            seen = stage.load.history.seen_committed
            return all(any(offset > end for offset in seen.get(one, ())) for one, end in ends.items())

    until(is_so, lambda: f"polls beyond {ends} ({stage.load!r})")


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def take_the_descriptors(stage: Stage) -> None:
    """Limit the descriptors of a leader, so that it can open almost no more files and connections."""
    victim = a_leader(stage)
    process = stage.brokers.pid(victim)
    soft, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
    limit = _descriptors(process) + _SPARE_DESCRIPTORS
    resource.prlimit(process, resource.RLIMIT_NOFILE, (limit, hard))
    with _connections(stage.brokers.address(victim), _CROWD):
        until(lambda: _descriptors(process) >= limit - 1, f"a broker that has all its {limit} descriptors in use")
        stage.load.wait_for(2 * MORE)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (soft, hard))
    until(lambda: can_connect(stage.brokers.address(victim)), "a broker that takes connections again", TIMEOUT_S)
    assert victim in stage.brokers.running


def _descriptors(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def come_in_a_horde(stage: Stage) -> None:
    """Open very many connections that send nothing."""
    with _connections(stage.brokers.address(a_leader(stage)), _HORDE):
        stage.load.wait_for(MORE)


@contextmanager
def _connections(address: str, count: int) -> Iterator[None]:
    """Open `count` connections, whether or not the broker accepts them."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex((host, int(port)))
        yield


CLIENT_FAULTS: dict[str, Fault] = {
    "kill a producer": kill_a_producer,
    "pause a producer": pause_a_producer,
    "kill a member": kill_a_member,
    "pause a member": pause_a_member,
    "take the descriptors": take_the_descriptors,
    "come in a horde": come_in_a_horde,
}
