"""Configurations of Apache Kafka and of ours: the same keys with the same values and flags, the same values refused.

One Apache broker is started with a `server.properties` that sets keys of all kinds, and we read the same file. Then
both answer DescribeConfigs for every kind of resource, before and after the same changes. Each entry is compared whole,
except for its documentation, which is in our own words.

Afterwards hundreds of values, valid and invalid, are sent to Apache one at a time with validate_only; our tables must
agree with each of its results, including the error code.

Intended differences are in the tables at the head, with a reason; an entry that is no longer true fails the test.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import pytest

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS
from pessoa.base.config_keys.client_metrics_keys import CLIENT_METRICS_CONFIGS
from pessoa.base.config_keys.group_keys import GROUP_CONFIGS
from pessoa.base.config_table import ConfigTable
from pessoa.base.config_values import ConfigType, render
from pessoa.base.ids import Uuid
from pessoa.broker.apis.describe_configs import handle
from pessoa.broker.config import BrokerConfig, load
from pessoa.broker.config_rules import ConfigRules
from pessoa.broker.protection import unenforced_change
from pessoa.log.topic_config import TOPIC_CONFIGS
from pessoa.metadata.image import ConfigResource, MetadataImage
from pessoa.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pessoa.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.request_context import RequestContext
from pessoa.wire.schema import Message
from pessoa.wire.stored.metadata_records import ConfigRecord, TopicRecord
from tests.apache.broker import HOST, ApacheKafka
from tests.support.frame_reader import FrameReader

pytestmark = pytest.mark.apache

TOPIC, BROKER, GROUP = ConfigResource.TOPIC, ConfigResource.BROKER, ConfigResource.GROUP
CLIENT_METRICS = ConfigResource.CLIENT_METRICS
PATIENCE_S = 120.0

# Broker keys with another default in our broker → reason.
OTHER_DEFAULTS = {
    "replica.lag.time.max.ms": "the notes that specify the platform ask for 10 s",
    "socket.send.buffer.bytes": "one event loop: the system sizes the buffers as it goes",
    "socket.receive.buffer.bytes": "the same",
    "socket.listen.backlog.size": "one event loop accepts for all listeners",
}

# Broker keys that are described differently after CHANGES → reason.
OTHER_FACTS = {"log.retention.hours": "Apache forgets what its file says once a finer unit is set at run time"}

# Settings that only one side refuses → reason.
OTHER_VERDICTS = {
    (TOPIC, "min.cleanable.dirty.ratio", "NaN"): "Apache's range lets it through, and such a topic is never compacted",
    (BROKER, "max.connection.creation.rate", "0"): "Apache allows it in a file only; no connections are no connections",
    (BROKER, "num.io.threads", "17"): "Apache lets a pool of threads only double at a time, and we have no such pool",
}

STATIC = {
    "log.retention.hours": "24",
    "log.roll.hours": "10",
    "my.own.key": "v",
    "compression.type": " gzip ",
    "log.cleanup.policy": "compact , delete",
    "group.consumer.session.timeout.ms": "50000",
    "log.preallocate": "TRUE",
    "log.cleaner.min.cleanable.ratio": "1e-1",
    "ssl.key.password": "abc",
    "listener.name.plaintext.max.connections": "77",
    "auto.create.topics.enable": "False",
    "log.flush.interval.ms": "1000",
    "background.threads": "+7",
}

# (resource type, name, key, value): made on both sides before the second comparison.
CHANGES = [
    (BROKER, "", "log.retention.ms", "5000"),
    (BROKER, "", "message.max.bytes", "2000000"),
    (BROKER, "", "leader.replication.throttled.rate", "1000"),
    (BROKER, "", "other.key", "secret"),
    (BROKER, "1", "log.retention.ms", "6000"),
    (BROKER, "1", "log.cleaner.threads", "2"),
    (BROKER, "1", "max.connections.per.ip", "1000"),
    (BROKER, "1", "listener.name.plaintext.ssl.keystore.password", "secret"),
    (TOPIC, "t", "retention.ms", " +7 "),
    (TOPIC, "t", "cleanup.policy", " delete "),
    (TOPIC, "t", "preallocate", "False"),
    (TOPIC, "t", "min.cleanable.dirty.ratio", "0.5f"),
    (TOPIC, "t", "internal.segment.bytes", "5000"),
    (TOPIC, "t", "leader.replication.throttled.replicas", "*"),
    (GROUP, "g", "consumer.session.timeout.ms", "46000"),
    (GROUP, "g", "share.auto.offset.reset", "by_duration:PT1H"),
    (CLIENT_METRICS, "s", "interval.ms", "100"),
    (CLIENT_METRICS, "s", "match", "client_id=a"),
]

RESOURCES = [(TOPIC, "t"), (BROKER, "1"), (BROKER, ""), (GROUP, "g"), (CLIENT_METRICS, "s")]

WRONG_RESOURCES = [
    (TOPIC, "nope"),
    (TOPIC, ""),
    (TOPIC, "bad name!"),
    (BROKER, "2"),
    (BROKER, "x"),
    (ConfigResource.BROKER_LOGGER, "2"),
    (ConfigResource.BROKER_LOGGER, ""),
    (CLIENT_METRICS, ""),
    (GROUP, ""),
    (3, "t"),
]

# Besides these, every key is tried with values just inside and just outside of the limits in its table.
VERDICTS = [
    (TOPIC, "nope", "1"),
    (TOPIC, "remote.storage.enable", "true"),
    (TOPIC, "cleanup.policy", "compact,compact"),
    (TOPIC, "cleanup.policy", "foo"),
    (TOPIC, "max.message.bytes", "99999999999"),
    (TOPIC, "min.cleanable.dirty.ratio", "NaN"),
    (TOPIC, "min.cleanable.dirty.ratio", "2"),
    (TOPIC, "leader.replication.throttled.replicas", "1:2,2:3"),
    (TOPIC, "leader.replication.throttled.replicas", "abc"),
    (BROKER, "num.io.threads", "17"),
    (BROKER, "nope", "1"),
    (BROKER, "listeners", "x"),
    (BROKER, "listeners", ""),
    (BROKER, "listener.security.protocol.map", "x"),
    (GROUP, "nope", "1"),
    (GROUP, "consumer.session.timeout.ms", "60000"),
    (GROUP, "consumer.session.timeout.ms", "60001"),
    (GROUP, "consumer.heartbeat.interval.ms", "999999"),
    (GROUP, "consumer.assignment.interval.ms", "20000"),
    (GROUP, "share.delivery.count.limit", "99"),
    (GROUP, "share.record.lock.duration.ms", "999999999"),
    (GROUP, "streams.num.standby.replicas", "99"),
    (GROUP, "share.auto.offset.reset", "by_duration:x"),
    (GROUP, "share.isolation.level", "read_committed"),
    (CLIENT_METRICS, "nope", "1"),
    (CLIENT_METRICS, "interval.ms", "99"),
    (CLIENT_METRICS, "interval.ms", "3600001"),
    (CLIENT_METRICS, "match", "client_id=["),
    (CLIENT_METRICS, "match", "colour=red"),
    (CLIENT_METRICS, "metrics", "*"),
]

Answer = TypeVar("Answer", bound=Message)


class Fact(NamedTuple):
    """An entry of DescribeConfigs without its documentation."""

    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    type: int
    synonyms: tuple[tuple[str, str | None, int], ...]


class Apache:
    """An Apache broker, queried with our own messages; keeps the changes that were made."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self.kafka = kafka
        self.changes: list[tuple[int, str, str, str]] = []

    def ask(self, request: Message, version: int, kind: type[Answer]) -> Answer:
        with socket.create_connection((HOST, self.kafka.port), timeout=PATIENCE_S) as connection:
            connection.sendall(b"".join(request_frame(request, version, 1, "differential")))
            reader = FrameReader()
            while (frame := reader.next_frame()) is None:
                data = connection.recv(1 << 20)
                assert data, "Apache closed the connection"
                reader.feed(data)
        header_version = response_header_version(type(request), version)
        header_bytes = len(ResponseHeader(correlation_id=1).encode(header_version))
        return kind.decode(bytes(frame[header_bytes:]), version)

    def alter(self, resource_type: int, resource: str, name: str, value: str, *, validate_only: bool) -> ErrorCode:
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=resource,
                    configs=[AlterableConfig(name=name, config_operation=0, value=value)],
                )
            ],
            validate_only=validate_only,
        )
        [response] = self.ask(request, 1, IncrementalAlterConfigsResponse).responses
        return ErrorCode.of(response.error_code)

    def described(self, resource_type: int, resource: str) -> DescribeConfigsResult:
        [result] = self.ask(describe_request([(resource_type, resource)]), 4, DescribeConfigsResponse).results
        return result


