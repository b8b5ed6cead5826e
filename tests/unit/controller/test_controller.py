"""The controller's shell: records are committed before the response is sent. And decisions without a file of their
own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.base.ids import Uuid
from pessoa.broker.api_table import controller_rows, row_of
from pessoa.controller.feature_decisions import update_features
from pessoa.metadata.image import ConfigResource, MetadataImage
from pessoa.metadata.loader import MetadataLoader
from pessoa.metadata.supported_features import bootstrap_records
from pessoa.metadata.table_images import FeaturesImage
from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pessoa.wire.api.alter_partition import AlterPartitionRequest
from pessoa.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from pessoa.wire.api.broker_registration import BrokerRegistrationRequest
from pessoa.wire.api.controller_registration import ControllerRegistrationRequest
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest
from pessoa.wire.api.create_topics import CreateTopicsResponse
from pessoa.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pessoa.wire.api.elect_leaders import ElectLeadersRequest
from pessoa.wire.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from pessoa.wire.errors import ErrorCode, Refusal, UnsupportedFieldError
from pessoa.wire.schema import Message, Struct
from pessoa.wire.stored.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    TopicRecord,
)
from tests.support.admin_script import create, feature, script, topic
from tests.support.api_rows import is_decided_by_controller
from tests.unit.controller.conftest import Client, Cluster, TinyConfig

# What a controller decides about.
DECIDED = [row for row in controller_rows() if is_decided_by_controller(row)]


def test_the_first_controller_of_a_cluster_writes_its_features_in_one_transaction() -> None:
    cluster = Cluster()
    (first,) = cluster.quorum.batches
    assert isinstance(first[0], BeginTransactionRecord)
    assert isinstance(first[-1], EndTransactionRecord)
    assert cluster.image.features.metadata_version == 30
    assert cluster.image.configs.of(ConfigResource.BROKER, "") == {"min.insync.replicas": "1"}


def test_a_controller_that_is_activated_again_does_not_write_the_bootstrap_records_again() -> None:
    cluster = Cluster()
    asyncio.run(cluster._activate())
    assert len(cluster.quorum.batches) == 1


def test_a_controller_continues_from_a_log_that_was_replayed_without_making_images(cluster: Cluster) -> None:
    before = cluster.image
    loader = MetadataLoader()
    offset = 0
    for batch in cluster.quorum.batches:
        offset += len(batch)
        loader.load(batch, offset, 1, defer=True)

    async def taking_over() -> None:
        await cluster.controller.activate(loader, bootstrap_records())

    count = len(cluster.quorum.batches)
    asyncio.run(taking_over())
    assert cluster.controller.image == before
    assert len(cluster.quorum.batches) == count, "the cluster is not begun a second time"


def test_an_unfinished_metadata_transaction_of_the_previous_controller_is_aborted(cluster: Cluster) -> None:
    before = cluster.image
    half: list[tuple[BeginTransactionRecord | TopicRecord, int]] = [
        (BeginTransactionRecord(), 0),
        (TopicRecord(name="half", topic_id=Uuid.of(4242)), 0),
    ]

    async def taking_over() -> None:
        cluster.quorum.append(half)
        await cluster.controller.activate(cluster.quorum.loader, [])

    asyncio.run(taking_over())
    assert isinstance(cluster.last_batch[0], AbortTransactionRecord)
    assert cluster.controller.image.topics == before.topics == cluster.quorum.loader.image.topics


def test_two_requests_for_one_name_cannot_both_succeed_before_the_first_is_committed(cluster: Cluster) -> None:
    async def both() -> list[int]:
        answers = [cluster.controller.decide(create(topic("t")), Client()) for _ in range(2)]
        responses = await asyncio.gather(*answers)
        return [response.topics[0].error_code for response in responses if isinstance(response, CreateTopicsResponse)]

    assert asyncio.run(both()) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_no_response_is_sent_before_its_records_are_committed(cluster: Cluster) -> None:
    async def asking() -> None:
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        append = cluster.quorum.append

        def slow(records: object) -> asyncio.Future[int]:
            append(records)  # type: ignore[arg-type]
            return committed

        cluster.quorum.append = slow  # type: ignore[method-assign]
        first = asyncio.ensure_future(cluster.controller.decide(create(topic("t")), Client()))
        second = asyncio.ensure_future(cluster.controller.decide(create(topic("t")), Client()))
        done, _ = await asyncio.wait([first, second], timeout=0)
        assert not done, "the second has seen what the first has not committed"
        committed.set_result(0)
        await asyncio.gather(first, second)

    asyncio.run(asking())


def test_every_controller_response_can_be_encoded_in_every_version_of_its_request(cluster: Cluster) -> None:
    asked = 0
    for step in script():
        if not is_decided_by_controller(row_of(step.request.api_key)):
            continue
        for version in range(step.request.versions.first, step.request.versions.last + 1):
            try:
                data = step.request.encode(version)
            except UnsupportedFieldError:
                continue
            response = cluster.ask(type(step.request).decode(data, version), Message, version)
            response.encode(version)
            asked += 1
    assert asked > 200


def test_an_error_response_to_every_controller_request_can_be_encoded_in_every_version() -> None:
    refusal = Refusal(ErrorCode.NOT_CONTROLLER)
    asked: dict[int, list[Message]] = {}
    beyond_the_script: list[Message] = [
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
                )
            ]
        ),
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter="t",
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        AllocateProducerIdsRequest(broker_id=1, broker_epoch=1),
        AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[]),
        AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1, directories=[]),
        BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=1, current_metadata_offset=0, want_fence=False, want_shut_down=False
        ),
        BrokerRegistrationRequest(
            broker_id=1, cluster_id="c", incarnation_id=Uuid.of(9), listeners=[], features=[], rack=None
        ),
        ControllerRegistrationRequest(
            controller_id=1, incarnation_id=Uuid.of(9), zk_migration_ready=False, listeners=[], features=[]
        ),
    ]
    for request in (*beyond_the_script, *(step.request for step in script())):
        asked.setdefault(request.api_key, []).append(request)
    for row in DECIDED:
        key = row.key
        assert asked.get(key), f"no request of this test is a {key.title}"
        for request in asked[key]:
            for version in range(request.versions.first, request.versions.last + 1):
                try:
                    request.encode(version)
                except UnsupportedFieldError:
                    continue
                data = row.refuse(request, refusal, version).encode(version)
                codes = codes_of(key.response.decode(data, version))
                has_no_place = isinstance(request, ElectLeadersRequest) and request.topic_partitions is None
                assert ErrorCode.NOT_CONTROLLER in codes or (has_no_place and version == 0)


def codes_of(value: object) -> set[int]:
    """Return every error code in a response."""
    if isinstance(value, list):
        return {code for one in value for code in codes_of(one)}
    if not isinstance(value, Struct):
        return set()
    found = {code for field in value.fields for code in codes_of(getattr(value, field.name))}
    return found | ({value.error_code} if hasattr(value, "error_code") else set())


# ---- Producer ids ----


def allocate(cluster: Cluster, broker_epoch: int | None = None) -> AllocateProducerIdsResponse:
    epoch = cluster.epochs[1] if broker_epoch is None else broker_epoch
    return cluster.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch), AllocateProducerIdsResponse)


def test_producer_ids_are_allocated_in_blocks_that_never_overlap(cluster: Cluster) -> None:
    blocks = [allocate(cluster) for _ in range(3)]
    assert [(one.producer_id_start, one.producer_id_len) for one in blocks] == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert cluster.image.producer_ids.next_producer_id == 3000


def test_a_request_with_an_earlier_broker_epoch_gets_no_producer_ids(cluster: Cluster) -> None:
    assert allocate(cluster, broker_epoch=0).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.image.producer_ids.next_producer_id == 0


# ---- Features ----


def update(cluster: Cluster, request: UpdateFeaturesRequest) -> ErrorCode:
    return ErrorCode.of(cluster.ask(request, UpdateFeaturesResponse).error_code)


def test_a_feature_is_downgraded_only_if_the_request_allows_it(cluster: Cluster) -> None:
    assert update(cluster, feature("group.version", 0)) is ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, feature("group.version", 0, 2)) is ErrorCode.NONE
    assert "group.version" not in cluster.image.features.finalized
    assert update(cluster, feature("group.version", 1, 2)) is ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, feature("group.version", 1)) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("present", "level", "error"),
    [
        (29, 24, ErrorCode.NONE),
        (29, 23, ErrorCode.NONE),
        # 4.0-IV1 brought a field of partitions.
        (29, 22, ErrorCode.INVALID_UPDATE_VERSION),
        (30, 29, ErrorCode.INVALID_UPDATE_VERSION),
        (22, 17, ErrorCode.NONE),
        (22, 16, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
@pytest.mark.parametrize("upgrade_type", [2, 3])
def test_the_metadata_version_can_be_downgraded_to_a_version_with_the_same_records(
    present: int, level: int, error: ErrorCode, upgrade_type: int
) -> None:
    request = feature("metadata.version", level, upgrade_type)
    assert decided_at({"metadata.version": present}, request) is error


def test_eligible_leader_replicas_need_a_metadata_version_that_has_them() -> None:
    elr = "eligible.leader.replicas.version"
    assert decided_at({"metadata.version": 22}, feature(elr, 1)) is ErrorCode.INVALID_UPDATE_VERSION
    assert decided_at({"metadata.version": 23}, feature(elr, 1)) is ErrorCode.NONE
    both = feature(elr, 1)
    both.feature_updates += feature("metadata.version", 23).feature_updates
    assert decided_at({"metadata.version": 22}, both) is ErrorCode.NONE


def decided_at(levels: dict[str, int], request: UpdateFeaturesRequest) -> ErrorCode:
    """Return the error of a controller of a cluster with these feature levels and without brokers."""
    image = replace(MetadataImage.EMPTY, features=FeaturesImage(levels))
    situation: Any = SimpleNamespace(image=image, config=TinyConfig())
    response = update_features(situation, request).response
    assert isinstance(response, UpdateFeaturesResponse)
    return ErrorCode.of(response.error_code)


def test_one_invalid_feature_update_refuses_all_updates_of_the_request(cluster: Cluster) -> None:
    request = feature("group.version", 0, 2)
    request.feature_updates += feature("no.such.version", 1).feature_updates
    assert update(cluster, request) is ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.image.features.level("group.version") == 1


def test_a_feature_is_not_raised_above_what_a_broker_supports(cluster: Cluster) -> None:
    assert update(cluster, feature("group.version", 0, 2)) is ErrorCode.NONE
    old = cluster.registration(2)
    old.features = [one for one in old.features if one.name != "group.version"]
    cluster.register(2, features=old.features)
    assert update(cluster, feature("group.version", 1)) is ErrorCode.INVALID_UPDATE_VERSION


def test_kraft_version_is_raised_unless_the_quorum_reports_a_problem(cluster: Cluster) -> None:
    cluster.quorum.upgrade_problem = "voter 3 was not heard of"
    assert update(cluster, feature("kraft.version", 1)) is ErrorCode.INVALID_UPDATE_VERSION
    cluster.quorum.upgrade_problem = None
    assert update(cluster, feature("kraft.version", 1, validate_only=True)) is ErrorCode.NONE
    assert cluster.image.features.kraft_version == 0
    assert update(cluster, feature("kraft.version", 1)) is ErrorCode.NONE
    assert cluster.image.features.kraft_version == 1
    assert update(cluster, feature("kraft.version", 1)) is ErrorCode.NONE
    assert update(cluster, feature("kraft.version", 0, 2)) is ErrorCode.INVALID_UPDATE_VERSION


def test_enabling_elr_moves_min_insync_replicas_from_brokers_to_the_cluster(cluster: Cluster) -> None:
    assert update(cluster, feature("eligible.leader.replicas.version", 0, 2)) is ErrorCode.NONE
    from pessoa.wire.api.incremental_alter_configs import IncrementalAlterConfigsResponse
    from tests.support.admin_script import BROKER, DELETE, SET, alter

    for name, operation, value in (("1", SET, "2"), ("", DELETE, None)):
        request = alter(BROKER, name, ("min.insync.replicas", operation, value))
        cluster.ask(request, IncrementalAlterConfigsResponse)
    assert cluster.image.configs.of(BROKER, "1") == {"min.insync.replicas": "2"}
    assert update(cluster, feature("eligible.leader.replicas.version", 1)) is ErrorCode.NONE
    assert cluster.image.configs.of(BROKER, "1") == {}
    assert cluster.image.configs.of(BROKER, "") == {"min.insync.replicas": "1"}
    assert any(isinstance(record, ClearElrRecord) for record in cluster.last_batch)
