"""Disks that only claim to sync: synced records are lost with the power, which the checkers have to detect.

This is the control experiment for all tests in which nothing is lost. With the same settings and a disk that syncs,
"cut all power" loses nothing (`test_surroundings.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.checks import read_all
from tests.chaos.disks import Disks
from tests.chaos.load import EAGER, IN, PARTITIONS
from tests.chaos.processes import BROKERS, TIMEOUT_S, BrokerProcesses, Home
from tests.chaos.stage import Wanted
from tests.chaos.syscalls import Syscalls
from tests.chaos.test_surroundings import skip_without
from tests.simulation.history import History, TopicPartition, Violation, Write

_SYNC_BEFORE_ACKNOWLEDGING = {"log.flush.interval.messages": "1"}


def produce(brokers: BrokerProcesses, history: History, values: range) -> None:
    """Produce records until all of them are acknowledged."""
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "acks": "all", **EAGER})
    for number in values:
        partition, value = TopicPartition(IN, number % PARTITIONS), str(number).encode()
        write = history.begin_write(value, partition, "producer")

        def told(error: KafkaError | None, message: Message, write: Write = write) -> None:
            offset = message.offset()
            assert error is None
            assert offset is not None
            history.acknowledge(write, offset)

        producer.produce(IN, value, partition=partition.number, on_delivery=told)
    assert producer.flush(TIMEOUT_S) == 0


def cut_all_power(brokers: BrokerProcesses, disks: Disks) -> None:
    for number in brokers:
        brokers.pause(number)
    disks.remember(*brokers)
    brokers.kill(*brokers)
    disks.go_back(*brokers)
    brokers.start_all()


def check(brokers: BrokerProcesses, history: History) -> None:
    found = read_all(brokers, (IN,), "read_uncommitted"), read_all(brokers, (IN,), "read_committed")
    history.check_complete(*found)


def test_the_checkers_report_records_lost_in_a_power_loss_by_a_disk_that_only_claimed_to_sync(tmp_path: Path) -> None:
    skip_without(Wanted(disks=True, syscalls=True))
    history, syscalls = History(), Syscalls(tmp_path / "syscalls")
    with Disks(tmp_path) as disks:
        homes = {one: Home(disks.path(one) / "data", program=syscalls.program) for one in BROKERS}
        with BrokerProcesses(tmp_path, _SYNC_BEFORE_ACKNOWLEDGING, homes) as brokers:
            brokers.create_topic(IN, PARTITIONS)
            produce(brokers, history, range(30))
            syscalls.do("sync lies", f"/{IN}-")
            # Acknowledged just before the power loss, so that the kernel has not written it to the disk by itself.
            produce(brokers, history, range(30, 60))
            cut_all_power(brokers, disks)
            with pytest.raises(Violation, match=r"lost: b'[3-5]\d' was acknowledged"):
                check(brokers, history)


def test_a_process_with_injected_faults_gets_failing_syncs_and_torn_writes(tmp_path: Path) -> None:
    """If the faults were not injected, every test with such a disk would pass."""
    skip_without(Wanted(syscalls=True))
    syscalls = Syscalls(tmp_path / "syscalls")
    package = tmp_path / "pessoa"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import os, sys\n"
        "file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "os.pwrite(file, b'written', 0)\n"
        "os.fdatasync(file)\n"
    )

    def run(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *syscalls.program, str(tmp_path / name)]
        paths = os.pathsep.join([str(tmp_path), str(Path.cwd())])
        environment = {**os.environ, "PYTHONPATH": paths}
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)

    syscalls.do("sync fails", "in-")
    assert run("out-0").returncode == 0
    assert "Input/output error" in run("in-0").stderr
    syscalls.do("tear", "in-")
    assert run("in-1").returncode == -signal.SIGKILL
    assert (tmp_path / "in-1").read_bytes() == b"wri"
    syscalls.do("")
    assert run("in-1").returncode == 0
    assert (tmp_path / "in-1").read_bytes() == b"written"
