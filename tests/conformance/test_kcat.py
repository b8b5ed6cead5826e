"""kcat, the command-line client of librdkafka, against our broker; skipped where Debian's package is not installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pessoa.testing import Broker
from tests.support.clients import CODECS, TIMEOUT_S, Reachable, create_topic, unique, until
from tests.support.logged_process import LoggedProcess
from tests.support.lossy_proxy import LossyProxy
from tests.support.topics import eventually

pytestmark = [
    pytest.mark.client("kcat"),
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (on Debian: apt-get install kcat)"),
]

feature = pytest.mark.feature


def kcat(broker: Reachable, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    # Without -E a configuration file of the user would be read.
    command = ["kcat", "-E", "-b", broker.bootstrap_servers, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)


def run(broker: Reachable, *arguments: str, stdin: str = "") -> str:
    done = kcat(broker, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def settings(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("-X", pair)]


def produce(broker: Reachable, topic: str, lines: list[str], *arguments: str) -> None:
    run(broker, "-P", "-t", topic, *arguments, stdin="\n".join(lines))


def consume(broker: Reachable, topic: str, *arguments: str) -> list[str]:
    """Return all values up to the end of the topic."""
    return run(broker, "-C", "-t", topic, "-e", "-q", *arguments).splitlines()


def consume_until(broker: Reachable, topic: str, wanted: list[str], *arguments: str) -> None:
    """Consume until the values are the wanted ones: the last record, or a marker, may become visible a moment later."""
    until(lambda: consume(broker, topic, *arguments), lambda found: found == wanted, "the end of the topic")


def numbers(count: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@feature("errors")
def test_kcat_lists_brokers_and_leaders_and_reports_an_unknown_topic(kafka: Broker, topic: str) -> None:
    listed = json.loads(run(kafka, "-L", "-J", "-t", topic))
    assert [one["name"] for one in listed["brokers"]] == [kafka.bootstrap_servers]
    [described] = listed["topics"]
    assert [one["leader"] for one in described["partitions"]] == [1, 1, 1]
    with Broker({"auto.create.topics.enable": "false"}) as strict:
        done = kcat(strict, "-C", "-t", "absent", "-e")
        assert done.returncode != 0
        assert "Unknown topic or partition" in done.stderr


@feature("acks")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_kind_of_acks(kafka: Broker, topic: str, acks: str) -> None:
    produce(kafka, topic, numbers(100), "-p", "1", *settings(f"acks={acks}"))
    # A producer with acks=0 may exit before the broker has read its records.
    consume_until(kafka, topic, numbers(100), "-p", "1")


@feature("codecs")
@pytest.mark.parametrize("codec", CODECS)
def test_records_compressed_with_any_codec_are_consumed_as_produced(kafka: Broker, topic: str, codec: str) -> None:
    produce(kafka, topic, numbers(500, "value-"), "-p", "0", "-z", codec)
    assert consume(kafka, topic, "-p", "0") == numbers(500, "value-")


@feature("keys")
def test_a_key_always_goes_to_the_same_partition(kafka: Broker, topic: str) -> None:
    produce(kafka, topic, [f"key-{number % 10}:{number}" for number in range(100)], "-K", ":")
    found = [line.split(" ") for line in consume(kafka, topic, "-f", "%k %p %s\n")]
    assert sorted(int(value) for _, _, value in found) == list(range(100))
    assert len({(key, partition) for key, partition, _ in found}) == 10


@feature("headers", "timestamps")
def test_headers_are_consumed_as_produced_and_timestamps_as_create_time(kafka: Broker, topic: str) -> None:
    produce(kafka, topic, ["v"], "-p", "0", "-H", "a=1", "-H", "b=", "-H", "a=2")
    [line] = consume(kafka, topic, "-p", "0", "-J")
    record = json.loads(line)
    assert record["headers"] == ["a", "1", "b", "", "a", "2"]
    assert record["tstype"] == "create"


@feature("timestamps")
def test_records_of_a_topic_with_log_append_time_are_printed_with_that_timestamp_type(kafka: Broker) -> None:
    topic = create_topic(kafka, config={"message.timestamp.type": "LogAppendTime"})
    produce(kafka, topic, ["v"])
    [line] = consume(kafka, topic, "-J")
    assert json.loads(line)["tstype"] == "logappend"


@feature("sizes")
def test_records_above_the_fetch_size_are_consumed_and_those_above_max_message_bytes_are_refused(kafka: Broker) -> None:
    topic = create_topic(kafka, config={"max.message.bytes": "3000000"})
    produce(kafka, topic, ["x" * 2_500_000], *settings("message.max.bytes=9000000"))
    found = consume(kafka, topic, *settings("fetch.message.max.bytes=1000", "fetch.max.bytes=9000000"))
    assert [len(line) for line in found] == [2_500_000]
    refused = kcat(kafka, "-P", "-t", topic, *settings("message.max.bytes=9000000"), stdin="x" * 4_000_000)
    assert "Message size too large" in refused.stderr


@feature("seek")
def test_kcat_reads_from_an_offset_an_offset_relative_to_the_end_or_a_timestamp(kafka: Broker, topic: str) -> None:
    produce(kafka, topic, numbers(10), "-p", "0")
    assert consume(kafka, topic, "-p", "0", "-o", "7") == numbers(10)[7:]
    assert consume(kafka, topic, "-p", "0", "-o", "-2") == numbers(10)[8:]
    assert consume(kafka, topic, "-p", "0", "-o", "end") == []
    assert consume(kafka, topic, "-p", "0", "-o", "s@1000") == numbers(10)
    found = run(kafka, "-Q", "-t", f"{topic}:0:1000", "-t", f"{topic}:1:-1")
    assert set(found.splitlines()) == {f"{topic} [0] offset 0", f"{topic} [1] offset 0"}


class Member(LoggedProcess):
    """A kcat that is a group member: it prints the records that it reads, and its assignments to standard error."""

    def __init__(self, broker: Reachable, topic: str, group: str, log: Path) -> None:
        tuning = settings("auto.offset.reset=earliest", "heartbeat.interval.ms=200", "reconnect.backoff.ms=10")
        command = ["kcat", "-E", "-b", broker.bootstrap_servers, "-G", group, *tuning, "-u", topic]
        super().__init__(command, log, errors=log.with_suffix(".errors"))

    @property
    def partitions(self) -> set[int]:
        last = ["", *re.findall(r".*rebalanced.*\n", self.errors.read_text())][-1]
        return {int(index) for index in re.findall(r"\[(\d+)\]", last)} if "assigned" in last else set()


def wait_until_assigned(members: list[Member], sizes: list[int]) -> None:
    def is_assigned() -> bool:
        owned = [member.partitions for member in members]
        return sorted(map(len, owned)) == sizes and set().union(*owned) == {0, 1, 2}

    eventually(is_assigned, TIMEOUT_S, about=f"an assignment of {sizes} partitions to {members}")


@feature("groups", "rebalances")
def test_a_group_grows_to_four_members_and_shrinks_again(kafka: Broker, topic: str, tmp_path: Path) -> None:
    group, shapes = unique("group"), {1: [3], 2: [1, 2], 3: [1, 1, 1], 4: [0, 1, 1, 1]}
    with ExitStack() as stack:
        members: list[Member] = []
        for count in (1, 2, 3, 4):
            members.append(stack.enter_context(Member(kafka, topic, group, tmp_path / str(count))))
            wait_until_assigned(members, shapes[count])
        for count in (3, 2, 1):
            members.pop(0).stop()
            wait_until_assigned(members, shapes[count])
        members.pop().stop()


@feature("commits")
def test_a_group_resumes_where_it_committed(kafka: Broker) -> None:
    topic, group = create_topic(kafka), unique("group")
    produce(kafka, topic, numbers(10))
    tuning = settings("auto.offset.reset=earliest")
    assert run(kafka, "-G", group, "-c", "4", "-q", *tuning, topic).splitlines() == numbers(4)
    assert run(kafka, "-G", group, "-e", "-q", *tuning, topic).splitlines() == numbers(10)[4:]


@feature("idempotence")
def test_an_idempotent_producer_writes_each_record_once_when_responses_are_lost(lossy_kafka: LossyProxy) -> None:
    topic = create_topic(lossy_kafka)
    lossy_kafka.lose_answers(3)
    tuning = settings(
        "enable.idempotence=true", "batch.num.messages=10", "retry.backoff.ms=1", "reconnect.backoff.ms=1"
    )
    produce(lossy_kafka, topic, numbers(300), *tuning)
    # A cut connection may take several answers with it, which then count as one.
    assert lossy_kafka.lost_count > 0
    assert consume(lossy_kafka, topic) == numbers(300)


@feature("transactions")
def test_read_committed_consumers_read_only_committed_transactions(kafka: Broker) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, numbers(20, "kept-"), *settings(f"transactional.id={unique('kcat')}"))
    # kcat itself has no way to abort.
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("aborting")})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"dropped")
    assert producer.flush(TIMEOUT_S) == 0
    committed, uncommitted = settings("isolation.level=read_committed"), settings("isolation.level=read_uncommitted")
    assert consume(kafka, topic, *uncommitted) == [*numbers(20, "kept-"), "dropped"]
    # The end of a transaction is answered before its markers are written.
    consume_until(kafka, topic, numbers(20, "kept-"), *committed)
    producer.abort_transaction(TIMEOUT_S)
    produce(kafka, topic, ["last"])
    assert consume(kafka, topic, *uncommitted) == [*numbers(20, "kept-"), "dropped", "last"]
    consume_until(kafka, topic, [*numbers(20, "kept-"), "last"], *committed)


@feature("restart")
def test_a_group_member_continues_after_a_broker_restart(tmp_path: Path) -> None:
    with Broker() as broker:
        topic = create_topic(broker)
        with Member(broker, topic, "survivors", tmp_path / "member") as member:
            produce(broker, topic, numbers(20))
            eventually(lambda: member.lines == numbers(20), TIMEOUT_S, about="the first records")
            broker.restart()
            produce(broker, topic, numbers(20, "later-"))
            everything = numbers(20) + numbers(20, "later-")
            eventually(lambda: member.lines == everything, TIMEOUT_S, about="the records after the restart")
            member.stop()
