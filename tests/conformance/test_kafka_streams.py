"""Java's Kafka Streams on our brokers, with the classic protocol and with streams groups (KIP-1071): counts, joins,
interactive queries, exactly-once, standby tasks, applications and brokers killed and restarted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.client.cluster_client import Cluster as AskedCluster
from pessoa.client.config_admin import Change, ResourceType, alter_configs
from pessoa.client.group_admin import at_coordinator, list_groups
from pessoa.client.streams_group_admin import StreamsMember, describe_streams_group
from pessoa.testing import Broker
from pessoa.wire.api.describe_groups import DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from tests.kafka_streams import StreamsApp
from tests.support.clients import TIMEOUT_S, Reachable, unique, until
from tests.support.role_processes import Layout, RoleProcesses

pytestmark = pytest.mark.apache

# Short intervals, so that no test waits for the default ones.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.min.session.timeout.ms": "2000",
    "group.streams.session.timeout.ms": "6000",
    "transaction.state.log.num.partitions": "3",
}
PROTOCOLS = ("classic", "streams")
# A killed member leaves when its session times out; only in the classic protocol does the client set the timeout.
SESSION = {"classic": {"session_timeout_ms": "6000"}, "streams": {}}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleProcesses]:
    """Yield a cluster of three processes, with three replicas of every partition."""
    settings = {
        **SETTINGS,
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
    }
    layout = Layout(roles=dict.fromkeys((1, 2, 3), "broker,controller"), settings=settings)
    with RoleProcesses(tmp_path_factory.mktemp("processes"), layout) as nodes:
        yield nodes


def create_topics(broker: Reachable, partitions: dict[str, int], replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = [NewTopic(name, count, replicas) for name, count in partitions.items()]
    for future in admin.create_topics(wanted).values():
        future.result(TIMEOUT_S)


def produce(broker: Reachable, topic: str, *values: str, key: str | None = None) -> None:
    # Idempotent: no line may be written twice when a broker is killed between writing and answering.
    settings = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True}
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value, key=key)
    assert producer.flush(TIMEOUT_S) == 0


class Output:
    """The committed output of an application: the last value of each key, and all records in order."""

    def __init__(self, broker: Reachable, topic: str, partitions: int = 1) -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": unique("reader"),
            "isolation.level": "read_committed",
        }
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        self.last: dict[str, str] = {}
        self.all: list[tuple[str, str]] = []

    def read(self) -> dict[str, str]:
        for message in self._consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            key, value = (message.key() or b"").decode(), (message.value() or b"").decode()
            self.last[key] = value
            self.all.append((key, value))
        return self.last

    def wait_for(self, wanted: dict[str, str]) -> None:
        until(self.read, lambda seen: seen == wanted, f"the output {json.dumps(wanted)}")

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_word_count_is_exact_after_its_application_is_killed_and_answers_interactive_queries(
    broker: Broker, tmp_path: Path, protocol: str
) -> None:
    prefix, name = unique("wc") + "-", unique("word-count")
    create_topics(broker, {f"{prefix}lines": 2, f"{prefix}counts-out": 1})
    output = Output(broker, f"{prefix}counts-out")
    produce(broker, f"{prefix}lines", "ana bia", "ana")
    words = {"protocol": protocol, "prefix": prefix, "guarantee": "exactly_once_v2", **SESSION[protocol]}
    with StreamsApp(broker.bootstrap_servers, name, tmp_path / "one", **words) as app:
        app.wait_until_running()
        output.wait_for({"ana": "2", "bia": "1"})
        assert app.get("ana") == 2
        with AskedCluster(broker.bootstrap_servers) as cluster:
            kinds = {group.group_id: group.kind.lower() for group in list_groups(cluster)}
        assert kinds[name] == protocol
        app.kill()
    produce(broker, f"{prefix}lines", "bia rui")
    # Another directory: the state comes back from the changelog.
    with StreamsApp(broker.bootstrap_servers, name, tmp_path / "two", **words) as app:
        app.wait_until_running()
        output.wait_for({"ana": "2", "bia": "2", "rui": "1"})
        assert app.get("bia") == 2
        app.end()
    check_exactly_once(output)
    output.close()


def check_exactly_once(output: Output) -> None:
    """Assert that each change of a count was written once and in order."""
    for word in output.last:
        counts = [int(value) for key, value in output.all if key == word]
        assert counts == list(range(1, len(counts) + 1)), output.all


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_word_count_is_exact_while_the_brokers_that_coordinate_it_are_killed_and_restarted(
    processes: RoleProcesses, tmp_path: Path, protocol: str
) -> None:
    """Kill the coordinator of its group and, when that has restarted, the leader of its output topic."""
    prefix, name = unique("killed") + "-", unique("counting")
    create_topics(processes, {f"{prefix}lines": 2, f"{prefix}counts-out": 1}, replicas=3)
    output = Output(processes, f"{prefix}counts-out")
    words = {"protocol": protocol, "prefix": prefix, "guarantee": "exactly_once_v2", **SESSION[protocol]}
    lines = [f"ana bia{number % 3}" for number in range(30)]
    with StreamsApp(processes.bootstrap_servers, name, tmp_path, **words) as app:
        app.wait_until_running()
        produce(processes, f"{prefix}lines", *lines)
        output.wait_for(counted(lines))
        times = 1
        for victim, of in ((coordinator_of, name), (leader_of, f"{prefix}counts-out")):
            killed = victim(processes, of)
            # The kill follows these lines at once, while their transactions are open.
            produce(processes, f"{prefix}lines", *lines)
            processes.kill(killed)
            produce(processes, f"{prefix}lines", *lines)
            times += 2
            output.wait_for(counted(lines, times))
            processes.start(killed)
            wait_until_in_sync(processes)
        assert app.get("ana") == 150
        app.end()
    check_exactly_once(output)
    output.close()


def counted(lines: list[str], times: int = 1) -> dict[str, str]:
    words = Counter(word for line in lines for word in line.split())
    return {word: str(times * count) for word, count in words.items()}


def coordinator_of(processes: RoleProcesses, group: str) -> int:
    with AskedCluster(processes.bootstrap_servers) as cluster:
        return at_coordinator(cluster, group, lambda node: node)


class Led(NamedTuple):
    leader: int
    in_sync_count: int


def partitions_of(processes: RoleProcesses) -> dict[tuple[str, int], Led]:
    admin = AdminClient({"bootstrap.servers": processes.bootstrap_servers, "log_level": 0})
    return {
        (name, one.id): Led(one.leader, len(one.isrs))
        for name, topic in admin.list_topics(timeout=TIMEOUT_S).topics.items()
        for one in topic.partitions.values()
    }


def leader_of(processes: RoleProcesses, topic: str) -> int:
    return partitions_of(processes)[topic, 0].leader


def wait_until_in_sync(processes: RoleProcesses) -> None:
    until(
        lambda: partitions_of(processes),
        lambda partitions: all(one.in_sync_count == 3 for one in partitions.values()),
        "three replicas of everything in sync",
    )


def wait_for_two_instances(broker: Reachable, group: str, protocol: str) -> None:
    """Wait until both instances have tasks: as named static members, or as members of a streams group with standbys."""
    with AskedCluster(broker.bootstrap_servers) as cluster:
        if protocol == "classic":
            names = {f"{group}-one-1", f"{group}-other-1"}
            until(
                lambda: {one.group_instance_id for one in classic_members(cluster, group) if one.member_assignment},
                lambda seen: seen == names,
                "two static members",
            )
            return
        until(
            lambda: [(one.assignment.active, one.assignment.standby) for one in streams_members(cluster, group)],
            lambda tasks: len([1 for active, standby in tasks if active and standby]) == 2,
            "two members with active and standby tasks",
        )


def classic_members(cluster: AskedCluster, group: str) -> list[DescribedGroupMember]:
    def attempt(node: int) -> list[DescribedGroupMember]:
        request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
        return cluster.ask(request, DescribeGroupsResponse, node=node, name="describe").groups[0].members

    return at_coordinator(cluster, group, attempt)


def streams_members(cluster: AskedCluster, group: str) -> list[StreamsMember]:
    return describe_streams_group(cluster, group).members


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_instances_share_the_tasks_of_a_windowed_join_and_one_takes_over_from_the_other(
    broker: Broker, tmp_path: Path, protocol: str
) -> None:
    prefix, name = unique("join") + "-", unique("joining")
    create_topics(broker, {f"{prefix}left": 4, f"{prefix}right": 4, f"{prefix}joined-out": 1})
    output = Output(broker, f"{prefix}joined-out")
    words = {"protocol": protocol, "prefix": prefix, "shape": "joined", **SESSION[protocol]}
    # Static members in the classic protocol only; standbys are set by the client there, else in the group's configs.
    named: dict[str, dict[str, str]] = {"one": {}, "other": {}}
    if protocol == "classic":
        words["num_standby_replicas"] = "1"
        named = {one: {"group_instance_id": f"{name}-{one}"} for one in named}
    else:
        with AskedCluster(broker.bootstrap_servers) as cluster:
            alter_configs(cluster, (ResourceType.GROUP, name), [Change("streams.num.standby.replicas", "1")])
    with StreamsApp(broker.bootstrap_servers, name, tmp_path / "one", **words, **named["one"]) as one:
        one.wait_until_running()
        with StreamsApp(broker.bootstrap_servers, name, tmp_path / "other", **words, **named["other"]) as other:
            other.wait_until_running()
            wait_for_two_instances(broker, name, protocol)
            keys = [f"k{number}" for number in range(8)]
            for key in keys:
                produce(broker, f"{prefix}left", "l", key=key)
                produce(broker, f"{prefix}right", "r", key=key)
            output.wait_for(dict.fromkeys(keys, "l+r"))
            one.kill()
            for key in keys:
                produce(broker, f"{prefix}left", "m", key=f"{key}-again")
                produce(broker, f"{prefix}right", "s", key=f"{key}-again")
            joined = dict.fromkeys(keys, "l+r") | {f"{key}-again": "m+s" for key in keys}
            output.wait_for(joined)
            # The killed instance is started again, with its name and its directory.
            with StreamsApp(broker.bootstrap_servers, name, tmp_path / "one", **words, **named["one"]) as again:
                again.wait_until_running()
                wait_for_two_instances(broker, name, protocol)
                produce(broker, f"{prefix}left", "x", key="late")
                produce(broker, f"{prefix}right", "y", key="late")
                output.wait_for(joined | {"late": "x+y"})
                again.end()
            other.end()
    output.close()
