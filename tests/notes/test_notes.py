"""The commands of the notes, typed in their order against `pessoa up`, print what the notes show.

The notes name ports, so the test needs exactly those, and fails if another program has one of them. It is one test,
because its steps depend on each other and a machine has these ports once. Names of containers are replaced by
localhost; nothing else is changed.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from pessoa import __version__
from pessoa.platform.ports import is_listened_on
from tests.notes.terminal import TIMEOUT_S, Desk, Running, Shown, until

PORTS = (9092, 9093, 9094, 9095, 19092, 29092, 39092, 8081, 8082)
# The services that the notes use, without Connect: it would need Spark, which has tests of its own.
UP = "pessoa up --detach --services schema-registry,kafka-rest"
LINES = 5
WAIT_FOR_CONNECTIONS_S = 30.0
POLL_S = 0.05
# Lines go to random partitions. With so many lines one of three partitions stays empty once in 10^17 runs.
MOST_LINES = 100


def bound(port: int) -> socket.socket | None:
    """Return a socket bound to the port, or None; a server may still bind it, as long as the socket does not listen."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
    except OSError:
        made.close()
        return None
    return made


def taken_ports(hold: ExitStack) -> list[int]:
    """Return the ports that another program listens on. The others are held by `hold`, because some are in the range of
    ephemeral ports; a port of a connection may be free soon, so wait for it."""
    deadline = time.monotonic() + WAIT_FOR_CONNECTIONS_S
    taken = []
    for port in PORTS:
        while (made := bound(port)) is None and not is_listened_on("127.0.0.1", port):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        if made is None:
            taken.append(port)
        else:
            hold.enter_context(made)
    return taken


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with ExitStack() as hold:
        if taken := taken_ports(hold):
            pytest.skip(f"the notes name ports that another program has: {taken}")
        desk = Desk(tmp_path)
        try:
            up = desk(UP)
            assert up.code == 0, up
            yield desk
        finally:
            desk.close()
            desk("pessoa down")


def is_shown(line: str, consumers: list[Running]) -> bool:
    return any(line in one.lines for one in consumers)


def type_and_see(producer: Running, consumers: list[Running], words: str) -> list[str]:
    """Type lines, each after a consumer has printed the one before, until every consumer has printed one."""
    typed: list[str] = []
    while len(typed) < LINES or not all(set(typed) & set(one.lines) for one in consumers):
        assert len(typed) < MOST_LINES, "a consumer is left out"
        typed.append(f"{words} {len(typed)}")
        producer.type(typed[-1])
        until(partial(is_shown, typed[-1], consumers), f"{typed[-1]} is shown")
    return typed


def topics_producers_and_consumers_of_a_group(desk: Desk) -> None:
    created = desk(
        "kafka-topics --create --bootstrap-server localhost:29092 --replication-factor 3 --partitions 3"
        " --topic meutopico"
    )
    assert created == Shown("Created topic meutopico.\n", "", 0)

    alone = desk("kafka-topics")
    assert alone.code == 1
    assert "Create, delete, describe, or change a topic." in alone.err

    listed = desk("kafka-topics --list --bootstrap-server localhost:29092")
    assert (listed.err, listed.code) == ("", 0)
    # The services' own topics begin with an underscore.
    assert [line for line in listed.out.splitlines() if not line.startswith("_")] == ["meutopico"]

    producer = desk.another_terminal("kafka-console-producer --broker-list localhost:29092 --topic meutopico")
    consumer = desk.another_terminal("kafka-console-consumer --bootstrap-server localhost:29092 --topic meutopico")
    hellos = say_hello_until_heard(desk, producer, consumer)
    typed = type_and_see(producer, [consumer], "mensagem")
    heard = consumer.ctrl_c()
    assert [line for line in heard.out.splitlines() if line != "oi"] == typed
    assert f"Processed a total of {len(heard.out.splitlines())} messages" in heard.err

    consumer = desk.another_terminal(
        "kafka-console-consumer --bootstrap-server localhost:29092 --topic meutopico --from-beginning"
    )
    until(lambda: len(consumer.lines) >= hellos + len(typed), "everything from the beginning")
    assert sorted(consumer.ctrl_c().out.splitlines()) == sorted(["oi"] * hellos + typed)

    command = "kafka-console-consumer --bootstrap-server localhost:29092 --topic meutopico --from-beginning --group a"
    group = [desk.another_terminal(command) for _ in range(3)]
    until(lambda: len(set(rows_of_group_a(desk).values())) == 3, "each of the three has a partition")
    typed = type_and_see(producer, group, "distribuída")
    shares = [[line for line in one.lines if line in typed] for one in group]
    assert sorted(line for share in shares for line in share) == sorted(typed)
    assert producer.ctrl_d().code == 0

    check_topic(desk("kafka-topics --describe --bootstrap-server localhost:29092 --topic meutopico"))
    until(lambda: lag_of_group_a(desk) == ["0", "0", "0"], "the group has committed what it read")
    check_group(desk("kafka-consumer-groups --group a --bootstrap-server localhost:29092 --describe"))


