from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pessoa.testing import Broker
from tests.apache.broker import ApacheKafka
from tests.apache.class_archive import plain_java
from tests.apache.tool_server import ToolServer
from tests.tools.stage import OURS, THEIRS, Cluster


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the files that scripts use as @D (plans and properties, each for both name prefixes); return the folder."""
    folder = tmp_path_factory.mktemp("files")

    def plan(name: str, **content: object) -> None:
        (folder / name).write_text(json.dumps({"version": 1, **content}))

    for prefix in (THEIRS, OURS):
        topic = f"{prefix}-moved"
        plan(f"plan-{prefix}.json", partitions=[{"topic": topic, "partition": 0, "replicas": [1]}])
        plan(f"records-{prefix}.json", partitions=[{"topic": topic, "partition": 0, "offset": -1}])
        plan(f"too-far-{prefix}.json", partitions=[{"topic": topic, "partition": 1, "offset": 99}])
        (folder / f"node-{prefix}.properties").write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
            "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
            f"log.dirs={folder / f'data-{prefix}'}\n"
        )
        # Dynamic quorums; each of these is formatted with another option.
        for name in ("alone", "listed", "joining"):
            (folder / f"{name}-{prefix}.properties").write_text(
                "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
                "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
                f"log.dirs={folder / f'{name}-{prefix}'}\n"
            )
        (folder / f"broker-{prefix}.properties").write_text(
            "process.roles=broker\nnode.id=2\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
            "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://:9092\n"
            f"log.dirs={folder / f'broker-{prefix}'}\n"
        )
    plan("empty.json", partitions=[])
    plan("unknown-broker.json", partitions=[{"topic": "absent", "partition": 0, "replicas": [9]}])
    plan("unknown-topic.json", partitions=[{"topic": "absent", "partition": 0, "replicas": [1]}])
    (folder / "broken.json").write_text('{"partitions":')
    (folder / "empty-object.json").write_text("{}")
    (folder / "impatient.properties").write_text("default.api.timeout.ms=1000\nrequest.timeout.ms=500\n")
    (folder / "patient.properties").write_text("request.timeout.ms=60000\n")
    (folder / "payload.txt").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture(scope="session")
def tools() -> Iterator[ToolServer]:
    with ToolServer() as server:
        yield server


@pytest.fixture(scope="module")
def plain_tools() -> Iterator[ToolServer]:
    with ToolServer(jvm=plain_java()) as server:
        yield server


@pytest.fixture(scope="session")
def apache(files: Path) -> Iterator[Cluster]:
    yield from start_apache(files)


@pytest.fixture(scope="module")
def another_apache(files: Path) -> Iterator[Cluster]:
    yield from start_apache(files)


def start_apache(files: Path) -> Iterator[Cluster]:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        # A fenced broker is not listed; a busy machine must not get a broker fenced.
        "broker.session.timeout.ms": "120000",
    }
    with ApacheKafka(properties=properties) as kafka:
        yield Cluster(kafka.bootstrap_servers, f"127.0.0.1:{kafka.nodes[0].controller_port}", str(files))


@pytest.fixture(scope="session")
def ours(files: Path) -> Iterator[Cluster]:
    yield from start_ours(files)


@pytest.fixture(scope="module")
def another_of_ours(files: Path) -> Iterator[Cluster]:
    yield from start_ours(files)


def start_ours(files: Path) -> Iterator[Cluster]:
    with Broker() as broker:
        yield Cluster(broker.bootstrap_servers, "", str(files))
