"""Partitions that clients create and delete count for the controller mutation quota; new versions are refused over
it."""

from __future__ import annotations

import pytest

from pessoa.base.ids import ZERO_UUID
from pessoa.quota.client_quotas import MAX_CLIENTS
from pessoa.quota.mutations import MutationQuotas
from pessoa.quota.precedence import Configured
from pessoa.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from pessoa.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from pessoa.wire.errors import ErrorCode, Refusal
from tests.unit.controller.conftest import Cluster

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
NONE = ErrorCode.NONE
# Eleven windows of a second: so many partitions may be created at once.
RATE, BURST = 2, 22


def limit(cluster: Cluster, value: float | None) -> None:
    operation = OpData(key="controller_mutation_rate", value=value or 0.0, remove=value is None)
    entry = EntryData(entity=[EntityData(entity_type="client-id", entity_name="client")], ops=[operation])
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    [answer] = cluster.ask(request, AlterClientQuotasResponse, 1).entries
    assert answer.error_code == NONE


def create(cluster: Cluster, version: int, **topics: int) -> tuple[list[int], int]:
    """Create topics with so many partitions; return the error codes and the throttle time."""
    wanted = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name, count in topics.items()
    ]
    response = cluster.ask(CreateTopicsRequest(topics=wanted), CreateTopicsResponse, version)
    return [one.error_code for one in response.topics], response.throttle_time_ms


def test_without_a_mutation_quota_no_tokens_are_counted(cluster: Cluster) -> None:
    assert create(cluster, 7, a=200, b=200) == ([NONE, NONE], 0)


def test_a_strict_create_topics_is_served_until_the_quota_is_exceeded_and_then_refused_topic_by_topic(
    cluster: Cluster,
) -> None:
    limit(cluster, RATE)
    # The second topic overdraws the bucket by 8; the third is refused, and in four seconds nothing will be owed.
    assert create(cluster, 6, a=20, b=10, c=1) == ([NONE, NONE, EXCEEDED], 4_000)
    assert sorted(cluster.image.topics.by_name) == ["a", "b"]
    assert create(cluster, 7, d=1) == ([EXCEEDED], 4_000)
    cluster.clock.advance_ms(3_999)
    assert create(cluster, 7, d=1) == ([EXCEEDED], 1)
    cluster.clock.advance_ms(1)
    assert create(cluster, 7, d=5) == ([NONE], 0)


@pytest.mark.parametrize("rate", [0.001, 1e-310])
def test_a_throttle_time_beyond_the_int32_range_is_returned_as_the_largest_int32(cluster: Cluster, rate: float) -> None:
    limit(cluster, rate)
    # At a thousandth of a partition per second, 3,000 are owed for 35 days; an int32 of milliseconds is 24.
    assert create(cluster, 7, a=3_000, b=1) == ([NONE, EXCEEDED], 2**31 - 1)
    assert create(cluster, 5, c=1) == ([NONE], 2**31 - 1)


def test_an_older_create_topics_version_is_served_beyond_the_quota_with_a_throttle_time(cluster: Cluster) -> None:
    limit(cluster, RATE)
    assert create(cluster, 5, a=BURST) == ([NONE], 0)
    assert create(cluster, 5, b=3, c=3) == ([NONE, NONE], 3_000)
    assert create(cluster, 6, d=1) == ([EXCEEDED], 3_000)


def test_a_topic_that_is_refused_for_another_reason_costs_no_mutation_tokens(cluster: Cluster) -> None:
    limit(cluster, RATE)
    assert create(cluster, 7, a=BURST) == ([NONE], 0)
    for _ in range(30):
        assert create(cluster, 7, a=1) == ([ErrorCode.TOPIC_ALREADY_EXISTS], 0)
    assert create(cluster, 7, b=1) == ([NONE], 0)


