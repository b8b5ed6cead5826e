"""kafka-streams-application-reset, ours and Apache's, on our broker; ours also for an app of Pessoa's Streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pessoa.cli.streams_application_reset import is_internal
from pessoa.testing import Broker
from tests.apache.tool_server import Outcome, ToolServer
from tests.support.clients import TIMEOUT_S, create_topic, unique
from tests.tools.stage import run_ours

TOOL = "kafka-streams-application-reset"
Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(params=["ours", pytest.param("apache", marks=pytest.mark.apache)])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("PESSOA_HOME", str(tmp_path))
    if request.param == "ours":
        return run_ours
    tools: ToolServer = request.getfixturevalue("tools")
    return tools.run


def create(broker: Broker, name: str) -> str:
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    return name


def topics(broker: Broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=TIMEOUT_S).topics)


def make_filled_topic(broker: Broker, count: int) -> str:
    topic = create_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, str(number), partition=0, timestamp=1_700_000_000_000 + number * 1000)
    assert producer.flush(TIMEOUT_S) == 0
    return topic


def client(broker: Broker, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False})


def committed(broker: Broker, group: str, topic: str) -> int:
    consumer = client(broker, group)
    try:
        return consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset
    finally:
        consumer.close()


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = client(broker, group)
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_the_reset_sets_offsets_to_the_beginning_and_deletes_internal_topics_but_not_in_a_dry_run(
    broker: Broker, run: Run
) -> None:
    app, topic = unique("app"), make_filled_topic(broker, 5)
    commit(broker, app, topic, 4)
    inner = [create(broker, f"{app}-{name}") for name in ("a-changelog", "b-repartition", "output")]
    words = ("--application-id", app, "--bootstrap-server", broker.bootstrap_servers, "--input-topics", topic)
    lines = [
        f"Reset-offsets for input topics [{topic}]",
        f"Following input topics offsets will be reset to (for consumer group {app})",
        f"Topic: {topic} Partition: 0 Offset: 0",
        "Done.",
    ]
    dry = run(TOOL, *words, "--dry-run")
    assert dry.code == 0, dry.err
    first, *rest = dry.out.splitlines()
    assert first == "----Dry run displays the actions which will be performed when running Streams Reset Tool----"
    assert rest[:4] == lines
    assert sorted(rest[4].removeprefix("Deleting inferred internal topics [").rstrip("]").split(", ")) == inner[:2]
    assert rest[5:] == ["Done."]
    assert (committed(broker, app, topic), set(inner) <= topics(broker)) == (4, True)
    done = run(TOOL, *words)
    assert (done.code, done.out.splitlines()[:4]) == (0, lines)
    assert committed(broker, app, topic) == 0
    assert topics(broker) & set(inner) == {inner[2]}


@pytest.mark.parametrize(
    ("scenario", "offset", "note"),
    [
        (["--to-offset", "2"], 2, ""),
        (["--to-offset", "99"], 5, "New offset (99) is higher than latest offset. Value will be set to 5"),
        (["--to-latest"], 5, ""),
        (["--to-earliest"], 0, ""),
        (["--shift-by", "-1"], 2, ""),
        (["--shift-by", "-9"], 0, "New offset (-6) is lower than earliest offset. Value will be set to 0"),
        (["--to-datetime", "2023-11-14T22:13:23.000"], 3, ""),
    ],
)
def test_each_reset_scenario_sets_its_offset(
    broker: Broker, run: Run, scenario: list[str], offset: int, note: str
) -> None:
    app, topic = unique("app"), make_filled_topic(broker, 5)
    commit(broker, app, topic, 3)
    done = run(
        TOOL,
        "--application-id",
        app,
        "--bootstrap-server",
        broker.bootstrap_servers,
        "--input-topics",
        topic,
        *scenario,
    )
    assert done.code == 0, done.err
    assert f"Topic: {topic} Partition: 0 Offset: {offset}" in done.out.splitlines()
    assert note in done.out
    assert committed(broker, app, topic) == offset


def test_missing_topics_topics_that_are_not_internal_and_active_groups_are_refused(broker: Broker, run: Run) -> None:
    app, topic = unique("app"), make_filled_topic(broker, 1)
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    missing = run(TOOL, "--application-id", app, *servers, "--input-topics", "nenhum")
    assert (missing.code, "Following input topics are not found, skipping them\nTopic: nenhum" in missing.out) == (
        1,
        True,
    )
    wrong = run(TOOL, "--application-id", app, *servers, "--internal-topics", topic)
    assert (wrong.code, "Invalid topic specified in the --internal-topics option." in wrong.err) == (1, True)
    consumer = client(broker, app)
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.05)
    active = run(TOOL, "--application-id", app, *servers, "--input-topics", topic)
    assert (active.code, f"Consumer group '{app}' is still active and has following members" in active.err) == (1, True)
    forced = run(TOOL, "--application-id", app, *servers, "--input-topics", topic, "--force")
    assert (forced.code, f"Force deleting all active members in the group: {app}" in forced.out) == (0, True), (
        forced.err
    )
    consumer.close()


def test_the_reset_of_a_pessoa_streams_app_deletes_its_checkpoints_and_consumer_groups(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PESSOA_HOME", str(tmp_path))
    app, topic = unique("app"), make_filled_topic(broker, 2)
    state = tmp_path / "streams" / app
    (state / "queries").mkdir(parents=True)
    commit(broker, f"pessoa-{app}-saida", topic, 2)
    words = ("--application-id", app, "--bootstrap-server", broker.bootstrap_servers)
    refused = run_ours(TOOL, *words, "--to-latest")
    assert (refused.code, "no other scenario can be had" in refused.err) == (1, True)
    dry = run_ours(TOOL, *words, "--dry-run")
    assert f"Deleting checkpoints in {state} and consumer groups [pessoa-{app}-saida]" in dry.out
    assert state.is_dir()
    assert run_ours(TOOL, *words).code == 0
    assert not state.exists()
    assert committed(broker, f"pessoa-{app}-saida", topic) < 0


def test_internal_topics_are_known_by_their_names() -> None:
    assert is_internal("app-x-changelog", "app")
    assert is_internal("app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000007-topic", "app")
    assert not is_internal("app2-x-changelog", "app")
    assert not is_internal("app-x-changelog-2", "app")
