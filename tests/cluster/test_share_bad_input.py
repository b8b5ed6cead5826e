"""Invalid requests of share group clients: each gets the right error code, and no group loses records.

Every test has a topic and a group of its own; `Group.check` checks afterwards that every record of the group can still
be acquired and accepted. The group `bystanders` has acquired records before the first test, and accepts them after the
last one, so no invalid request of another group has released them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pessoa.base.ids import Uuid
from pessoa.testing import Broker
from pessoa.wire.errors import ErrorCode
from tests.cluster.test_share_partitions import SETTINGS, acquired, playing
from tests.differential.session_data import produce
from tests.differential.session_stage import Player
from tests.differential.share_script import (
    ACCEPT,
    GROUP_CONFIG,
    RELEASE,
    RENEW,
    acknowledge,
    altered,
    deleted,
    fetch,
    heartbeat,
    join,
)
from tests.support.admin_script import SET, alter, create, delete, feature, topic
from tests.support.batches import plain
from tests.support.clients import unique, until

RECORDS = 10
LONG_MS = 60_000


class Group:
    """A share group, its topic with ten records, and a member that has acquired them all."""

    def __init__(self, player: Player, **configs: str) -> None:
        self.player = player
        self.name, self.topic, self.member = unique("g"), unique("t"), unique("m")
        player.look(create(topic(self.topic, 1, 1)))
        player.wait_until_applied()
        player.look(produce(self.topic, plain(RECORDS)), 12)
        settings = {"share.auto.offset.reset": "earliest", **configs}
        player.look(alter(GROUP_CONFIG, self.name, *((name, SET, value) for name, value in settings.items())))
        self.member_epoch = join(player, self.name, self.member, self.topic)
        self.id: Uuid = player.topic_id(self.topic)
        assert self.fetch(0) == [(0, RECORDS - 1, 1)]
        self.epoch = 1

    def fetch(self, epoch: int, member: str | None = None, **settings: Any) -> list[tuple[int, int, int]]:
        return acquired(self.ask_fetch(epoch, member, **settings))

    def ask_fetch(self, epoch: int, member: str | None = None, **settings: Any) -> Any:
        member = member or self.member
        request = fetch(self.name, member, epoch, [(self.id, 0)], **{"max_wait_ms": LONG_MS, **settings})
        return self.player.look(request, actor=member)

    def ask(self, epoch: int, *batches: tuple[int, int, list[int]], **settings: Any) -> Any:
        member = settings.pop("member", self.member)
        request = acknowledge(self.name, member, epoch, {(self.id, 0): list(batches)}, **settings)
        return self.player.look(request, actor=member)

    def say(self, *batches: tuple[int, int, list[int]], **settings: Any) -> ErrorCode:
        """Send a ShareAcknowledge; return the error code of the partition. The share session continues."""
        response = self.ask(self.epoch, *batches, **settings)
        assert response.error_code == ErrorCode.NONE, response
        self.epoch += 1
        return ErrorCode.of(response.responses[0].partitions[0].error_code)

    def check(self, first: int = 0) -> None:
        """Check that the member still has all records from this offset on, and accept them."""
        assert self.say((first, RECORDS - 1, [ACCEPT])) is ErrorCode.NONE
        self.player.look(produce(self.topic, plain(1)), 12)
        assert self.fetch(self.epoch) == [(RECORDS, RECORDS, 1)]


@pytest.fixture(scope="module")
def bystanders() -> Iterator[Group]:
    with Broker(SETTINGS) as broker, playing(broker) as player:
        group = Group(player)
        yield group
        group.check()


@pytest.fixture
def group(bystanders: Group) -> Group:
    return Group(bystanders.player)


def test_an_unknown_member_is_refused_and_the_members_keep_their_records(group: Group) -> None:
    response = group.player.look(heartbeat(group.name, unique("m"), 3))
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    group.check()


def test_a_member_with_a_wrong_epoch_is_fenced_and_keeps_its_records(group: Group) -> None:
    response = group.player.look(heartbeat(group.name, group.member, group.member_epoch + 7))
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.player.look(heartbeat(group.name, group.member, group.member_epoch)).error_code == ErrorCode.NONE
    group.check()


def test_a_heartbeat_to_no_group_is_refused(group: Group) -> None:
    assert group.player.look(heartbeat(unique("g"), group.member, 2)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    group.check()


@pytest.mark.parametrize("epoch", [2, 9, 1 << 30])
def test_a_wrong_session_epoch_is_refused_and_the_session_goes_on(group: Group, epoch: int) -> None:
    assert group.ask_fetch(epoch, max_wait_ms=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert group.ask(epoch, (0, 0, [ACCEPT])).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    group.check()


def test_a_member_without_a_session_is_refused(group: Group) -> None:
    stranger = unique("m")
    assert group.ask_fetch(3, stranger, max_wait_ms=0).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert group.ask(3, (0, 0, [ACCEPT]), member=stranger).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert group.ask(-1, (0, 0, [ACCEPT]), member=stranger).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    group.check()


def test_the_first_request_of_a_session_acknowledges_nothing(group: Group) -> None:
    request = fetch(group.name, group.member, 0, [], {(group.id, 0): [(0, 0, [ACCEPT])]})
    assert group.player.look(request, actor=group.member).error_code == ErrorCode.INVALID_REQUEST
    assert group.ask(0, (0, 0, [ACCEPT])).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    group.check()


def test_acknowledgements_of_what_another_member_has_are_refused(group: Group) -> None:
    thief = unique("m")
    assert group.fetch(0, thief, max_wait_ms=0) == []
    response = group.ask(1, (0, 9, [ACCEPT]), member=thief)
    assert response.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE
    group.check()


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([(10, 10, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(0, 3, [ACCEPT]), (10, 12, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(5, 4, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(6, 7, [ACCEPT]), (2, 3, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(2, 6, [ACCEPT]), (4, 8, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(2, 4, [ACCEPT]), (4, 8, [ACCEPT])], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 2, [ACCEPT, ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(0, 2, [])], ErrorCode.INVALID_REQUEST),
        ([(0, 0, [9])], ErrorCode.INVALID_REQUEST),
        ([(0, 0, [-1])], ErrorCode.INVALID_REQUEST),
        ([(0, 0, [RENEW])], ErrorCode.INVALID_REQUEST),
        ([(0, (1 << 62), [ACCEPT])], ErrorCode.INVALID_REQUEST),
    ],
    ids=[
        "past the end", "partly past the end", "first behind last", "backwards", "overlapping", "twice",
        "too few types", "no types", "unknown type", "negative type", "renewal in disguise", "endless",
    ],
)  # fmt: skip
def test_acknowledgements_that_cannot_be_are_refused_whole(
    group: Group, batches: list[tuple[int, int, list[int]]], code: ErrorCode
) -> None:
    assert group.say(*batches) is code
    group.check()


def test_what_was_released_cannot_be_accepted(group: Group) -> None:
    assert group.say((9, 9, [RELEASE])) is ErrorCode.NONE
    assert group.say((8, 9, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    assert group.fetch(group.epoch) == [(9, 9, 2)]
    group.epoch += 1
    group.check()


def test_a_partition_with_too_many_records_in_flight_gives_no_more_until_some_are_done_with(
    bystanders: Group,
) -> None:
    group = Group(bystanders.player, **{"share.partition.max.record.locks": "100"})
    for _ in range(10):
        group.player.look(produce(group.topic, plain(RECORDS)), 12)
    assert group.fetch(group.epoch) == [(10, 99, 1)]
    assert group.fetch(group.epoch + 1, max_wait_ms=0) == []
    group.epoch += 2
    assert group.say((0, 99, [ACCEPT])) is ErrorCode.NONE
    assert group.fetch(group.epoch) == [(100, 109, 1)]


def test_offsets_of_a_group_with_members_are_not_moved_or_deleted(group: Group) -> None:
    moved = group.player.look(altered(group.name, {group.topic: {0: 5}}))
    assert moved.error_code == ErrorCode.NON_EMPTY_GROUP
    assert group.player.look(deleted(group.name, group.topic)).error_code == ErrorCode.NON_EMPTY_GROUP
    group.check()


def test_a_topic_that_is_deleted_and_created_again_under_a_share_group_begins_with_new_state(group: Group) -> None:
    player = group.player
    player.look(delete(group.topic))
    player.wait_until_applied()
    response = group.ask(group.epoch, (0, 9, [ACCEPT]))
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    partitions = [one for each in group.ask_fetch(group.epoch + 1).responses for one in each.partitions]
    assert [one.error_code for one in partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
    player.look(create(topic(group.topic, 1, 1)))
    player.wait_until_applied()
    player.look(produce(group.topic, plain(3)), 12)
    group.id = player.topic_id(group.topic)
    join(player, group.name, group.member, group.topic)
    until(lambda: group.fetch(0, unique("m")), bool, "the records of the new topic")


def test_share_groups_that_are_switched_off_are_refused_by_every_api_and_lose_nothing() -> None:
    with Broker(SETTINGS) as broker, playing(broker) as player:
        group = Group(player)
        assert group.say((0, 4, [ACCEPT])) is ErrorCode.NONE
        player.look(feature("share.version", 0, upgrade_type=2))
        player.wait_until_applied()
        for response in (
            player.look(heartbeat(group.name, group.member, group.member_epoch)),
            group.ask_fetch(group.epoch),
            group.ask(group.epoch, (5, 9, [ACCEPT])),
            player.look(altered(group.name, {group.topic: {0: 5}})),
            player.look(deleted(group.name, group.topic)),
        ):
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION, response
        player.look(feature("share.version", 1))
        player.wait_until_applied()
        assert [(first, last) for first, last, _ in group.fetch(0)] == [(5, 9)]
