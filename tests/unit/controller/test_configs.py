"""Configurations change key by key or as a whole; each resource has its own result."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.metadata.image import ConfigResource
from pessoa.wire.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from pessoa.wire.api.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from pessoa.wire.api.create_topics import CreateTopicsResponse
from pessoa.wire.api.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.metadata_records import ClearElrRecord, ConfigRecord
from tests.support.admin_script import APPEND, DELETE, SET, SUBTRACT, TOPIC, alter, create, replace, topic
from tests.unit.controller.conftest import Cluster

BROKER, GROUP = ConfigResource.BROKER, ConfigResource.GROUP


@pytest.fixture
def with_topic(cluster: Cluster) -> Cluster:
    cluster.ask(create(topic("t"), topic("u")), CreateTopicsResponse)
    return cluster


def change(cluster: Cluster, request: IncrementalAlterConfigsRequest) -> ErrorCode:
    return ErrorCode.of(cluster.ask(request, IncrementalAlterConfigsResponse).responses[0].error_code)


def settings(cluster: Cluster, kind: int = TOPIC, name: str = "t") -> dict[str, str]:
    return dict(cluster.image.configs.of(kind, name))


def test_config_keys_are_set_and_deleted(with_topic: Cluster) -> None:
    assert change(with_topic, alter(TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))) is ErrorCode.NONE
    assert settings(with_topic) == {"retention.ms": "5", "segment.ms": "6"}
    change(with_topic, alter(TOPIC, "t", ("retention.ms", DELETE, None)))
    assert settings(with_topic) == {"segment.ms": "6"}
    change(with_topic, alter(TOPIC, "t", ("segment.ms", DELETE, None)))
    assert (TOPIC, "t") not in with_topic.image.configs.by_resource


def test_an_unchanged_config_is_not_written_except_for_brokers(with_topic: Cluster) -> None:
    change(with_topic, alter(TOPIC, "t", ("retention.ms", SET, "5")))
    before = len(with_topic.quorum.batches)
    change(with_topic, alter(TOPIC, "t", ("retention.ms", SET, "5")))
    assert len(with_topic.quorum.batches) == before
    for _ in range(2):
        change(with_topic, alter(BROKER, "1", ("log.cleaner.threads", SET, "2")))
    assert len(with_topic.quorum.batches) == before + 2


def test_append_and_subtract_change_list_configs_from_their_defaults(with_topic: Cluster) -> None:
    change(with_topic, alter(TOPIC, "t", ("cleanup.policy", APPEND, "compact")))
    assert settings(with_topic) == {"cleanup.policy": "delete,compact"}
    change(with_topic, alter(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")))
    assert settings(with_topic) == {"cleanup.policy": "compact"}
    assert change(with_topic, alter(TOPIC, "t", ("retention.ms", APPEND, "1"))) is ErrorCode.INVALID_CONFIG


def test_an_invalid_key_refuses_its_resource_and_no_other(with_topic: Cluster) -> None:
    request = alter(TOPIC, "t", ("segment.ms", SET, "6"), ("retention.ms", SET, "soon"))
    request.resources += alter(TOPIC, "u", ("segment.ms", SET, "7")).resources
    responses = with_topic.ask(request, IncrementalAlterConfigsResponse).responses
    assert [ErrorCode.of(one.error_code) for one in responses] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert settings(with_topic) == {}
    assert settings(with_topic, name="u") == {"segment.ms": "7"}


def test_incremental_alter_configs_with_validate_only_writes_no_record(with_topic: Cluster) -> None:
    request = alter(TOPIC, "t", ("segment.ms", SET, "6"))
    request.validate_only = True
    assert change(with_topic, request) is ErrorCode.NONE
    assert settings(with_topic) == {}


def test_a_resource_that_is_named_twice_is_refused_both_times(with_topic: Cluster) -> None:
    request = alter(TOPIC, "t", ("segment.ms", SET, "6"))
    request.resources += alter(TOPIC, "t", ("segment.ms", SET, "7")).resources
    responses = with_topic.ask(request, IncrementalAlterConfigsResponse).responses
    assert [ErrorCode.of(one.error_code) for one in responses] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("name", ["-1", "1.5", "one", "٣", " 1", "9" * 11, "1" * 5_000])
def test_a_broker_is_named_by_its_number(cluster: Cluster, name: str) -> None:
    assert change(cluster, alter(BROKER, name, ("log.cleaner.threads", SET, "2"))) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["n" * 32_767, "\U0001f600" * 8_000])
def test_the_error_message_for_the_longest_resource_name_fits_into_the_response(cluster: Cluster, name: str) -> None:
    answer = cluster.ask(alter(BROKER, name, ("log.cleaner.threads", SET, "2")), IncrementalAlterConfigsResponse)
    assert ErrorCode.of(answer.responses[0].error_code) is ErrorCode.INVALID_REQUEST
    assert IncrementalAlterConfigsResponse.decode(bytearray(answer.encode(0)), 0).responses == answer.responses


def test_alter_configs_deletes_keys_that_are_not_named(with_topic: Cluster) -> None:
    def replaced(request: AlterConfigsRequest) -> ErrorCode:
        return ErrorCode.of(with_topic.ask(request, AlterConfigsResponse).responses[0].error_code)

    assert replaced(replace(TOPIC, "t", retention_ms="5", segment_ms="6")) is ErrorCode.NONE
    assert replaced(replace(TOPIC, "t", segment_ms="7")) is ErrorCode.NONE
    assert settings(with_topic) == {"segment.ms": "7"}
    assert replaced(replace(TOPIC, "t")) is ErrorCode.NONE
    assert settings(with_topic) == {}


def test_changing_min_insync_replicas_clears_the_eligible_leader_replicas(trio: Cluster) -> None:
    trio.ask(create(topic("t", -1, -1, {0: [1, 2]}), topic("u", -1, -1, {0: [1, 2]})), CreateTopicsResponse)
    for name in ("t", "u"):
        change(trio, alter(TOPIC, name, ("min.insync.replicas", SET, "2")))
    assert [type(record) for record in trio.last_batch] == [ConfigRecord, ClearElrRecord]
    trio.heartbeat(2, want_fence=True)
    assert eligible(trio) == {"t": (2,), "u": (2,)}
    change(trio, alter(TOPIC, "t", ("min.insync.replicas", SET, "1")))
    assert eligible(trio) == {"t": (), "u": (2,)}
    change(trio, alter(BROKER, "", ("min.insync.replicas", SET, "1")))
    assert eligible(trio) == {"t": (), "u": ()}, "the cluster's minimum concerns every topic"


def test_changing_min_insync_replicas_keeps_the_elr_of_a_partition_without_isr(with_topic: Cluster) -> None:
    with_topic.heartbeat(1, want_fence=True)
    assert eligible(with_topic) == {"t": (1,), "u": (1,)}
    change(with_topic, alter(TOPIC, "t", ("min.insync.replicas", SET, "2")))
    assert eligible(with_topic) == {"t": (1,), "u": (1,)}
    with_topic.heartbeat(1)
    assert with_topic.image.topics.by_name["t"].partitions[0].leader == 1


def test_the_configs_of_a_broker_or_controller_can_be_changed_once_it_is_registered(cluster: Cluster) -> None:
    request = alter(BROKER, "3000", ("log.cleaner.threads", SET, "2"))
    assert change(cluster, request) is ErrorCode.BROKER_ID_NOT_REGISTERED
    registration = ControllerRegistrationRequest(
        controller_id=3000, incarnation_id=Uuid.of(777), zk_migration_ready=True, listeners=[], features=[]
    )
    cluster.ask(registration, ControllerRegistrationResponse)
    assert not cluster.image.cluster.controllers[3000].zk_migration_ready, "there is no ZooKeeper to leave"
    assert change(cluster, request) is ErrorCode.NONE


def eligible(cluster: Cluster) -> dict[str, tuple[int, ...]]:
    return {name: topic.partitions[0].elr for name, topic in cluster.image.topics.by_name.items()}


def test_configs_of_a_group_that_does_not_exist_can_be_set(cluster: Cluster) -> None:
    assert change(cluster, alter(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))) is ErrorCode.NONE
    assert settings(cluster, GROUP, "g") == {"consumer.session.timeout.ms": "50000"}
    assert change(cluster, alter(GROUP, "", ("consumer.session.timeout.ms", SET, "1"))) is ErrorCode.INVALID_REQUEST
