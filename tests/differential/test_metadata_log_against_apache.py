"""The controller and its metadata log, compared with Apache Kafka's.

    one script → both           a session of admin requests gets the same answers and leaves the same records
    ours → Apache's tool        kafka-dump-log --cluster-metadata-decoder reads our log, every record of it
    ours → Apache's broker      Apache starts on a directory that we formatted and wrote, and describes the same cluster
    Apache's → ours             we start on a directory that Apache wrote, and have the same image

Apache writes a NoOp record after every idle half second; these are left out, and offsets are compared by what they
refer to. Random ids, ports and times are replaced by numbers in the order in which they first appear.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from pessoa.base.clock import SystemClock
from pessoa.base.entropy import SystemEntropy, below, new_uuid
from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.broker.api_table import row_of
from pessoa.broker.config import BrokerConfig, load
from pessoa.broker.config_rules import ConfigRules
from pessoa.controller.controller import Controller
from pessoa.controller.quotas import describe_client_quotas
from pessoa.controller.scram_decisions import describe_user_scram_credentials
from pessoa.log.os_disk import OsDisk
from pessoa.metadata.image import ConfigResource, MetadataImage
from pessoa.metadata.supported_features import FEATURES
from pessoa.quorum.describe import describe_quorum
from pessoa.quorum.formatting import format_metadata, read_bootstrap
from pessoa.quorum.metadata_log import METADATA_DIRECTORY
from pessoa.quorum.publishing import ImagePublisher
from pessoa.quorum.quorum_settings import QuorumNode
from pessoa.quorum.raft_quorum import RaftQuorum
from pessoa.raft.voters import VoterSet
from pessoa.records.batch import whole_batches
from pessoa.records.record import records
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from pessoa.wire.api.controller_registration import ControllerRegistrationRequest
from pessoa.wire.api.controller_registration import Feature as ControllerFeature
from pessoa.wire.api.controller_registration import Listener as ControllerListener
from pessoa.wire.api.describe_client_quotas import DescribeClientQuotasRequest
from pessoa.wire.api.describe_quorum import DescribeQuorumRequest
from pessoa.wire.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from pessoa.wire.primitives import read_uvarint
from pessoa.wire.request_context import OwnRequest, RequestContext
from pessoa.wire.schema import Message, Struct
from pessoa.wire.stored.metadata_records import BrokerRegistrationChangeRecord, NoOpRecord, RegisterControllerRecord
from pessoa.wire.stored.record_framing import decode_metadata_record
from tests.apache.broker import ApacheKafka, run_tool
from tests.support.admin_script import Step, ask, comparable, script

pytestmark = pytest.mark.apache

NODE_ID = 1
PATIENCE_S = 120.0
# The user whose credential the script changes last.
LAST_USER = "eve"
LOG_FILE = f"{METADATA_DIRECTORY}/00000000000000000000.log"


class Session(NamedTuple):
    """The result of the script on one side."""

    data: Path
    answers: dict[str, Any]
    image: MetadataImage


# ---- Our side ----


class OurNode:
    """A controller with its quorum in a directory, and a broker that only registers."""

    def __init__(self, data: Path, cluster_id: str | None = None) -> None:
        clock, entropy = SystemClock(), SystemEntropy()
        disk, directory = OsDisk(), str(data)
        self.new_uuid = partial(new_uuid, entropy)
        owner = format_metadata(disk, [directory], directory, NODE_ID, self.new_uuid, clock.now_ms(), cluster_id)
        self.meta = owner[directory]
        config: BrokerConfig = load(None, {"node.id": str(NODE_ID), "log.dirs": directory}, data)
        self.publisher = ImagePublisher()
        self.quorum = _quorum(directory, self.meta.cluster_id)
        self.quorum.listeners.append(self.publisher.listen)
        self.bootstrap = read_bootstrap(disk, directory)
        self.controller = Controller(
            NODE_ID,
            self.meta.cluster_id,
            self.quorum,
            ConfigRules(config),
            clock,
            self.new_uuid,
            partial(below, entropy),
            row_of,
        )
        self.broker_epoch = -1

    async def start(self, previous_broker_epoch: int = -1) -> None:
        await self.quorum.start()
        await self.controller.activate(self.publisher.loader, self.bootstrap)
        self.publisher.go_live()
        await self._register_controller()
        await self._register_broker(previous_broker_epoch)

    async def ask(self, request: Message, version: int) -> Message:
        """Return the response as a client gets it in this version."""
        row = row_of(request.api_key)
        response = self._described(request)
        if "Delegation" in type(request).__name__:
            # The broker refuses this API on a PLAINTEXT listener.
            assert row.handle is not None
            broker: Any = SimpleNamespace(config=SimpleNamespace(protocols={}, value=lambda _: None))
            refused = row.handle(broker, RequestContext(request.api_key, version, 1, None, "", 1), request)
            assert isinstance(refused, Message)
            response = refused
        if response is None:
            response = await self.controller.decide(request, OwnRequest(version))
        return type(response).decode(response.encode(version), version)

    def _described(self, request: Message) -> Message | None:
        """Return the response if a broker answers this request without the controller."""
        image = self.publisher.image
        match request:
            case DescribeClientQuotasRequest():
                return describe_client_quotas(image, request)
            case DescribeUserScramCredentialsRequest():
                return describe_user_scram_credentials(image, request)
            case DescribeQuorumRequest():
                return describe_quorum(self.quorum, request, 2)
        return None

    async def _register_controller(self) -> None:
        request = ControllerRegistrationRequest(
            controller_id=NODE_ID,
            incarnation_id=self.new_uuid(),
            zk_migration_ready=False,
            listeners=[ControllerListener(name="CONTROLLER", host="127.0.0.1", port=1, security_protocol=0)],
            features=[
                ControllerFeature(
                    name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level
                )
                for one in FEATURES
            ],
        )
        await self.ask(request, 0)

    async def _register_broker(self, previous_broker_epoch: int) -> None:
        assert self.meta.directory_id is not None
        request = BrokerRegistrationRequest(
            broker_id=NODE_ID,
            cluster_id=self.meta.cluster_id,
            incarnation_id=self.new_uuid(),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=2, security_protocol=0)],
            features=[
                Feature(name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level)
                for one in FEATURES
            ],
            rack=None,
            log_dirs=[self.meta.directory_id],
            previous_broker_epoch=previous_broker_epoch,
        )
        response = await self.ask(request, 4)
        assert isinstance(response, BrokerRegistrationResponse)
        assert response.error_code == 0
        self.broker_epoch = response.broker_epoch
        # Apache's broker first reports its cordoned directories, and then asks to be unfenced.
        await self.heartbeat(want_fence=True, cordoned_log_dirs=[])
        await self.heartbeat()

    async def heartbeat(self, **changes: object) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=NODE_ID,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.publisher.image.offset,
            want_fence=False,
            want_shut_down=False,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        response = await self.ask(request, 2)
        assert isinstance(response, BrokerHeartbeatResponse)
        assert response.error_code == 0
        return response

    async def stop(self) -> None:
        while not (await self.heartbeat(want_shut_down=True)).should_shut_down:
            pass
        await self.quorum.close()


async def _our_session(data: Path) -> Session:
    node = OurNode(data)
    await node.start()
    answers = {step.title: comparable(await node.ask(step.request, step.version)) for step in script()}
    await node.stop()
    again = OurNode(data)
    await again.start(node.broker_epoch)
    await again.stop()
    return Session(data, answers, again.publisher.image)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return asyncio.run(_our_session(tmp_path_factory.mktemp("ours") / "data"))


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Session:
    data = tmp_path_factory.mktemp("apache") / "data"
    # A session that times out on a busy machine would add records to the log.
    with ApacheKafka(data=[data], broker_session_timeout_ms=120_000) as kafka:
        changing, describing = _parts(script())
        answers = {step.title: comparable(ask(kafka.port, step)) for step in changing}
        _wait_for_the_last_change(kafka.port)
        answers |= {step.title: comparable(ask(kafka.port, step)) for step in describing}
        kafka.stop()
        kafka.start()
    return Session(data, answers, _image_of(data))


def _parts(steps: list[Step]) -> tuple[list[Step], list[Step]]:
    """Return the steps that change the cluster, and the rest from the first Describe request on."""
    first = next(place for place, step in enumerate(steps) if step.title.startswith("Describe"))
    return steps[:first], steps[first:]


def _wait_for_the_last_change(port: int) -> None:
    """Wait until Apache's broker has the last change: it answers Describe requests, and learns of changes later."""
    step = Step("", DescribeUserScramCredentialsRequest(users=None), 0)
    deadline = time.monotonic() + PATIENCE_S
    while LAST_USER not in repr(answer := ask(port, step)):
        assert time.monotonic() < deadline, answer


