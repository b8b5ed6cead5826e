"""The offsets of a pipeline are committed to a consumer group, and no query waits for that, even without a broker.

Only stopping a query waits a moment for the last commit; afterwards nothing more is committed for its group.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from pessoa.client.librdkafka import is_passing
from pessoa.pipelines import group_offsets
from pessoa.pipelines.group_offsets import GroupOffsets, PartitionOffsets
from pessoa.testing import Broker
from tests.support.topics import eventually, make_topic


def committed(servers: str) -> list[int] | None:
    """None if there is no answer: a coordinator that has just started is busy reading."""
    # A client that has lost its coordinator may never find it again, so each question has a new one.
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("shown")], request_timeout=10)
    try:
        return [place.offset for place in asked["shown"].result(60).topic_partitions]
    except KafkaException as failure:
        if not is_passing(failure.args[0]):
            raise
        return None


def test_offsets_are_committed_though_the_broker_was_away_and_go_with_their_query(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    make_topic(servers, "input", partitions=1)
    groups = GroupOffsets({"bootstrap.servers": servers})
    groups.commit("shown", [("input", 0, 5)])
    eventually(lambda: committed(servers) == [5])
    broker.kill()
    groups.commit("shown", [("input", 0, 7)])
    groups.commit("shown", [("input", 0, 9)])
    broker.start()
    eventually(lambda: committed(servers) == [9])
    groups.forget("shown", deletes=True)
    eventually(lambda: committed(servers) == [])
    groups.close()


def test_a_commit_that_waits_for_a_broker_does_not_undo_what_a_user_sets_after_the_stop(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    make_topic(servers, "stopped", partitions=1)
    groups = GroupOffsets({"bootstrap.servers": servers})
    groups.commit("shown", [("stopped", 0, 5)])
    eventually(lambda: committed(servers) == [5])
    broker.kill()
    groups.commit("shown", [("stopped", 0, 7)])
    eventually(lambda: groups._current_group == "shown", pause_s=0.001)
    assert groups.stop_committing("shown", 0.2)
    broker.start()
    eventually(lambda: set_by_user(servers, "shown", 3))
    # The thread has had its turn again.
    groups.commit("another", [("stopped", 0, 1)])
    eventually(lambda: not groups._queued_offsets and groups._current_group is None)
    assert committed(servers) == [3]
    groups.close()


def set_by_user(servers: str, group: str, offset: int) -> bool:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition("stopped", 0, offset)])
    try:
        admin.alter_consumer_group_offsets([wanted], request_timeout=10)[group].result(60)
    except KafkaException as failure:
        if not is_passing(failure.args[0]):
            raise
        return False
    return True


class Coordinator:
    """Takes commits when it is let, and notes them."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.was_asked = threading.Event()
        self.answer = True
        # Groups that it refuses for good.
        self.refused: dict[str, int] = {}
        self.taken: list[PartitionOffsets] = []

    def alter(self, admin: Any, group_id: str, wanted: PartitionOffsets, is_given_up: object) -> bool:
        self.was_asked.set()
        assert self.may_answer.wait(60)
        if group_id in self.refused:
            self.refused[group_id] += 1
            return False
        if self.answer:
            self.taken.append(wanted)
        return self.answer


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    made = Coordinator()
    monkeypatch.setattr(group_offsets, "_alter", made.alter)
    monkeypatch.setattr(group_offsets, "PAUSE_AFTER_FAILURE_S", 0.0)
    yield made
    made.may_answer.set()


FIRST, SECOND = (("input", 0, 5),), (("input", 0, 7),)


def test_stopping_a_query_waits_for_the_commit_that_is_on_its_way(coordinator: Coordinator) -> None:
    groups = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"})
    groups.commit("shown", FIRST)
    assert coordinator.was_asked.wait(60)
    groups.commit("shown", SECOND)
    stopped: list[tuple[bool, list[PartitionOffsets]]] = []
    stopping = threading.Thread(
        target=lambda: stopped.append((groups.stop_committing("shown", 60), list(coordinator.taken)))
    )
    stopping.start()
    coordinator.may_answer.set()
    stopping.join(60)
    assert stopped == [(True, [FIRST, SECOND])]
    groups.close()


def test_a_cluster_that_is_away_is_not_waited_for_and_gets_nothing_afterwards(coordinator: Coordinator) -> None:
    groups = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"})
    groups.commit("shown", FIRST)
    assert coordinator.was_asked.wait(60)
    groups.commit("shown", SECOND)
    assert not groups.stop_committing("shown", 0.01)
    # The commit that was under way fails, and is not tried again; the one that waited is gone.
    coordinator.answer = False
    coordinator.may_answer.set()
    assert groups.stop_committing("shown", 60)
    coordinator.answer = True
    groups.commit("another", SECOND)
    eventually(lambda: coordinator.taken == [SECOND])
    groups.close()


def test_a_query_that_is_resumed_shows_its_offsets_again(coordinator: Coordinator) -> None:
    coordinator.may_answer.set()
    groups = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"})
    for _ in range(2):
        # The user may have set the group's offsets meanwhile.
        groups.commit("shown", FIRST)
        assert groups.stop_committing("shown", 60)
    assert coordinator.taken == [FIRST, FIRST]
    groups.close()


def test_a_group_that_is_refused_for_good_costs_another_none_of_its_commits(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.refused["forbidden"] = 0
    coordinator.may_answer.set()
    # So the thread rests after the refusal, and the commit below waits for its turn.
    monkeypatch.setattr(group_offsets, "PAUSE_AFTER_FAILURE_S", 1.0)
    groups = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"})
    groups.commit("forbidden", FIRST)
    eventually(lambda: coordinator.refused["forbidden"], pause_s=0.01)
    groups.commit("shown", SECOND)
    assert groups.stop_committing("shown", 60)
    assert coordinator.taken == [SECOND]
    groups.close()


def test_a_group_that_was_forgotten_while_it_failed_is_waited_for_when_it_is_used_again(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.refused["shown"] = 0
    coordinator.may_answer.set()
    monkeypatch.setattr(group_offsets, "PAUSE_AFTER_FAILURE_S", 1.0)
    groups = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"})
    groups.commit("shown", FIRST)
    eventually(lambda: coordinator.refused["shown"], pause_s=0.01)
    groups.forget("shown", deletes=False)
    coordinator.refused.clear()
    groups.commit("shown", SECOND)
    assert groups.stop_committing("shown", 60)
    assert coordinator.taken == [SECOND]
    groups.close()
