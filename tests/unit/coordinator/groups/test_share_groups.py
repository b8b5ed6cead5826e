"""Share groups in the group coordinator: heartbeats, epochs, initialisation, assignments, sessions, reloads."""

from __future__ import annotations

from typing import Any

import pytest

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.classic.classic_group import ClassicGroup
from pessoa.coordinator.groups.group_config import GROUP_RESOURCE, GroupCoordinatorConfig
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.groups.share.share_descriptions import describe_share_group
from pessoa.coordinator.groups.share.share_group import NamedPartitions, ShareGroup
from pessoa.coordinator.groups.share.share_group_config import ShareGroupConfig
from pessoa.coordinator.groups.share.share_group_replay import share_group_tombstones, topic_infos
from pessoa.coordinator.groups.share.share_heartbeat import ShareGroups
from pessoa.coordinator.groups.share.share_initialisation import InitializeShares, SharesInitialised
from pessoa.coordinator.shard import Output
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import OwnRequest
from pessoa.wire.schema import Message
from pessoa.wire.stored.record_framing import (
    GROUP_LOG,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)
from tests.unit.coordinator.images import FakeConfigs, FakeImage, change, image, topic_id

GROUP = "workers"
CALLER = OwnRequest(0)


class Driver:
    """Does what the runtime does, with a log in memory; the test makes the share coordinator respond."""

    def __init__(self, config: ShareGroupConfig | None = None, metadata: FakeImage | None = None) -> None:
        self.config = config or ShareGroupConfig()
        self.image = metadata or image(orders=3, others=1)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.asked: list[InitializeShares] = []
        self.now_ms = 1_000_000
        self.refuses = False
        self.load()

    def load(self) -> None:
        self.registry = Registry(GroupCoordinatorConfig(), self.image, lambda: Uuid.of(1))
        self.share = ShareGroups(self.registry, self.config, self.asked.append)
        for key_bytes, value_bytes in self.log:
            key = decode_coordinator_key(GROUP_LOG, key_bytes)
            assert key is not None
            value = None if value_bytes is None else decode_coordinator_value(GROUP_LOG, key, value_bytes)
            assert self.share.replay(key, value)
        self.share.resume(self.now_ms)

    def perform(self, output: Output) -> Message | None:
        if self.refuses and output.records:
            if output.on_outcome is not None:
                output.on_outcome(ErrorCode.NOT_ENOUGH_REPLICAS, self.now_ms)
            return None
        for key, value, version in output.records:
            stored = None if value is None else encode_coordinator_value(value, version)
            self.log.append((encode_coordinator_key(key), stored))
            self.share.replay(key, value)
        if output.on_outcome is not None:
            output.on_outcome(ErrorCode.NONE, self.now_ms)
        if not output.replies:
            return None
        reply = output.replies[0][1]
        assert isinstance(reply, Message)
        return reply

    def beat(self, member: str, epoch: int, *topics: str, rack: str | None = None, group: str = GROUP) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=list(topics) if topics else None,
        )
        return self.perform(self.share.heartbeat(request, CALLER, 1, self.now_ms))

    def refused(self, member: str, epoch: int, *topics: str, rack: str | None = None, group: str = GROUP) -> ErrorCode:
        with pytest.raises(Refusal) as caught:
            self.beat(member, epoch, *topics, rack=rack, group=group)
        return caught.value.code

    def initialise(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Make the share coordinator answer all pending requests, with this error."""
        while self.asked:
            asked = self.asked.pop(0)
            request = SharesInitialised(group_id=asked.group_id, error_code=error, topics=topic_infos(asked.topics))
            self.perform(self.share.note_initialised(request, 1))

    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms
        while (action := self.registry.timers.pop_due(self.now_ms)) is not None:
            self.perform(action(self.now_ms))

    def change_topics(self, new: FakeImage) -> None:
        self.image, delta = change(self.image, new)
        self.registry.image = self.image
        self.registry.forget_topics([*delta.old.topics.by_name, *new.topics.by_name])
        self.perform(Output(self.share.initialisation.forget_topics(delta.deleted_topics)))

    @property
    def group(self) -> ShareGroup:
        return self.share.groups[GROUP]

    def assigned(self, answer: Any) -> dict[str, list[int]] | None:
        if answer.assignment is None:
            return None
        topics = self.image.topics.by_id
        return {topics[each.topic_id].name: sorted(each.partitions) for each in answer.assignment.topic_partitions}

    def join(self, member: str, *topics: str) -> int:
        """Join, have the subscribed partitions initialised, and return the epoch at which they are assigned."""
        epoch: int = self.beat(member, 0, *topics).member_epoch
        self.initialise()
        self.pass_time(5_000)
        assigned_at: int = self.beat(member, epoch).member_epoch
        return assigned_at


def test_the_first_share_heartbeat_assigns_no_partition_and_initialises_the_share_partitions() -> None:
    driver = Driver()
    answer = driver.beat("a", 0, "orders")
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (
        0,
        "a",
        2,
        5_000,
    )
    assert driver.assigned(answer) == {}
    (asked,) = driver.asked
    orders = NamedPartitions("orders", frozenset({0, 1, 2}))
    assert asked == InitializeShares(GROUP, 2, {topic_id("orders"): orders})
    assert driver.group.shares.initialising == asked.topics


def test_initialised_share_partitions_are_assigned_by_a_later_heartbeat_and_sent_once() -> None:
    driver = Driver()
    driver.beat("a", 0, "orders")
    driver.initialise()
    driver.pass_time(5_000)
    answer = driver.beat("a", 2)
    assert (answer.member_epoch, driver.assigned(answer)) == (3, {"orders": [0, 1, 2]})
    assert driver.beat("a", 3).assignment is None
    assert driver.assigned(driver.beat("a", 3, "orders")) == {"orders": [0, 1, 2]}
    assert driver.group.epoch == 3


def test_members_are_assigned_after_the_clock_was_set_back() -> None:
    driver = Driver()
    driver.join("a", "orders")
    driver.now_ms -= 3_600_000
    driver.beat("b", 0, "orders")
    assert {member: len(target[topic_id("orders")]) for member, target in driver.group.targets.items()} == {
        "a": 2,
        "b": 1,
    }


def test_initialisation_is_tried_again_after_the_clock_was_set_back() -> None:
    driver = Driver()
    driver.beat("a", 0, "orders")
    driver.asked.clear()
    driver.now_ms -= 3_600_000
    driver.beat("a", 2)
    assert [asked.group_id for asked in driver.asked] == [GROUP]


def test_an_assignment_is_computed_at_most_once_in_the_interval() -> None:
    driver = Driver()
    driver.beat("a", 0, "orders")
    driver.initialise()
    driver.pass_time(999)
    assert driver.beat("a", 2).member_epoch == 2
    assert driver.group.epoch == 3
    driver.pass_time(1)
    assert driver.beat("a", 2).member_epoch == 3
    assert driver.group.epoch == 3, "the epoch was raised twice for one reason"


def test_members_share_partitions_when_there_are_more_of_them() -> None:
    driver = Driver()
    driver.join("a", "others")
    epoch = driver.join("b", "others")
    assert driver.group.members["b"].assigned == {topic_id("others"): frozenset({0})}
    assert driver.assigned(driver.beat("a", driver.group.members["a"].epoch, "others")) == {"others": [0]}
    assert driver.group.members["a"].epoch == epoch


def test_a_lost_share_heartbeat_response_is_repeated_and_other_epochs_are_fenced() -> None:
    driver = Driver()
    assert driver.join("a", "orders") == 3
    assert driver.beat("a", 2).member_epoch == 3
    assert driver.refused("a", 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.refused("a", 4) is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.refused("b", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.assigned(driver.beat("a", 0, "orders")) == {"orders": [0, 1, 2]}, "it joins again"


def test_share_heartbeats_to_unknown_groups_and_to_groups_of_other_types_are_refused() -> None:
    driver = Driver()
    assert driver.refused("a", 1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.refused("a", -1) is ErrorCode.GROUP_ID_NOT_FOUND
    driver.registry.groups["old"] = ClassicGroup("old")
    assert driver.refused("a", 0, "orders", group="old") is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "rack", "group"),
    [
        ("", 0, ["orders"], None, GROUP),
        ("a", 0, ["orders"], None, ""),
        ("a", 0, ["orders"], " ", GROUP),
        ("a", 0, [], None, GROUP),
        ("a", -2, ["orders"], None, GROUP),
    ],
)
def test_a_malformed_share_heartbeat_is_an_invalid_request(
    member: str, epoch: int, topics: list[str], rack: str | None, group: str
) -> None:
    assert Driver().refused(member, epoch, *topics, rack=rack, group=group) is ErrorCode.INVALID_REQUEST


def test_a_share_group_of_max_size_refuses_new_members_and_accepts_rejoins() -> None:
    driver = Driver(ShareGroupConfig(group_share_max_size=1))
    driver.beat("a", 0, "orders")
    assert driver.refused("b", 0, "orders") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.beat("a", 0, "orders").error_code == ErrorCode.NONE


def test_the_partitions_of_a_share_group_member_that_leaves_are_assigned_to_the_others() -> None:
    driver = Driver()
    driver.join("a", "orders")
    driver.join("b", "orders")
    epoch = driver.group.epoch
    answer = driver.beat("a", -1)
    assert (answer.member_id, answer.member_epoch) == ("a", -1)
    assert driver.group.epoch == epoch + 1
    driver.pass_time(5_000)
    answer = driver.beat("b", driver.group.members["b"].epoch)
    assert driver.assigned(answer) == {"orders": [0, 1, 2]}
    assert driver.beat("b", -1).member_epoch == -1
    assert driver.group.is_empty
    assert driver.group.state.value == "Empty"


def test_a_member_whose_session_ends_is_removed() -> None:
    driver = Driver()
    driver.join("a", "orders")
    driver.pass_time(44_999)
    assert "a" in driver.group.members
    driver.pass_time(1)
    assert driver.group.is_empty


def test_the_removal_of_a_share_group_member_is_retried_if_it_cannot_be_written() -> None:
    driver = Driver()
    driver.join("a", "orders")
    driver.refuses = True
    driver.pass_time(45_000)
    assert "a" in driver.group.members
    driver.refuses = False
    driver.pass_time(500)
    assert driver.group.is_empty


def test_a_changed_subscription_of_a_share_group_member_removes_unsubscribed_partitions_at_once() -> None:
    driver = Driver()
    driver.beat("a", 0, "orders", "others")
    driver.initialise()
    driver.pass_time(5_000)
    assert driver.assigned(driver.beat("a", 2)) == {"orders": [0, 1, 2], "others": [0]}
    answer = driver.beat("a", 3, "others")
    assert driver.assigned(answer) == {"others": [0]}


def test_new_partitions_are_initialised_and_then_assigned() -> None:
    driver = Driver()
    epoch = driver.join("a", "orders")
    driver.change_topics(image(orders=5, others=1))
    epoch = driver.beat("a", epoch).member_epoch
    (asked,) = driver.asked
    assert asked.topics == {topic_id("orders"): ("orders", frozenset({3, 4}))}
    assert asked.state_epoch == driver.group.epoch
    driver.initialise()
    driver.pass_time(5_000)
    assert driver.assigned(driver.beat("a", epoch)) == {"orders": [0, 1, 2, 3, 4]}


def test_a_deleted_topic_is_removed_from_a_share_group_and_initialised_when_it_is_created_again() -> None:
    driver = Driver()
    epoch = driver.join("a", "orders")
    driver.change_topics(image(others=1))
    assert driver.group.shares.initialised == {}
    driver.pass_time(5_000)
    answer = driver.beat("a", epoch)
    epoch = answer.member_epoch
    assert driver.assigned(answer) == {}
    driver.pass_time(5_000)
    driver.change_topics(image(1, orders=2, others=1))
    epoch = driver.beat("a", epoch).member_epoch
    assert [asked.topics for asked in driver.asked] == [{topic_id("orders", 1): ("orders", frozenset({0, 1}))}]
    driver.initialise()
    driver.pass_time(5_000)
    assert driver.assigned(driver.beat("a", epoch)) == {"orders": [0, 1]}


def test_a_refused_initialisation_is_undone_and_tried_again_with_the_next_heartbeat() -> None:
    driver = Driver()
    driver.beat("a", 0, "orders")
    driver.initialise(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert driver.group.shares == ({}, {}, {})
    driver.beat("a", 2)
    assert len(driver.asked) == 1


def test_an_initialisation_in_progress_is_not_requested_again_before_the_retry_interval() -> None:
    driver = Driver()
    driver.beat("a", 0, "orders")
    driver.asked.clear()
    driver.pass_time(29_999)
    driver.beat("a", 2)
    assert driver.asked == []
    driver.pass_time(1)
    driver.beat("a", 2)
    assert len(driver.asked) == 1


def test_a_new_coordinator_requests_again_the_share_partitions_that_it_finds_initialising() -> None:
    driver = Driver()
    driver.beat("a", 0, "orders")
    driver.asked.clear()
    driver.load()
    driver.beat("a", 2)
    assert len(driver.asked) == 1
    driver.initialise()
    driver.pass_time(5_000)
    assert driver.assigned(driver.beat("a", 2)) == {"orders": [0, 1, 2]}


def test_no_initialisation_is_requested_when_the_heartbeat_cannot_be_written() -> None:
    driver = Driver()
    driver.refuses = True
    assert driver.beat("a", 0, "orders") is None
    assert driver.asked == []
    assert driver.share.groups == {}
    driver.refuses = False
    driver.beat("a", 0, "orders")
    assert len(driver.asked) == 1


def test_loading_the_log_restores_the_share_group() -> None:
    driver = Driver()
    driver.join("a", "orders")
    driver.join("b", "others", "orders")
    driver.join("c", "orders")
    driver.beat("c", -1)
    before = driver.group
    driver.load()
    after = driver.group
    assert after is not before
    for name in ("epoch", "metadata_hash", "assignment_epoch", "assignment_timestamp_ms", "members", "targets"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.shares, after.name_counts) == (before.shares, before.name_counts)
    driver.pass_time(45_000)
    assert driver.group.is_empty, "sessions go on after a load"


def test_an_empty_share_group_is_removed_by_its_tombstones() -> None:
    driver = Driver()
    driver.join("a", "orders")
    driver.beat("a", -1)
    driver.perform(Output(share_group_tombstones(driver.group)))
    assert driver.share.groups == {}
    driver.load()
    assert driver.share.groups == {}


def test_the_intervals_of_a_share_group_config_are_limited_by_those_of_the_broker() -> None:
    configs = FakeConfigs(
        {
            (GROUP_RESOURCE, GROUP): {
                "share.session.timeout.ms": "50000",
                "share.heartbeat.interval.ms": "99999",
                "share.assignment.interval.ms": "0",
            }
        }
    )
    plain = image(orders=3)
    driver = Driver(metadata=FakeImage(1, plain.topics, configs=configs))
    assert driver.beat("a", 0, "orders").heartbeat_interval_ms == 15_000
    driver.initialise()
    assert driver.beat("a", 2).member_epoch == 3
    driver.pass_time(49_999)
    assert not driver.group.is_empty
    driver.pass_time(1)
    assert driver.group.is_empty


def test_a_group_is_described_with_its_members_and_their_partitions() -> None:
    driver = Driver()
    driver.join("a", "orders")
    described = describe_share_group(driver.registry, GROUP)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)
    assert described.assignor_name == "simple"
    (member,) = described.members
    assert (member.member_id, member.member_epoch, member.subscribed_topic_names) == ("a", 3, ["orders"])
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("orders", [0, 1, 2])
