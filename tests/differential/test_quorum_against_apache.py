"""The metadata quorum and its snapshots, compared with Apache Kafka's.

our snapshot → Apache        kafka-dump-log reads it, and Apache's broker starts from it without the log
Apache's snapshot → ours     we get the same image from it as from the log that it was made of
a formatted directory        the first voters of a quorum that keeps them in its log
kafka-metadata-quorum        prints the same about three of ours and three of Apache's
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pessoa.base.clock import SystemClock
from pessoa.base.entropy import SystemEntropy, new_uuid
from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.log.os_disk import OsDisk
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.snapshot import snapshot_records
from pessoa.quorum.formatting import format_metadata
from pessoa.quorum.metadata_log import METADATA_DIRECTORY, MetadataLog
from pessoa.quorum.publishing import ImagePublisher
from pessoa.quorum.quorum_settings import DEFAULT_SETTINGS, QuorumNode
from pessoa.quorum.raft_quorum import RaftQuorum
from pessoa.quorum.snapshot_file import read_snapshot, snapshots_among
from pessoa.raft.messages import OffsetAndEpoch, ReplicaKey
from pessoa.raft.voters import Address, Voter, VoterSet
from pessoa.testing import Broker, Cluster
from tests.apache.broker import ApacheKafka, random_id, run_tool
from tests.support.clients import TIMEOUT_S

TOPICS = {"orders": 3, "clicks": 1, "x": 2}
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "1"}


def create_topics(bootstrap_servers: str, replication_factor: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = [
        NewTopic(name, num_partitions=count, replication_factor=replication_factor, config={"retention.ms": "5000"})
        for name, count in TOPICS.items()
    ]
    for future in admin.create_topics(new).values():
        future.result(TIMEOUT_S)


def snapshots_in(data: Path) -> list[OffsetAndEpoch]:
    return snapshots_among(path.name for path in (data / METADATA_DIRECTORY).iterdir())


def forget_the_log(data: Path) -> OffsetAndEpoch:
    """Delete the part of the log that the latest snapshot covers, and return the snapshot's id."""
    log = MetadataLog(OsDisk(), str(data / METADATA_DIRECTORY), DEFAULT_SETTINGS, VoterSet(), 0)
    latest = log.latest_snapshot
    assert latest is not None
    log.restart_at(latest, 0)
    log.close()
    return latest


def image_of(data: Path) -> MetadataImage:
    """Return our image of the directory without changing it."""
    copy = data.with_name(f"{data.name}-copy")
    shutil.copytree(data, copy, dirs_exist_ok=True)
    publisher = ImagePublisher()
    quorum = RaftQuorum(
        OsDisk(), str(copy), QuorumNode(1, "any", ZERO_UUID), VoterSet.of(1), SystemClock(), SystemEntropy()
    )
    quorum.listeners.append(publisher.listen)
    quorum.on_snapshot.append(publisher.load_snapshot)

    async def read() -> None:
        await quorum.start()
        await quorum.close()

    asyncio.run(read())
    publisher.go_live()
    shutil.rmtree(copy)
    return publisher.image


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("ours") / "data"
    with Broker(directory=data, settings=OFTEN) as broker:
        create_topics(broker.bootstrap_servers)
    with Broker(directory=data, settings=OFTEN):
        # A snapshot may have been under way when the topics were created, and then none contains them. The first
        # batch after a restart starts a new snapshot.
        pass
    found = [path.parent for path in data.parent.rglob("meta.properties")]
    assert len(found) == 1
    return found[0]


def test_apaches_dump_tool_reads_our_metadata_snapshot(ours: Path) -> None:
    latest = snapshots_in(ours)[-1]
    path = next((ours / METADATA_DIRECTORY).glob(f"{latest.offset:020}-*.checkpoint"))
    dump = run_tool("kafka-dump-log", "--cluster-metadata-decoder", "--files", path, check=True).stdout
    assert "Could not decode" not in dump
    assert "SnapshotHeader" in dump
    assert "SnapshotFooter" in dump
    payloads = [json.loads(line.partition("payload: ")[2]) for line in dump.splitlines() if "payload: {" in line]
    names = [one["data"]["name"] for one in payloads if one["type"] == "TOPIC_RECORD"]
    assert sorted(names) == sorted(TOPICS)
    assert sum(one["type"] == "PARTITION_RECORD" for one in payloads) == sum(TOPICS.values())


