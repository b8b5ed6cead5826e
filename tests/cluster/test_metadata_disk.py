"""A node whose metadata log cannot be written ends its process, so that a supervisor can start it again."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.quorum.uncommitted_appends import QuorumFailed
from tests.chaos.disks import Disks, why_no_disks
from tests.cluster.conftest import QUIET, TIMEOUT_S, until
from tests.cluster.test_roles import node
from tests.support.crash_broker import KillableBroker


def test_a_broker_whose_metadata_log_fails_exits_with_1_and_an_error_message_and_can_be_restarted(
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


@pytest.mark.parametrize("room", [300, 600])
def test_a_node_whose_disk_is_full_while_it_registers_exits(tmp_path: Path, room: int) -> None:
    with KillableBroker(tmp_path / "data") as broker:
        broker.kill()
        [segment] = (tmp_path / "data" / "__cluster_metadata-0").glob("*.log")
        # Room for the new leader's epoch, and then for one of two registrations.
        assert broker.start_with_largest_file(segment.stat().st_size + room) == 1
        assert broker.errors()[-1].rstrip().endswith("this node cannot go on without its metadata log, and ends")
        assert not any(line.startswith(b"Traceback") for line in broker.lines)
        broker.start()


def test_a_node_on_a_full_disk_exits_with_1_at_every_start_until_there_is_room(
    tmp_path: Path,
) -> None:
    """A real file system, an ext4 image, without a byte left."""
    reason = why_no_disks()
    if reason is not None:
        pytest.skip(reason)
    with Disks(tmp_path, [1]) as disks, KillableBroker(disks.path(1) / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
        admin.create_topics([NewTopic("before", 1, 1)])["before"].result(TIMEOUT_S)
        disks.fill(1)
        # The last block of the metadata log may have room for a few more records.
        admin.create_topics([NewTopic(f"refused-{number}", 100, 1) for number in range(10)])
        assert broker.wait_for_end() == 1
        assert "No space left on device" in broker.errors()[0]
        assert broker.errors()[-1].rstrip().endswith("this node cannot go on without its metadata log, and ends")
        for _ in range(2):
            assert broker.start_expecting_failure() == 1
        assert not any(line.startswith(b"Traceback") for line in broker.lines), b"".join(broker.lines[-30:]).decode()
        disks.make_room(1)
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
