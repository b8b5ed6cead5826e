"""A node whose metadata log cannot be written ends, so that whoever watches over it starts it again."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.raft_quorum import QuorumFailed
from tests.cluster.conftest import QUIET, TIMEOUT_S, until
from tests.cluster.test_roles import node
from tests.support.crash_broker import KillableBroker


def test_a_broker_whose_metadata_log_fails_ends_with_one_and_a_sentence_and_can_be_started_again(
    tmp_path: Path,
) -> None:
    with KillableBroker(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
        admin.create_topics([NewTopic("before", 1, 1)])["before"].result(TIMEOUT_S)
        # No file may grow from here on: to the broker, a disk that refuses.
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        admin.create_topics([NewTopic("refused", 1, 1)])
        assert broker.wait_for_end() == 1
        told = broker.errors()
        assert "the metadata log in" in told[0]
        assert "File too large" in told[0]
        assert told[-1].rstrip().endswith("this node cannot go on without its metadata log, and ends")
        assert not any(line.startswith(b"Traceback") for line in broker.lines)
        broker.start()
        until(lambda: "before" in admin.list_topics(timeout=TIMEOUT_S).topics, "what was there before")


def test_a_broker_whose_metadata_log_fails_while_it_starts_does_not_wait_for_a_controller() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        disk.make_directory("/data")
        disk.fail("write", "*/quorum-state*")
        broker = node(1, "broker,controller", "1@127.0.0.1:0", disk)
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(QuorumFailed, match="cannot go on") as caught:
                await broker.start()
            assert isinstance(caught.value.__cause__, DiskError)
            await broker.stop()

    asyncio.run(main())