@pytest.fixture(scope="module")
def apache() -> Iterator[Apache]:
    with ApacheKafka(properties=STATIC) as kafka:
        apache = Apache(kafka)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        created = apache.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.NONE
        # The controller answers before its broker knows the topic.
        wait_until(apache, lambda: apache.described(TOPIC, "t").error_code == ErrorCode.NONE, "Apache knows the topic")
        yield apache


def our_config(apache: Apache) -> BrokerConfig:
    return load(apache.kafka.nodes[0].properties_path.read_text(encoding="utf-8"), {}, Path("/unused"))


def our_image(apache: Apache) -> MetadataImage:
    """Return a metadata image with the configurations that Apache's metadata log should have."""
    # With eligible leader replicas Apache writes this record when a cluster is formatted.
    settings = [(int(BROKER), "", "min.insync.replicas", "1"), *apache.changes]
    records: list[Message] = [TopicRecord(name="t", topic_id=Uuid(bytes(range(16))))]
    records += [
        ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        for kind, resource, name, value in settings
    ]
    return MetadataImage.EMPTY.apply(records, offset=len(records) - 1, epoch=1)


def describe_request(resources: list[tuple[int, str]]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in resources
        ],
        include_synonyms=True,
        include_documentation=True,
    )


def our_answer(apache: Apache, resources: list[tuple[int, str]]) -> DescribeConfigsResponse:
    image = our_image(apache)
    config = our_config(apache).with_overrides(image.configs.of(BROKER, ""), image.configs.of(BROKER, "1"))
    services: Any = SimpleNamespace(node_id=1, config=config, image=image, authorizer=None)
    response = handle(services, RequestContext(32, 4, 1, None, HOST, 1), describe_request(resources))
    assert isinstance(response, DescribeConfigsResponse)
    return response