def say_hello_until_heard(desk: Desk, producer: Running, consumer: Running) -> int:
    """Type lines until the consumer, which reads only lines typed after it joined, prints one; return their number."""
    deadline = time.monotonic() + TIMEOUT_S
    for hellos in count(1):
        producer.type("oi")
        until(partial(everything_is_written, desk, hellos), "a hello is written")
        if consumer.lines:
            return hellos
        assert time.monotonic() < deadline, f"the consumer printed none of {hellos} lines"
    raise AssertionError


def everything_is_written(desk: Desk, count: int) -> bool:
    offsets = desk("kafka-get-offsets --bootstrap-server localhost:29092 --topic meutopico").out.split()
    return sum(int(line.rpartition(":")[2]) for line in offsets) >= count


def group_a(desk: Desk) -> list[list[str]]:
    shown = desk("kafka-consumer-groups --group a --bootstrap-server localhost:29092 --describe").out
    return [line.split() for line in shown.splitlines() if line.startswith("a ")]


def rows_of_group_a(desk: Desk) -> dict[str, str]:
    """Return partition → consumer for every partition that has a consumer."""
    return {row[2]: row[6] for row in group_a(desk) if row[6] != "-"}


def lag_of_group_a(desk: Desk) -> list[str]:
    return [row[5] for row in group_a(desk)]


def check_topic(described: Shown) -> None:
    assert (described.err, described.code) == ("", 0)
    head, *partitions = described.out.splitlines()
    assert re.fullmatch(
        r"Topic: meutopico\tTopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 3\tConfigs: .*", head
    )
    leaders = []
    for number, line in enumerate(partitions):
        found = re.match(
            rf"\tTopic: meutopico\tPartition: {number}\tLeader: (\d)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)\t", line
        )
        assert found, line
        leaders.append(found[1])
        assert sorted(found[2].split(",")) == sorted(found[3].split(",")) == ["1", "2", "3"]
    assert sorted(leaders) == ["1", "2", "3"]


def check_group(described: Shown) -> None:
    assert (described.err, described.code) == ("", 0)
    empty, heading, *rows = described.out.splitlines()
    assert empty == ""
    assert heading.split() == (
        "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID".split()
    )
    cells = [row.split() for row in rows]
    assert sorted(row[2] for row in cells) == ["0", "1", "2"]
    assert len({row[6] for row in cells}) == 3
    for row in cells:
        assert (row[0], row[1], row[3], row[5], row[7]) == ("a", "meutopico", row[4], "0", "/127.0.0.1")
        assert row[6].startswith("console-consumer-")
        assert row[8] == "console-consumer"


