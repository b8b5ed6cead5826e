"""The engine commits the offsets of a query to a consumer group; no query waits for that, even without a broker.

Only stopping a query waits for the last commit, up to a timeout; afterwards nothing more is committed for its group.
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
    """Return the committed offsets; None if the coordinator cannot answer because it is still loading."""
    # A client that has lost its coordinator may never find it again, so each request has a new client.
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("shown")], request_timeout=10)
    try:
        return [place.offset for place in asked["shown"].result(60).topic_partitions]
    except KafkaException as failure:
        if not is_passing(failure.args[0]):
            raise
        return None


def test_group_offsets_are_committed_after_a_broker_restart_and_deleted_with_their_query(broker: Broker) -> None:
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


def test_a_pending_commit_does_not_overwrite_offsets_that_a_user_sets_after_the_stop(broker: Broker) -> None:
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
    # Once this commit is done, the thread has also dealt with the pending one.
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
    """A fake coordinator: it answers commits once `may_answer` is set, and collects those that it accepts."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.was_asked = threading.Event()
        self.answer = True
        # Groups whose commits are refused, with the number of refusals.
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


def test_stopping_a_query_waits_for_its_pending_commits(coordinator: Coordinator) -> None:
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


def test_stopping_a_query_does_not_wait_for_an_unreachable_cluster_and_drops_its_commits(
    coordinator: Coordinator,
) -> None:
    groups = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"})
    groups.commit("shown", FIRST)
    assert coordinator.was_asked.wait(60)
    groups.commit("shown", SECOND)
    assert not groups.stop_committing("shown", 0.01)
    # The commit in flight fails and is not retried; the queued one is dropped.
    coordinator.answer = False
    coordinator.may_answer.set()
    assert groups.stop_committing("shown", 60)
    coordinator.answer = True
    groups.commit("another", SECOND)
    eventually(lambda: coordinator.taken == [SECOND])
    groups.close()


def test_a_resumed_query_commits_its_offsets_again(coordinator: Coordinator) -> None:
    coordinator.may_answer.set()
    groups = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"})
    for _ in range(2):
        # The user may have set the group's offsets meanwhile.
        groups.commit("shown", FIRST)
        assert groups.stop_committing("shown", 60)
    assert coordinator.taken == [FIRST, FIRST]
    groups.close()


def test_a_group_whose_commits_are_refused_loses_no_commit_of_another_group(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.refused["forbidden"] = 0
    coordinator.may_answer.set()
    # The thread pauses after the refusal, so the commit below has to wait.
    monkeypatch.setattr(group_offsets, "PAUSE_AFTER_FAILURE_S", 1.0)
    groups = GroupOffsets({"bootstrap.servers": "127.0.0.1:1"})
    groups.commit("forbidden", FIRST)
    eventually(lambda: coordinator.refused["forbidden"], pause_s=0.01)
    groups.commit("shown", SECOND)
    assert groups.stop_committing("shown", 60)
    assert coordinator.taken == [SECOND]
    groups.close()


def test_a_group_forgotten_after_a_refused_commit_commits_again_when_it_is_reused(
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