def facts(response: DescribeConfigsResponse) -> dict[tuple[int, str, str], Fact]:
    return {
        (result.resource_type, result.resource_name, entry.name): Fact(
            entry.value,
            entry.config_source,
            entry.read_only,
            entry.is_sensitive,
            entry.config_type,
            tuple((one.name, one.value, one.source) for one in entry.synonyms),
        )
        for result in response.results
        for entry in result.configs
    }


def differences(apache: Apache, expected: Collection[str]) -> tuple[list[str], int]:
    theirs = facts(apache.ask(describe_request([*RESOURCES]), 4, DescribeConfigsResponse))
    ours = facts(our_answer(apache, [*RESOURCES]))
    assert set(theirs) == set(ours)
    assert {name for _, _, name in theirs} >= set(expected)
    found = []
    for key, fact in theirs.items():
        if key[2] in expected:
            assert fact != ours[key], f"{key} does not differ any more"
        elif fact != ours[key]:
            found.append(f"{key}\n    Apache {fact}\n    we     {ours[key]}")
    return found, len(theirs)


def wait_until(apache: Apache, is_so: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds, without sleeping: checking it takes long enough."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:.0f} s"


def wait_until_the_changes_are_seen(apache: Apache) -> None:
    """Wait until Apache's broker has applied all changes. It shows a change before it has applied every part of it, so
    make a later change and wait for that."""
    for value in ("1000", "2000"):
        barrier = (int(CLIENT_METRICS), "barrier", "interval.ms", value)
        assert apache.alter(*barrier, validate_only=False) == ErrorCode.NONE
        apache.changes.append(barrier)

        def is_seen(wanted: str = value) -> bool:
            configs = apache.described(CLIENT_METRICS, "barrier").configs
            return any(one.name == "interval.ms" and one.value == wanted for one in configs)

        wait_until(apache, is_seen, "Apache shows the last change")


def test_described_configurations_equal_apaches_before_and_after_the_same_changes(
    apache: Apache, request: pytest.FixtureRequest
) -> None:
    before, count = differences(apache, OTHER_DEFAULTS)
    assert not before, "\n".join(before)
    for kind, resource, name, value in CHANGES:
        error = apache.alter(kind, resource, name, value, validate_only=False)
        assert error == ErrorCode.NONE, f"Apache does not set {name}={value}"
        apache.changes.append((kind, resource, name, value))
    wait_until_the_changes_are_seen(apache)
    after, count_after = differences(apache, {*OTHER_DEFAULTS, *OTHER_FACTS})
    assert not after, "\n".join(after)
    request.node.user_properties.append(
        ("compared", f"{count + count_after} entries of DescribeConfigs with Apache Kafka, key by key")
    )


def test_describe_configs_refuses_invalid_resources_with_apaches_error_codes(apache: Apache) -> None:
    for resource in WRONG_RESOURCES:
        theirs = apache.ask(describe_request([resource]), 4, DescribeConfigsResponse).results
        ours = our_answer(apache, [resource]).results
        assert ours[0].error_code != ErrorCode.NONE
        assert [result.error_code for result in ours] == [result.error_code for result in theirs], resource


def test_the_defaults_of_broker_configs_equal_apaches(apache: Apache) -> None:
    """Defaults are compared by their synonyms, because static settings of the file hide some values."""
    theirs = facts(apache.ask(describe_request([(BROKER, "1")]), 4, DescribeConfigsResponse))
    defaults = {name: value for fact in theirs.values() for name, value, source in fact.synonyms if source == 5}
    assert len(defaults) > 250
    for name, value in defaults.items():
        if name not in OTHER_DEFAULTS and not BROKER_CONFIGS[name].is_sensitive:
            assert render(BROKER_CONFIGS[name].default) == value, name


def test_create_topics_returns_the_same_topic_configs_as_apache(apache: Apache) -> None:
    config = CreatableTopicConfig(name="flush.ms", value="5")
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[config])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True)
    [created] = apache.ask(request, 7, CreateTopicsResponse).topics
    ours = ConfigRules(our_config(apache)).topic_configs(our_image(apache), {"flush.ms": "5"})
    assert created.configs
    assert shown(ours) == shown(created.configs)