def _image_of(data: Path) -> MetadataImage:
    """Return the image of a metadata log without writing to it."""
    publisher = ImagePublisher()
    copy = data.with_name(f"{data.name}-copy")
    shutil.copytree(data, copy, dirs_exist_ok=True)
    quorum = _quorum(str(copy), "whichever")
    quorum.listeners.append(publisher.listen)
    quorum.on_snapshot.append(publisher.load_snapshot)

    async def read() -> None:
        await quorum.start()
        await quorum.close()

    asyncio.run(read())
    publisher.go_live()
    return publisher.image


def _quorum(directory: str, cluster_id: str) -> RaftQuorum:
    voters, clock, entropy = VoterSet.of(NODE_ID), SystemClock(), SystemEntropy()
    return RaftQuorum(OsDisk(), directory, QuorumNode(NODE_ID, cluster_id, ZERO_UUID), voters, clock, entropy)


# ---- Answers ----

# Steps that we answer differently on purpose.
DIFFERENT = {
    "IncrementalAlterConfigs: an unknown operation": "INVALID_REQUEST says whose mistake it is; Apache has -1",
    "IncrementalAlterConfigs: another broker": "Apache's broker refuses it before the controller sees it",
}


@pytest.mark.parametrize("step", script(), ids=lambda step: step.title)
def test_an_admin_request_is_answered_as_by_apache(step: Step, ours: Session, apache: Session) -> None:
    assert (ours.answers[step.title] == apache.answers[step.title]) is (step.title not in DIFFERENT)