def zookeeper_and_a_hundred_numbers(desk: Desk) -> None:
    create = (
        "kafka-topics --create --topic mytopic-test-2020 --partitions 1 --replication-factor 1 --if-not-exists"
        " --zookeeper zookeeper:2181"
    )
    warning = "Warning: --zookeeper is deprecated and there is no ZooKeeper; using --bootstrap-server localhost:9092.\n"
    assert desk(create) == Shown("Created topic mytopic-test-2020.\n", warning, 0)
    again = desk(create)
    assert (again.err, again.code) == (warning, 0)

    listed = desk("kafka-topics --list --zookeeper zookeeper:2181")
    assert "mytopic-test-2020" in listed.out.splitlines()
    assert (listed.err, listed.code) == (warning, 0)

    produced = desk(
        "seq 100 | kafka-console-producer --request-required-acks 1 --broker-list localhost:9092"
        " --topic meu-topico-legal-jeff && echo 'Produced 100 messages.'"
    )
    assert (produced.out, produced.code) == ("Produced 100 messages.\n", 0)

    described = desk("kafka-topics --describe meu-topico-legal-jeff --zookeeper zookeeper:2181")
    # The notes say only "describe a topic": this one is described.
    assert [line.split("\t")[0] for line in described.out.splitlines() if line[0] != "\t"] == [
        "Topic: meu-topico-legal-jeff"
    ]
    assert (described.err, described.code) == (warning, 0)

    consumed = desk(
        "kafka-console-consumer --bootstrap-server localhost:9092 --topic meu-topico-legal-jeff --from-beginning"
        " --max-messages 100"
    )
    assert consumed.out.splitlines() == [str(number) for number in range(1, 101)]
    assert "Processed a total of 100 messages" in consumed.err
    assert consumed.code == 0


def the_other_address_of_tutorials(desk: Desk) -> None:
    assert desk("kafka-topics --create --topic de-19092 --bootstrap-server localhost:19092").code == 0
    assert desk("echo oi | kafka-console-producer --bootstrap-server localhost:19092 --topic de-19092").code == 0
    read = desk(
        "kafka-console-consumer --bootstrap-server localhost:39092 --topic de-19092 --from-beginning --max-messages 1"
    )
    assert read.out == "oi\n"


# The notes' curl commands with a part of their output, empty if there is none. -s suppresses curl's progress
# output, for which there is no terminal.
INSTANCE = "http://localhost:8082/consumers/go_json_consumer/instances/my_consumer_instance"
CURL = (
    ('curl -s "http://localhost:8082/topics"', '"topicgo1"'),
    ('curl -s "http://localhost:8082/topics/topicgo1"', '"name":"topicgo1"'),
    ('curl -s "http://localhost:8082/topics/topicgo1/partitions"', '[{"partition":0,"leader":'),
    (
        """curl -s -X POST -H "Content-Type: application/vnd.kafka.json.v2+json" \\
      -H "Accept: application/vnd.kafka.v2+json" \\
      --data '{"records":[{"value":{"msg":"success 4"}}]}' "http://localhost:8082/topics/topicgo1" """,
        '{"offsets":[{"partition":0,"offset":0,"error_code":null,"error":null}]',
    ),
    (
        """curl -s -X POST -H "Content-Type: application/vnd.kafka.v2+json" \\
      --data '{"name": "my_consumer_instance", "format": "json", "auto.offset.reset": "earliest"}' \\
      http://localhost:8082/consumers/go_json_consumer""",
        f'{{"instance_id":"my_consumer_instance","base_uri":"{INSTANCE}"}}',
    ),
    (
        f"""curl -s -X POST -H "Content-Type: application/vnd.kafka.v2+json" --data '{{"topics":["topicgo1"]}}' \\
 {INSTANCE}/subscription""",
        "",
    ),
    (
        f"""curl -s -X GET -H "Accept: application/vnd.kafka.json.v2+json" \\
  {INSTANCE}/records""",
        '[{"topic":"topicgo1","key":null,"value":{"msg":"success 4"},"partition":0,"offset":0}]',
    ),
    (
        f"""curl -s -X DELETE -H "Content-Type: application/vnd.kafka.v2+json" \\
      {INSTANCE}""",
        "",
    ),
)


def the_services_answer_curl(desk: Desk) -> None:
    assert desk("curl -s localhost:8081/subjects") == Shown("[]", "", 0)
    assert '"_schemas"' in desk("curl -s localhost:8082/topics").out
    assert desk("kafka-topics --create --topic topicgo1 --bootstrap-server localhost:9092").code == 0
    for typed, answer in CURL:
        shown = [desk(typed)]
        if is_early(typed, shown[-1]):
            until(partial(is_known, desk, typed, shown), "the topic is known, and the consumer has its partition")
        out, code = shown[-1].out, shown[-1].code
        assert (answer in out if answer else out == "", code) == (True, 0), (typed, shown)