def shown(configs: Sequence[CreatableTopicConfigs]) -> dict[str, tuple[str | None, bool, int, bool]]:
    """Return the configs without blanks and capitals of the file, which Apache keeps in this response only."""
    return {
        one.name: (
            render(TOPIC_CONFIGS.parse(one.name, one.value or "")),
            one.read_only,
            one.config_source,
            one.is_sensitive,
        )
        for one in configs
    }


def probes(kind: ConfigResource, table: ConfigTable) -> Iterator[tuple[ConfigResource, str, str]]:
    """Yield for each key a text of another type, and the numbers around the limits of its rule."""
    for one in table:
        if one.type in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE):
            yield kind, one.name, "abc"
            for number in (-3, -2, -1, 0, 1, 2, 3, 4, 9, 10, 17, 18, 22, 23, 1023, 1024, 1 << 20, (1 << 20) - 1):
                yield kind, one.name, str(number)
        elif one.type is ConfigType.BOOLEAN:
            yield from ((kind, one.name, text) for text in ("abc", "", " True "))
        elif one.type is ConfigType.STRING:
            yield from ((kind, one.name, text) for text in ("abc", ""))


def is_judged_alone(name: str) -> bool:
    """Return whether the result depends on the value only: thread pools have limits of their own, min.insync.replicas
    depends on eligible leader replicas, our broker refuses settings that would protect it (`protection`), and Apache
    Kafka takes our own keys for those of a plug-in."""
    if unenforced_change({name: "abc"}) is not None or name.startswith("pessoa."):
        return False
    return name != "min.insync.replicas" and not name.endswith(
        (".threads", ".fetchers", "threads.per.data.dir", "pool.size", ".dedupe.buffer.size")
    )


def test_alter_configs_gives_the_same_error_code_for_each_value_as_apache(
    apache: Apache, request: pytest.FixtureRequest
) -> None:
    candidates = dict.fromkeys(
        [
            *VERDICTS,
            *probes(TOPIC, TOPIC_CONFIGS),
            *probes(GROUP, GROUP_CONFIGS),
            *probes(CLIENT_METRICS, CLIENT_METRICS_CONFIGS),
            *(probe for probe in probes(BROKER, BROKER_CONFIGS) if is_judged_alone(probe[1])),
        ]
    )
    rules = ConfigRules(our_config(apache))
    resources = {TOPIC: "t", BROKER: "1", GROUP: "other", CLIENT_METRICS: "other"}
    present = our_image(apache).configs
    found = []
    for kind, name, value in candidates:
        theirs = apache.alter(kind, resources[kind], name, value, validate_only=True)
        problem = rules.problem(kind, {**present.of(kind, resources[kind]), name: value})
        ours = ErrorCode.NONE if problem is None else problem[0]
        if (kind, name, value) in OTHER_VERDICTS:
            assert ours != theirs, f"{name}={value} does not differ any more"
        elif ours != theirs:
            found.append(f"{kind.name} {name}={value!r}: Apache {theirs.name}, we {problem or 'NONE'}")
    assert not found, f"{len(found)} of {len(candidates)}:\n" + "\n".join(found)
    request.node.user_properties.append(("compared", f"{len(candidates)} settings with Apache Kafka's verdicts"))
