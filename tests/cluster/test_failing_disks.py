"""A broker with two log directories, of which one fails."""

from __future__ import annotations

import asyncio

from pessoa.broker.config import BrokerConfig
from pessoa.broker.lifecycle import Broker
from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.net.channel import Channel
from pessoa.net.network import SystemNetwork
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest

TIMEOUT_S = 120
PATIENCE_MS = 60_000


def test_the_controller_learns_of_a_failed_log_directory_and_elects_other_leaders_for_its_partitions() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        for path in ("/good", "/bad"):
            disk.make_directory(path)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:0",
            "log.dirs": "/good,/bad",
        }
        broker = Broker(BrokerConfig(settings), disk=disk)
        async with asyncio.timeout(TIMEOUT_S):
            await broker.start()
            host, _, port = broker.bootstrap_servers.partition(":")
            channel = Channel(SystemNetwork(), host, int(port), "tester")
            topic = CreatableTopic(name="t", num_partitions=4, replication_factor=1, assignments=[], configs=[])
            request = CreateTopicsRequest(topics=[topic], timeout_ms=PATIENCE_MS)
            await channel.send(request, request.versions.last, PATIENCE_MS)
            channel.close()
            replicas = broker.services.replicas

            def are_there() -> bool:
                return all(replicas.ensure("t", index) for index in range(4))

            assert await broker.services.progress.wait_until(are_there, PATIENCE_MS)
            bad = next(one for one in replicas.directories if one.path == "/bad")
            on_bad = sorted(
                index for index in range(4) if (one := replicas.ensure("t", index)) and one.directory is bad
            )
            assert on_bad
            bad_id = bad.meta.directory_id if bad.meta is not None else None

            def are_assigned() -> bool:
                partitions = broker.services.image.topics.by_name["t"].partitions
                return all((one.directory_of(1) == bad_id) == (index in on_bad) for index, one in partitions.items())

            assert await broker.services.progress.wait_until(are_assigned, PATIENCE_MS)
            bad.fail(DiskError("sync", "/bad", "it is broken"))

            def is_known() -> bool:
                image = broker.services.image
                registered = image.cluster.brokers[1].directories
                leaders = {index: one.leader for index, one in image.topics.by_name["t"].partitions.items()}
                return bad_id not in registered and all((leaders[i] == -1) == (i in on_bad) for i in range(4))

            assert await broker.services.progress.wait_until(is_known, PATIENCE_MS)
            assert not broker.failed.done()
            await broker.stop()

    asyncio.run(main())