# ---- Records ----


def _written(data: Path) -> Iterator[tuple[str, int, Message]]:
    """Yield every metadata record: its kind, the version in which it is written, and the record."""
    for batch in whole_batches((data / LOG_FILE).read_bytes()):
        if batch.is_control:
            continue
        for record in records(batch):
            assert record.value is not None
            _, position = read_uvarint(record.value, 0)
            _, position = read_uvarint(record.value, position)
            version, _ = read_uvarint(record.value, position)
            message = decode_metadata_record(record.value)
            assert message is not None
            if not isinstance(message, NoOpRecord):
                yield type(message).__name__, version, message


def _alike() -> Callable[[Any, str], Any]:
    """Return a function that replaces ids, epochs and ports by numbers in the order in which they appear."""
    seen: dict[object, int] = {}

    def alike(value: Any, name: str = "") -> Any:
        if isinstance(value, Struct):
            return {field.name: alike(getattr(value, field.name), field.name) for field in value.fields}
        if isinstance(value, list):
            items = [alike(item, name) for item in value]
            return sorted(items, key=repr) if name == "features" else items
        if (isinstance(value, Uuid) and value != ZERO_UUID) or name in ("broker_epoch", "epoch"):
            return f"#{seen.setdefault(value, len(seen))}"
        return "port" if name == "port" else value

    return alike