def test_apache_starts_from_our_metadata_snapshot_without_the_log(ours: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(ours, data)
    assert forget_the_log(data).offset > 0
    with ApacheKafka(data=[data]) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        listed = kafka.run_tool("kafka-topics", *server, "--describe").stdout
    for name, count in TOPICS.items():
        assert re.search(rf"Topic: {name}\s.*PartitionCount: {count}\s.*retention.ms=5000", listed), listed


def test_our_image_of_apaches_snapshot_equals_that_of_its_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ApacheKafka(data=[data], properties=OFTEN) as kafka:
        create_topics(kafka.bootstrap_servers)
    assert snapshots_in(data)[-1].offset > 0
    from_log, from_snapshot = tmp_path / "log", tmp_path / "snapshot"
    shutil.copytree(data, from_log)
    shutil.copytree(data, from_snapshot)
    for path in (from_log / METADATA_DIRECTORY).glob("*.checkpoint"):
        path.unlink()
    latest = snapshots_in(data)[-1]
    reader = read_snapshot(OsDisk(), str(data / METADATA_DIRECTORY), latest)
    whole, image = image_of(from_log), image_of(from_snapshot)
    assert sorted(image.topics.by_name) == sorted(TOPICS)
    assert (image.topics, image.configs, image.cluster) == (whole.topics, whole.configs, whole.cluster)
    assert image.features == whole.features
    # The snapshot that we would write of the image has the same records in the same versions.
    theirs = [record for batch in reader.batches() for record in batch.records]
    at_snapshot = MetadataImage.EMPTY.apply(theirs, latest.offset - 1, latest.epoch)
    again = [record for record, _ in snapshot_records(at_snapshot)]
    assert sorted(map(repr, again)) == sorted(map(repr, theirs))


def test_a_directory_formatted_as_standalone_controller_has_the_same_voter_records_as_apaches(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:19093\n"
        f"log.dirs={tmp_path / 'apache'}\n"
    )
    run_tool("kafka-storage", "format", "--standalone", "-t", random_id(), "-c", properties, check=True)
    mine = str(tmp_path / "ours")
    alone = VoterSet([Voter(ReplicaKey(1, Uuid.of(1_000)), {"CONTROLLER": Address("127.0.0.1", 19093)})])
    format_metadata(OsDisk(), [mine], mine, 1, lambda: new_uuid(SystemEntropy()), 0, initial_voters=alone)

    def described(data: Path) -> list[str]:
        path = data / METADATA_DIRECTORY / "00000000000000000000-0000000000.checkpoint"
        dump = run_tool("kafka-dump-log", "--cluster-metadata-decoder", "--files", path, check=True).stdout
        lines = [line.partition("headerKeys")[2] for line in dump.splitlines() if line.startswith("|")]
        lines = [re.sub(r'"voterDirectoryId":"[^"]*"', '"voterDirectoryId":…', line) for line in lines]
        return [re.sub(r'"lastContainedLogTimestamp":\d+', '"lastContainedLogTimestamp":…', line) for line in lines]

    assert described(tmp_path / "ours") == described(tmp_path / "apache")
    assert len(described(tmp_path / "ours")) == 4


# ---- kafka-metadata-quorum ----


def quorum_described(bootstrap_servers: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the fields of the status that are not random or times, and the members with their directories."""
    server = ("--bootstrap-server", bootstrap_servers, "describe")
    status = run_tool("kafka-metadata-quorum", *server, "--status", check=True).stdout
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    replication = run_tool("kafka-metadata-quorum", *server, "--replication", check=True).stdout.splitlines()
    rows = [[cell.strip() for cell in line.split("\t") if cell.strip()] for line in replication if line.strip()]
    assert [row[-1] for row in rows[1:]].count("Leader") == 1
    members = sorted((row[0], row[1]) for row in rows[1:])
    shape = {
        key: re.sub(r"\d{4,}", "N", value.strip())
        for key, value in fields.items()
        if key in ("CurrentVoters", "CurrentObservers")
    }
    shape["keys"] = " ".join(fields)
    shape["head"] = " ".join(rows[0])
    return shape, members


def test_kafka_metadata_quorum_describes_three_nodes_as_it_describes_apaches() -> None:
    with Cluster(3) as cluster:
        mine = quorum_described(cluster.bootstrap_servers)
    with ApacheKafka(nodes=3) as kafka:
        theirs = quorum_described(kafka.bootstrap_servers)
    assert mine == theirs
