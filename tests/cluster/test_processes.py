"""Three broker processes, as a user starts them, with SIGKILL and SIGSTOP."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.apache.broker import reserve_port
from tests.cluster.conftest import QUIET, TIMEOUT_S, check_nothing_lost, producing, read_all, until
from tests.support.logged_process import LoggedProcess, pessoa


class Processes:
    """Three broker processes with real disks, with the attributes of `Cluster` that helpers use."""

    def __init__(self, directory: Path, disks: int = 1) -> None:
        self._directory = directory
        self._disks = disks
        self._ports = {number: (reserve_port(), reserve_port()) for number in (1, 2, 3)}
        self._processes: dict[int, LoggedProcess] = {}
        self._admin: AdminClient | None = None
        self.bootstrap_servers = ",".join(f"127.0.0.1:{client}" for client, _ in self._ports.values())

    def __iter__(self) -> Iterator[int]:
        return iter(self._ports)

    def start(self, number: int) -> None:
        client, controller = self._ports[number]
        voters = ",".join(f"{one}@127.0.0.1:{port}" for one, (_, port) in self._ports.items())
        config = self._directory / f"{number}.properties"
        config.write_text(
            f"process.roles=broker,controller\nnode.id={number}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n"
            f"controller.quorum.voters={voters}\nlog.dirs={','.join(self.log_dirs(number))}\n"
            "offsets.topic.num.partitions=3\n"
        )
        process = LoggedProcess(pessoa("broker", "--config", config), self._directory / f"{number}.log")
        process.start()
        self._processes[number] = process

    def log_dirs(self, number: int) -> list[str]:
        """Return the log directories of a broker: the first is named like the broker, the next ones have a letter
        added."""
        return [str(self._directory / f"{number}{letter}") for letter in ("", "b", "c")[: self._disks]]

    def signal(self, number: int, what: signal.Signals) -> None:
        self._processes[number].send_signal(what)

    def is_running(self, number: int) -> bool:
        return number in self._processes and self._processes[number].is_running

    def end(self, number: int) -> int:
        return self._processes.pop(number).wait_for_end(TIMEOUT_S)

    def kill(self, number: int) -> None:
        self.signal(number, signal.SIGKILL)
        self.end(number)

    def close(self) -> None:
        for process in self._processes.values():
            process.close()

    def admin(self) -> AdminClient:
        if self._admin is None:
            # It must not wait for a broker that is stopped.
            self._admin = AdminClient(
                {"bootstrap.servers": self.bootstrap_servers, "socket.timeout.ms": 2_000, **QUIET}
            )
        return self._admin

    def wait_until_registered(self) -> None:
        until(lambda: len(self._metadata().brokers) == 3, "all brokers registered")

    def wait_until_in_sync(self) -> None:
        def is_so() -> bool:
            metadata = self._metadata()
            partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
            return len(metadata.brokers) == 3 and all(len(one.isrs) == len(one.replicas) for one in partitions)

        until(is_so, "all replicas in sync")

    def create_topic(self) -> None:
        """Create a topic, and retry if that fails: a client drops requests when a broker's metadata lists fewer
        brokers."""
        deadline = time.monotonic() + TIMEOUT_S
        topic = NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})
        while "t" not in self._metadata().topics:
            try:
                self.admin().create_topics([topic])["t"].result(TIMEOUT_S)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def leader_of(self, topic: str) -> int:
        return int(self._metadata().topics[topic].partitions[0].leader)

    def _metadata(self) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return self.admin().list_topics(timeout=3)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def log_of(self, number: int) -> str:
        return (self._directory / f"{number}.log").read_text()

    def controller(self) -> int:
        """Return the active controller: the last to have become active according to the brokers' output."""
        found = []
        for number in self:
            told = self.log_of(number)
            found += [(int(epoch), number) for epoch in re.findall(r"is the active controller in epoch (\d+)", told)]
        return max(found)[1]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Any]:
    running = Processes(tmp_path)
    try:
        for number in running:
            running.start(number)
        running.wait_until_in_sync()
        running.create_topic()
        running.wait_until_in_sync()
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("victim", ["leader", "controller"])
def test_producing_continues_soon_after_kill_minus_nine_of_a_broker(processes: Processes, victim: str) -> None:
    with producing(processes, "t") as producer:
        producer.wait_for(100)
        dead = processes.leader_of("t") if victim == "leader" else processes.controller()
        processes.kill(dead)
        pause_s = producer.wait_for(20)
        processes.start(dead)
        processes.wait_until_in_sync()
        producer.wait_for(20)
    print(f"after kill -9 of the {victim}: producing went on after {pause_s:.2f} s")
    check_nothing_lost(producer, read_all(processes, "t", 1))


def test_a_leader_process_that_is_stopped_and_continued_has_lost_its_leadership_and_no_record(
    processes: Processes,
) -> None:
    with producing(processes, "t") as producer:
        producer.wait_for(100)
        paused = processes.leader_of("t")
        processes.signal(paused, signal.SIGSTOP)
        until(lambda: processes.leader_of("t") != paused, "another leader")
        producer.wait_for(20)
        processes.signal(paused, signal.SIGCONT)
        processes.wait_until_in_sync()
        producer.wait_for(20)
    check_nothing_lost(producer, read_all(processes, "t", 1))


def test_a_process_that_gets_sigterm_hands_over_its_leaders_first(processes: Processes) -> None:
    with producing(processes, "t") as producer:
        producer.wait_for(100)
        leader = processes.leader_of("t")
        processes.signal(leader, signal.SIGTERM)
        assert processes.end(leader) == 0
        producer.wait_for(20)
        assert processes.leader_of("t") != leader
        processes.start(leader)
        processes.wait_until_in_sync()
    check_nothing_lost(producer, read_all(processes, "t", 1))


def test_processes_that_all_get_sigterm_do_not_wait_for_each_other(processes: Processes) -> None:
    for number in processes:
        processes.signal(number, signal.SIGTERM)
    assert [processes.end(number) for number in processes] == [0, 0, 0]
    # What a broker says that has waited for a controller for as long as it does.
    assert [number for number in processes if "stops all the same" in processes.log_of(number)] == []