def test_a_changed_or_removed_mutation_quota_applies_to_the_next_request(cluster: Cluster) -> None:
    limit(cluster, RATE)
    create(cluster, 7, a=BURST + 8)
    assert create(cluster, 7, b=1) == ([EXCEEDED], 4_000)
    limit(cluster, 8)
    assert create(cluster, 7, b=1) == ([EXCEEDED], 1_000)
    limit(cluster, None)
    assert create(cluster, 7, b=1) == ([NONE], 0)


@pytest.mark.parametrize(("version", "is_strict"), [(4, False), (5, True), (6, True)])
def test_a_deletion_costs_as_many_mutation_tokens_as_the_topic_has_partitions(
    cluster: Cluster, version: int, is_strict: bool
) -> None:
    create(cluster, 7, a=BURST + 6, b=2)
    limit(cluster, RATE)
    wanted = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in ("a", "b")] if version >= 6 else []
    request = DeleteTopicsRequest(topics=wanted, topic_names=["a", "b"] if version < 6 else [], timeout_ms=1)
    response = cluster.ask(request, DeleteTopicsResponse, version)
    assert [one.error_code for one in response.responses] == [NONE, EXCEEDED if is_strict else NONE]
    assert response.throttle_time_ms == (3_000 if is_strict else 4_000)
    assert sorted(cluster.image.topics.by_name) == (["b"] if is_strict else [])


@pytest.mark.parametrize(("version", "is_strict"), [(2, False), (3, True)])
@pytest.mark.parametrize("is_assigned", [False, True])
def test_create_partitions_costs_as_many_mutation_tokens_as_partitions_are_added(
    cluster: Cluster, version: int, is_strict: bool, is_assigned: bool
) -> None:
    create(cluster, 7, a=1, b=1)
    limit(cluster, RATE)
    brokers = [CreatePartitionsAssignment(broker_ids=[min(cluster.epochs)])]

    def grown(name: str, added: int) -> CreatePartitionsTopic:
        return CreatePartitionsTopic(name=name, count=1 + added, assignments=brokers * added if is_assigned else None)

    request = CreatePartitionsRequest(topics=[grown("a", BURST + 4), grown("b", 2)], timeout_ms=1, validate_only=False)
    response = cluster.ask(request, CreatePartitionsResponse, version)
    assert [one.error_code for one in response.results] == [NONE, EXCEEDED if is_strict else NONE]
    assert response.throttle_time_ms == (2_000 if is_strict else 3_000)


def test_the_mutation_tokens_of_a_decision_are_taken_when_it_is_settled() -> None:
    quotas = MutationQuotas({(("user", None),): {"controller_mutation_rate": 1.0}})
    for _ in range(3):
        charge = quotas.charge_of("User:alice", "c", 0)
        assert charge is not None
        charge.spend(100, is_strict=True)
        with pytest.raises(Refusal):
            charge.spend(1, is_strict=True)
        last = charge
    last.settle()
    charge = quotas.charge_of("User:alice", "another", 0)
    assert charge is not None
    with pytest.raises(Refusal):
        charge.spend(1, is_strict=True)
    assert charge.throttle_ms == 89_000


def test_mutation_buckets_of_client_ids_are_bounded_and_a_users_bucket_is_not_evicted_by_them() -> None:
    limits: Configured = {
        (("user", "alice"),): {"controller_mutation_rate": 1.0},
        (("client-id", None),): {"controller_mutation_rate": 1.0},
    }
    quotas = MutationQuotas(limits)
    for number in range(2 * MAX_CLIENTS):
        for principal in ("User:alice", "User:bob"):
            charge = quotas.charge_of(principal, f"c{number}", 0)
            assert charge is not None
            charge.spend(1, is_strict=False)
            charge.settle()
    assert len(quotas._buckets_of_client_ids) == MAX_CLIENTS
    charge = quotas.charge_of("User:alice", "fresh", 0)
    assert charge is not None
    with pytest.raises(Refusal):
        charge.spend(1, is_strict=True)
