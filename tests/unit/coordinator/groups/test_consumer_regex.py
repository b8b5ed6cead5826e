"""Subscriptions by regular expression: when they are resolved, and which partitions a member gets."""

from __future__ import annotations

import pytest

from pessoa.coordinator.groups.consumer.consumer_group import ResolvedRegex
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored import group_records
from tests.unit.coordinator.groups.bench import START_MS, Bench
from tests.unit.coordinator.groups.consumer_client import GROUP, Member, consumer_group, reconcile
from tests.unit.coordinator.images import image


@pytest.fixture
def bench() -> Bench:
    return Bench(metadata=image(orders=2, orders_old=1, payments=1))


def subscriber(bench: Bench, name: str, regex: str, *topics: str) -> Member:
    member = Member(bench, name, *topics, regex=regex)
    if not topics:
        member.topics = None
    return member


def test_a_regex_subscription_is_resolved_after_the_heartbeat_that_contains_it(bench: Bench) -> None:
    member = subscriber(bench, "a", "orders.*")
    assert member.join() == {}
    bench.pass_time(1_000)
    assert member.beat() == {"orders": [0, 1], "orders-old": [0]}
    assert consumer_group(bench).resolved_regexes == {
        "orders.*": ResolvedRegex(frozenset({"orders", "orders-old"}), 1, START_MS)
    }


def test_a_resolved_regex_is_written_with_the_group_epoch_that_it_raises(bench: Bench) -> None:
    subscriber(bench, "a", "orders.*").join()
    before = bench.written_count
    bench.pass_time(0)
    expression, epoch = bench.records_since(before)
    assert expression.key == group_records.ConsumerGroupRegularExpressionKey(
        group_id=GROUP, regular_expression="orders.*"
    )
    assert expression.value == group_records.ConsumerGroupRegularExpressionValue(
        topics=["orders", "orders-old"], version=1, timestamp=START_MS
    )
    assert isinstance(epoch.value, group_records.ConsumerGroupMetadataValue)
    bench.reload()
    group = consumer_group(bench)
    assert group.resolved_regexes["orders.*"].topics == {"orders", "orders-old"}
    assert group.regex_counts == {"orders.*": 1}


def test_a_member_may_subscribe_by_names_and_regex_together(bench: Bench) -> None:
    member = subscriber(bench, "a", "orders-.*", "payments")
    assert member.join() == {"payments": [0]}
    reconcile(member)
    assert member.names == {"orders-old": [0], "payments": [0]}


def test_a_second_member_with_the_same_regex_is_assigned_at_once(bench: Bench) -> None:
    first, second = subscriber(bench, "a", "orders"), subscriber(bench, "b", "orders")
    first.join()
    reconcile(first)
    bench.pass_time(1_000)
    second.join()
    reconcile(first, second)
    assert [member.names for member in (first, second)] == [{"orders": [0]}, {"orders": [1]}]


def test_regexes_that_arrive_soon_after_each_other_are_resolved_together_later(bench: Bench) -> None:
    first, second = subscriber(bench, "a", "orders"), subscriber(bench, "b", "payments")
    first.join()
    reconcile(first)
    second.join()
    reconcile(first, second)
    assert second.names == {}, "ten seconds have not passed"
    bench.pass_time(10_000)
    first.beat()
    reconcile(first, second)
    assert second.names == {"payments": [0]}


def test_each_regex_is_matched_in_its_own_turn_of_the_loop_and_all_are_written_together(bench: Bench) -> None:
    first, *others = (subscriber(bench, name, f"{name}.*") for name in ("orders", "payments", "refunds"))
    first.join()
    reconcile(first)
    for one in others:
        one.join()
    bench.pass_time(10_000)
    before = bench.written_count
    first.beat()
    for _ in range(2):
        bench.pass_time(0)
        assert bench.records_since(before) == []
        assert bench.shard.next_deadline_ms() == bench.now_ms + 1
        bench.pass_time(1)
    written = [type(record.value) for record in bench.records_since(before)]
    assert written == [group_records.ConsumerGroupRegularExpressionValue] * 3 + [
        group_records.ConsumerGroupMetadataValue
    ]
    reconcile(first, *others)
    assert [one.names for one in others] == [{"payments": [0]}, {}]


def test_a_new_topic_that_matches_a_regex_is_found_ten_seconds_later_at_the_earliest(bench: Bench) -> None:
    member = subscriber(bench, "a", "orders.*")
    member.join()
    reconcile(member)
    bench.publish(image(orders=2, orders_old=1, orders_new=1, payments=1))
    reconcile(member)
    assert "orders-new" not in member.names
    bench.pass_time(10_000)
    member.beat()
    reconcile(member)
    assert member.names["orders-new"] == [0]


def test_regexes_are_resolved_again_after_ten_minutes_even_without_a_known_change(
    bench: Bench,
) -> None:
    member = subscriber(bench, "a", "orders.*")
    member.join()
    reconcile(member)
    for _ in range(121):
        bench.pass_time(5_000)
        member.ping()
    bench.pass_time(0)
    assert consumer_group(bench).resolved_regexes["orders.*"].timestamp_ms > START_MS + 600_000


def test_an_invalid_regex_is_refused(bench: Bench) -> None:
    member = subscriber(bench, "a", "(orders")
    refusal = member.refusal(rebalance_timeout_ms=1, subscribed_topic_regex="(orders", topic_partitions=[])
    assert refusal.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "'(orders' is not a valid expression: missing )" in str(refusal)
    assert bench.written == []


def test_a_regex_that_no_member_uses_any_more_is_removed(bench: Bench) -> None:
    first, second = subscriber(bench, "a", "orders"), subscriber(bench, "b", "orders")
    first.join()
    reconcile(first)
    bench.pass_time(1_000)
    second.join()
    reconcile(first, second)
    first.leave()
    assert "orders" in consumer_group(bench).resolved_regexes
    second.leave()
    assert consumer_group(bench).resolved_regexes == {}
    assert bench.shard.registry.groups_by_topic == {}


def test_a_member_may_change_and_remove_its_regex(bench: Bench) -> None:
    member = subscriber(bench, "a", "orders")
    member.join()
    reconcile(member)
    bench.pass_time(11_000)
    member.send(subscribed_topic_regex="payments")
    reconcile(member)
    assert member.names == {"payments": [0]}
    assert list(consumer_group(bench).resolved_regexes) == ["payments"]
    member.send(subscribed_topic_regex="")
    reconcile(member)
    assert member.names == {}
    assert consumer_group(bench).resolved_regexes == {}


def test_a_stored_regex_that_this_broker_cannot_compile_matches_no_topic(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = subscriber(bench, "a", "orders.*", "payments")
    member.join()
    monkeypatch.setattr("pessoa.coordinator.bounded_regex._LONGEST", 3)
    reconcile(member)
    assert member.names == {"payments": [0]}
    assert consumer_group(bench).resolved_regexes["orders.*"].topics == frozenset()
