"""Share groups and streams groups in /v3, with real members: librdkafka's share consumer, and heartbeats of our own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from confluent_kafka import ShareConsumer

from pessoa.client.cluster_client import Cluster
from pessoa.client.group_admin import at_coordinator
from pessoa.wire.api.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from tests.services.rest_proxy.stage import PATIENCE, Rest
from tests.services.rest_proxy.test_rest_v3_resources import get_ok, status_and_error_code

POLL_S = 0.1


@contextmanager
def share_member(rest: Rest, group: str, topic: str, partitions: int) -> Iterator[None]:
    """Join the share group with a member, and wait until it has all partitions of the topic."""
    settings = {"bootstrap.servers": rest.bootstrap_servers, "group.id": group, "client.id": "worker"}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])

        def has_partitions() -> bool:
            consumer.poll(POLL_S)
            members = rest.get(f"{rest.cluster}/share-groups/{group}/consumers").json().get("data", [])
            assigned = [rest.http.get(each["assignments"]["related"]).json()["data"] for each in members]
            return [len(each) for each in assigned] == [partitions]

        rest.until(has_partitions, "the member has its partitions")
        yield


def test_a_share_group_is_shown_with_its_members_and_partitions_and_deleted_when_empty(rest: Rest) -> None:
    topic, group = rest.topic(2), f"share-{uuid4().hex[:12]}"
    path = f"{rest.cluster}/share-groups/{group}"
    with share_member(rest, group, topic, 2):
        shown = get_ok(rest, path)
        assert (shown["kind"], shown["share_group_id"], shown["state"]) == ("KafkaShareGroup", group, "STABLE")
        assert (shown["consumer_count"], shown["partition_count"]) == (1, 2)
        places = [(each["topic_name"], each["partition_id"]) for each in shown["assigned_topic_partitions"]]
        assert places == [(topic, 0), (topic, 1)]
        for each in shown["assigned_topic_partitions"]:
            assert rest.http.get(each["partition"]["related"]).status_code == 200
        assert shown in get_ok(rest, f"{rest.cluster}/share-groups")["data"]
        assert rest.http.get(shown["coordinator"]["related"]).status_code == 200
        [member] = rest.http.get(shown["consumers"]["related"]).json()["data"]
        assert (member["kind"], member["client_id"]) == ("KafkaShareGroupConsumer", "worker")
        assert rest.http.get(member["metadata"]["self"]).json() == member
        assignments = rest.http.get(member["assignments"]["related"]).json()["data"]
        assert [(each["topic_name"], each["partition_id"]) for each in assignments] == places
        # A group with a member is not deleted.
        assert status_and_error_code(rest.http.delete(path)) == (409, 409)
    rest.until(lambda: get_ok(rest, path)["consumer_count"] == 0, "the member has left")
    assert (get_ok(rest, path)["state"], get_ok(rest, path)["partition_count"]) == ("EMPTY", 2)
    assert rest.http.delete(path).status_code == 204
    assert status_and_error_code(rest.get(path)) == (404, 40405)


@pytest.mark.parametrize("kind", ["share-groups", "streams-groups"])
def test_an_unknown_group_and_a_group_of_another_type_get_40405(rest: Rest, kind: str) -> None:
    topic = rest.topic()
    consumer = rest.consumer()
    consumer.post("/subscription", {"topics": [topic]})
    rest.produce(topic, 1)
    consumer.read(1)
    tails = ["", "/consumers", "/consumers/x"] if kind == "share-groups" else ["", "/members", "/subtopologies"]
    for group in ("unknown", "with%00nul", consumer.group):
        for tail in tails:
            assert status_and_error_code(rest.get(f"{rest.cluster}/{kind}/{group}{tail}")) == (404, 40405), (
                group,
                tail,
            )
    assert status_and_error_code(rest.http.delete(f"{rest.cluster}/share-groups/unknown")) == (404, 40405)
    assert consumer.group not in [each.get("group_id") for each in get_ok(rest, f"{rest.cluster}/{kind}")["data"]]
    consumer.delete()


class StreamsMember:
    """Sends the heartbeats of a Kafka Streams application with one subtopology."""

    def __init__(self, rest: Rest, group: str, topic: str) -> None:
        self._cluster = Cluster(rest.bootstrap_servers)
        self._group, self._epoch = group, 0
        shape = Subtopology(
            subtopology_id="0",
            source_topics=[topic],
            source_topic_regex=[],
            state_changelog_topics=[],
            repartition_sink_topics=[],
            repartition_source_topics=[],
            copartition_groups=[],
        )
        self._topology = Topology(epoch=0, subtopologies=[shape])
        self._owned: list[TaskIds] = []

    def beat(self, epoch: int | None = None) -> StreamsGroupHeartbeatResponse:
        joins = self._epoch == 0
        request = StreamsGroupHeartbeatRequest(
            group_id=self._group,
            member_id="one",
            member_epoch=self._epoch if epoch is None else epoch,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=60_000 if joins else -1,
            topology=self._topology if joins else None,
            active_tasks=self._owned,
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process" if joins else None,
            client_tags=[] if joins else None,
        )

        def ask(node: int) -> StreamsGroupHeartbeatResponse:
            return self._cluster.ask(request, StreamsGroupHeartbeatResponse, node=node, name="streamsGroupHeartbeat")

        response = at_coordinator(self._cluster, self._group, ask)
        assert response.error_code == 0, response
        self._epoch = response.member_epoch
        if response.active_tasks:
            self._owned = [
                TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions)
                for each in response.active_tasks
            ]
        return response

    def wait_for_tasks(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._owned:
            assert time.monotonic() < deadline, "no tasks"
            self.beat()
            time.sleep(POLL_S)
        # Report the tasks as owned, so that the group becomes stable.
        self.beat()

    def leave(self) -> None:
        self.beat(epoch=-1)
        self._cluster.close()


def test_a_streams_group_is_shown_with_its_members_and_tasks(rest: Rest) -> None:
    topic, group = rest.topic(2), f"streams-{uuid4().hex[:12]}"
    member = StreamsMember(rest, group, topic)
    member.wait_for_tasks()
    shown = get_ok(rest, f"{rest.cluster}/streams-groups/{group}")
    assert (shown["kind"], shown["group_id"], shown["state"]) == ("KafkaStreamsGroup", group, "STABLE")
    assert (shown["member_count"], shown["subtopology_count"], shown["topology_epoch"]) == (1, 1, 0)
    assert shown in get_ok(rest, f"{rest.cluster}/streams-groups")["data"]
    [subtopology] = rest.http.get(shown["subtopologies"]["related"]).json()["data"]
    assert (subtopology["subtopology_id"], subtopology["source_topics"]) == ("0", [topic])
    assert rest.http.get(subtopology["metadata"]["self"]).json() == subtopology
    [one] = rest.http.get(shown["members"]["related"]).json()["data"]
    assert (one["member_id"], one["process_id"], one["is_classic"]) == ("one", "process", False)
    assert rest.http.get(one["metadata"]["self"]).json() == one
    for which in ("assignments", "target_assignment"):
        assignment = rest.http.get(one[which]["related"]).json()
        [tasks] = rest.http.get(assignment["active_tasks"]["related"]).json()["data"]
        assert (tasks["subtopology_id"], tasks["partition_ids"]) == ("0", [0, 1])
        assert rest.http.get(tasks["metadata"]["self"]).json() == tasks
        assert rest.http.get(assignment["standby_tasks"]["related"]).json()["data"] == []
        assert status_and_error_code(rest.http.get(assignment["metadata"]["self"] + "/lazy")) == (404, 404)
    members = f"{rest.cluster}/streams-groups/{group}/members"
    assert status_and_error_code(rest.get(f"{members}/unknown/assignments")) == (404, 404)
    member.leave()
