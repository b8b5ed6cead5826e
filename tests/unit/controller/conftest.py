"""A controller without a disk: a quorum that commits at once, and a configuration that is a dict."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from random import Random
from typing import TypeVar

import pytest

from pessoa.base.clock import ManualClock
from pessoa.base.config_keys.broker_keys import validate_broker_configs
from pessoa.base.ids import Uuid
from pessoa.broker.api_table import row_of
from pessoa.controller.controller import Controller
from pessoa.metadata.image import ConfigResource, MetadataImage
from pessoa.metadata.loader import MetadataLoader
from pessoa.metadata.supported_features import FEATURES, bootstrap_records
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from pessoa.wire.api.create_topics import CreatableTopicConfigs
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from pessoa.wire.stored.record_framing import decode_metadata_record, encode_metadata_record

Response = TypeVar("Response", bound=Message)

_DEFAULTS = {
    "num.partitions": "1",
    "delegation.token.secret.key": "",
    "delegation.token.max.lifetime.ms": "604800000",
    "delegation.token.expiry.time.ms": "86400000",
    "pessoa.delegation.token.max.per.owner": "10000",
    "delegation.token.expiry.check.interval.ms": "3600000",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "delete.topic.enable": "true",
    "cleanup.policy": "delete",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "300",
    "unclean.leader.election.interval.ms": "300000",
    "controller.quota.window.num": "11",
    "controller.quota.window.size.seconds": "1",
}


class TinyConfig:
    """A configuration with one key of type list and one number; other keys are not validated."""

    def __init__(self) -> None:
        self.values = dict(_DEFAULTS)

    def broker_value(self, name: str) -> str:
        return self.values[name]

    def problem(
        self, resource_type: int, configs: Mapping[str, str], resource_name: str | None = None
    ) -> tuple[ErrorCode, str] | None:
        if resource_type == ConfigResource.BROKER:
            found = validate_broker_configs(configs, is_default=not resource_name)
            return None if found is None else (ErrorCode.INVALID_CONFIG, str(found))
        retention = configs.get("retention.ms", "0")
        if not retention.lstrip("-").isdigit():
            return ErrorCode.INVALID_CONFIG, f"retention.ms is {retention}, not a number"
        return None

    def is_list(self, resource_type: int, name: str) -> bool:
        return name == "cleanup.policy"

    def default(self, resource_type: int, name: str) -> str:
        return self.values[name]

    def topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(name=name, value=value, read_only=False, config_source=1, is_sensitive=False)
            for name, value in overrides.items()
        ]


class InstantQuorum:
    """A quorum that commits every append at once, after encoding and decoding each record."""

    def __init__(self) -> None:
        self.leader_id = 0
        self.epoch = 1
        self.batches: list[list[Message]] = []
        # What was committed with each of them.
        self.images: list[MetadataImage] = []
        self.log_end_offset = 1
        self.loader = MetadataLoader()
        # Why kraft.version cannot be raised.
        self.upgrade_problem: str | None = None

    def append(self, records: Sequence[tuple[Message, int]]) -> asyncio.Future[int]:
        stored = [decode_metadata_record(encode_metadata_record(record, version)) for record, version in records]
        batch = [record for record in stored if record is not None]
        assert len(batch) == len(records)
        self.batches.append(batch)
        self.log_end_offset += len(batch)
        self.loader.load(batch, self.log_end_offset - 1, self.epoch)
        self.images.append(self.loader.image)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_result(self.log_end_offset - 1)
        return future

    def append_kraft_version(self, level: int) -> asyncio.Future[int]:
        self.log_end_offset += 2
        self.loader.set_kraft_version(level)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_result(self.log_end_offset - 1)
        return future

    def kraft_version_problem(self) -> str | None:
        return self.upgrade_problem

    def handle(self, serve: object, request: Message, version: int) -> Message:
        raise AssertionError(f"no test asks this quorum for {request!r}")


class Client:
    version = 7
    client_id = "client"
    client_host = "10.0.0.1"
    principal = "User:ANONYMOUS"
    api_key = -1


class Cluster:
    """A controller, and calls that send it requests and return the responses at once."""

    def __init__(self) -> None:
        self.quorum = InstantQuorum()
        self.config = TinyConfig()
        self.clock = ManualClock(1_000_000)
        ids = count(1 << 100)
        chance = Random(7)
        self.controller = Controller(
            0, "the-cluster", self.quorum, self.config, self.clock, lambda: Uuid.of(next(ids)), chance.randrange, row_of
        )
        self.epochs: dict[int, int] = {}
        asyncio.run(self._activate())

    async def _activate(self) -> None:
        await self.controller.activate(self.quorum.loader, bootstrap_records())

    @property
    def image(self) -> MetadataImage:
        image = self.controller.image
        assert image == self.quorum.loader.image, "the log makes the same image that the controller decides on"
        return image

    @property
    def image_of_log(self) -> MetadataImage:
        """Return the image of the committed records, also while no controller is active."""
        return self.quorum.loader.image

    @property
    def last_batch(self) -> list[Message]:
        return self.quorum.batches[-1]

    def ask(self, request: Message, answer: type[Response], version: int = 7) -> Response:
        client = Client()
        client.version = version

        async def asking() -> Message:
            return await self.controller.decide(request, client)

        response = asyncio.run(asking())
        assert isinstance(response, answer)
        return response

    def tick(self) -> int | None:
        """Tick the controller at the present time, and return its next deadline."""

        async def ticking() -> int | None:
            return self.controller.tick(self.clock.monotonic_ms())

        return asyncio.run(ticking())

    def registration(self, broker_id: int, incarnation: int = 1, **changes: object) -> BrokerRegistrationRequest:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id="the-cluster",
            incarnation_id=Uuid.of(1000 * broker_id + incarnation),
            listeners=[Listener(name="PLAINTEXT", host="localhost", port=9000 + broker_id, security_protocol=0)],
            features=[
                Feature(name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level)
                for one in FEATURES
            ],
            rack=None,
            log_dirs=[Uuid.of(5000 + broker_id)],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def register(self, broker_id: int, incarnation: int = 1, **changes: object) -> BrokerRegistrationResponse:
        response = self.ask(self.registration(broker_id, incarnation, **changes), BrokerRegistrationResponse)
        if response.error_code == ErrorCode.NONE:
            self.epochs[broker_id] = response.broker_epoch
        return response

    def heartbeat(self, broker_id: int, **changes: object) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=self.quorum.log_end_offset - 1,
            want_fence=False,
            want_shut_down=False,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.ask(request, BrokerHeartbeatResponse)

    def start_broker(self, broker_id: int, incarnation: int = 1, **changes: object) -> None:
        assert self.register(broker_id, incarnation, **changes).error_code == ErrorCode.NONE
        assert not self.heartbeat(broker_id).is_fenced


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster with one unfenced broker."""
    cluster = Cluster()
    cluster.start_broker(1)
    return cluster


@pytest.fixture
def trio() -> Cluster:
    """Return a cluster with three unfenced brokers."""
    cluster = Cluster()
    for broker_id in (1, 2, 3):
        cluster.start_broker(broker_id)
    return cluster