def _has_no_fixed_place(message: Message) -> bool:
    """Return whether the record's place varies. Apache's broker and controller register at the same time, and cordoned
    directories come with any heartbeat."""
    if isinstance(message, RegisterControllerRecord):
        return True
    return isinstance(message, BrokerRegistrationChangeRecord) and message.cordoned_log_dirs is not None


def _in_order(data: Path, *, fixed: bool) -> list[tuple[str, int, Any]]:
    """Return the records with, or without, a fixed place; neighbours of one kind are sorted (hash maps in Apache)."""
    alike = _alike()
    written = [
        (kind, version, alike(message, ""))
        for kind, version, message in _written(data)
        if _has_no_fixed_place(message) is not fixed
    ]
    grouped = groupby(written, key=lambda one: one[0])
    return [record for _, group in grouped for record in sorted(group, key=repr)]


def test_the_same_admin_session_leaves_the_same_metadata_records(ours: Session, apache: Session) -> None:
    assert _in_order(ours.data, fixed=True) == _in_order(apache.data, fixed=True)


def test_records_without_a_fixed_place_are_of_the_same_kinds_and_versions_as_apaches(
    ours: Session, apache: Session
) -> None:
    def kinds(session: Session) -> list[tuple[str, int]]:
        return sorted((kind, version) for kind, version, _ in _in_order(session.data, fixed=False))

    assert kinds(ours) == kinds(apache)
    assert len(kinds(ours)) == 4, "two for each start"


# ---- Both ways ----


def test_apaches_dump_tool_reads_every_record_of_our_metadata_log(ours: Session) -> None:
    path = ours.data / LOG_FILE
    dump = run_tool("kafka-dump-log", "--cluster-metadata-decoder", "--files", path, check=True)
    payloads = [line.partition("payload: ")[2] for line in dump.stdout.splitlines() if "payload: " in line]
    assert "Could not decode" not in dump.stdout
    assert [json.loads(payload)["version"] for payload in payloads] == [
        version for _, version, _ in _written(ours.data)
    ]


def test_apaches_dump_tool_reads_our_bootstrap_checkpoint(ours: Session, apache: Session) -> None:
    def lines(session: Session) -> list[Any]:
        path = session.data / "bootstrap.checkpoint"
        dump = run_tool("kafka-dump-log", "--cluster-metadata-decoder", "--files", path, check=True)
        return [line.partition("headerKeys")[2] for line in dump.stdout.splitlines() if line.startswith("|")]

    assert lines(ours) == lines(apache)
    assert len(lines(ours)) == 8


def test_apache_starts_on_our_metadata_log_and_describes_the_same_cluster(ours: Session, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(ours.data, data)
    with ApacheKafka(data=[data]) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        listed = kafka.run_tool("kafka-topics", *server, "--list").stdout.split()
        described = kafka.run_tool("kafka-configs", *server, "--describe", "--entity-type", "topics").stdout
        features = kafka.run_tool("kafka-features", *server, "describe").stdout
    assert sorted(listed) == sorted(ours.image.topics.by_name)
    assert "retention.ms=5000" in described
    assert features.count("FinalizedVersionLevel: 1") == 4


def test_our_image_of_apaches_metadata_log_equals_that_of_ours(ours: Session, apache: Session) -> None:
    image = apache.image
    assert sorted(image.topics.by_name) == sorted(ours.image.topics.by_name)
    assert dict(image.configs.by_resource) == dict(ours.image.configs.by_resource)
    assert image.configs.of(ConfigResource.TOPIC, "a")["retention.ms"] == "5000"
    assert dict(image.quotas.by_entity) == dict(ours.image.quotas.by_entity)
    assert dict(image.scram.credentials) == dict(ours.image.scram.credentials)
    assert image.features == ours.image.features
    assert image.features.metadata_version == 30
    partition = image.topics.by_name["a"].partitions[0]
    assert (partition.replicas, partition.leader_epoch) == (
        (1,),
        ours.image.topics.by_name["a"].partitions[0].leader_epoch,
    )