def is_early(typed: str, shown: Shown) -> bool:
    """Return whether the command must be repeated: the broker lacks the topic, or the consumer has no partition."""
    if typed == CURL[0][0]:
        return '"topicgo1"' not in shown.out
    return shown.out == "[]" or shown.out.startswith('{"error_code":40401,')


def is_known(desk: Desk, typed: str, shown: list[Shown]) -> bool:
    shown.append(desk(typed))
    return not is_early(typed, shown[-1])


BANNER = "This CLI is intended for development only, not for production\nhttps://docs.confluent.io/current/cli/index.html\n\n"


def confluent(desk: Desk) -> None:
    """Type every `confluent` command of the notes; the services are those of `pessoa up`."""
    home = desk("confluent current").out.removeprefix(BANNER).strip()
    assert (Path(home) / "run.json").exists()
    using = f"Using CONFLUENT_CURRENT: {home}\n"
    for typed, told in (
        ("confluent list", "Available services:\n  kafka\n  schema-registry\n  kafka-rest\n"),
        ("echo maçã | confluent produce frutas", ""),
        ("confluent consume frutas --from-beginning --max-messages 1", "maçã\n"),
        ("confluent status kafka", "kafka is [UP]\n"),
        ("confluent status kafka-rest", "kafka-rest is [UP]\nschema-registry is [UP]\nkafka is [UP]\n"),
        ("confluent stop kafka-rest", f"{using}Stopping kafka-rest\nkafka-rest is [DOWN]\n"),
        ("confluent start kafka-rest", restarted(using)),
        ("confluent version kafka", f"kafka: {__version__}\n"),
        (
            "confluent help status",
            "Usage: confluent status [<service> | connectors | <connector>]\n\nSay what is up.\n",
        ),
    ):
        shown = desk(typed)
        found = shown.out.removeprefix(BANNER)
        # An installation with more services than the notes need lists more, in the same order.
        assert (found if typed != "confluent list" else found[: len(told)], shown.code) == (told, 0), typed
    assert all(f"broker-{number}.log" in desk("confluent log kafka -5").out for number in (1, 2, 3))
    # top needs a terminal, so a stub prints the process ids that it is given.
    stub = "mkdir -p $PESSOA_HOME/stub && printf '#!/bin/sh\\necho watched $2\\n' > $PESSOA_HOME/stub/top"
    watched = desk(f"{stub} && chmod +x $PESSOA_HOME/stub/top && PATH=$PESSOA_HOME/stub:$PATH confluent top kafka")
    assert re.fullmatch(r"watched \d+,\d+,\d+\n", watched.out.removeprefix(BANNER)), watched


def restarted(using: str) -> str:
    needs = "".join(f"{name} is already running. Try restarting if needed\n" for name in ("kafka", "schema-registry"))
    return f"{using}{needs}Starting kafka-rest\nkafka-rest is [UP]\n"


def stop_and_lose_nothing(desk: Desk) -> None:
    assert desk("pessoa status").code == 0
    assert desk("seq 100 | kafka-console-producer --bootstrap-server localhost:9092 --topic de-19092").code == 0
    stopped = desk("pessoa down")
    assert re.fullmatch(
        r"Stopped broker-1, broker-2, broker-3, schema-registry, kafka-rest in \d+\.\d s\.\n", stopped.out
    )
    assert desk("pessoa status").code == 3
    with ExitStack() as hold:
        assert not taken_ports(hold)

    assert desk(UP).code == 0
    read = desk(
        "kafka-console-consumer --bootstrap-server localhost:29092 --topic de-19092 --from-beginning --max-messages 101"
    )
    assert sorted(read.out.split()) == sorted(["oi", *map(str, range(1, 101))])


STEPS = (
    topics_producers_and_consumers_of_a_group,
    zookeeper_and_a_hundred_numbers,
    the_other_address_of_tutorials,
    the_services_answer_curl,
    confluent,
    stop_and_lose_nothing,
)


def test_every_command_of_the_notes_prints_what_the_notes_show(desk: Desk) -> None:
    for step in STEPS:
        step(desk)
