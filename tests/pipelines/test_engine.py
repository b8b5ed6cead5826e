"""The engine on a real Spark and a real broker: queries are started, paused, resumed, deleted, restored and refused."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from pessoa.pipelines.engine import Engine, EngineRefused
from pessoa.pipelines.plan import BYTES, Aggregate, Column, Sink, Source
from pessoa.pipelines.queries import Delivery, QuerySpec, SpecRefused
from pessoa.pipelines.traces import empty_folder
from pessoa.testing import Broker
from tests.support.topics import eventually, fill, make_topic, read_all

FLOWS = "tests.pipelines.flows"


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    for topic in ("input", "output", "poisoned", "shouted"):
        make_topic(broker.bootstrap_servers, topic)
    fill(broker.bootstrap_servers, "input", ((b"k%d" % (number % 7), b"v%d" % number) for number in range(1200)))
    return broker.bootstrap_servers


@pytest.fixture
def engine(servers: str, spark_address: str, tmp_path: Path) -> Iterator[Engine]:
    with Engine(servers, home=tmp_path, spark_remote=spark_address, state_topic=None) as running:
        yield running


def values(servers: str, topic: str) -> list[str]:
    return sorted(message.value().decode() for message in read_all(servers, topic))


def test_an_exactly_once_query_writes_each_record_once_over_a_pause_and_an_engine_restart(
    servers: str, spark_address: str, tmp_path: Path
) -> None:
    expected = sorted(f"v{number}" for number in range(1200))
    with Engine(servers, home=tmp_path, spark_remote=spark_address, state_topic="queries-1") as engine:
        engine.start(
            QuerySpec("copy", start_function=f"{FLOWS}:copy", topic="output", delivery="exactly-once", slots=2)
        )
        eventually(lambda: values(servers, "output") == expected, about=engine.queries)
        eventually(lambda: engine.query("copy").status().progress.lag == 0)
        engine.pause("copy")
        assert engine.query("copy").status().state == "PAUSED"
        fill(servers, "input", [(b"late", b"late")])
        engine.resume("copy")
        eventually(lambda: values(servers, "output") == sorted([*expected, "late"]), about=engine.queries)
    fill(servers, "input", [(b"later", b"later")])
    with Engine(servers, home=tmp_path, spark_remote=spark_address, state_topic="queries-1") as engine:
        assert [status.id for status in engine.queries()] == ["copy"]
        eventually(lambda: values(servers, "output") == sorted([*expected, "late", "later"]), about=engine.queries)
        # The group of the query shows its offsets, as for a consumer.
        admin = AdminClient({"bootstrap.servers": servers})

        def committed() -> int:
            request = [ConsumerGroupTopicPartitions("pessoa-copy")]
            found = admin.list_consumer_group_offsets(request)["pessoa-copy"].result(30)
            return sum(place.offset for place in found.topic_partitions)

        eventually(lambda: committed() == 1202)
        engine.delete("copy")
        assert engine.queries() == []
    with Engine(servers, home=tmp_path, spark_remote=spark_address, state_topic="queries-1") as engine:
        assert engine.queries() == [], "a deleted query is forgotten"


def test_an_at_least_once_plan_restarted_exactly_once_continues_from_its_checkpoint_and_loses_nothing(
    servers: str, engine: Engine
) -> None:
    """At least once, the checkpoint is written beside the batches; the exactly-once query then depends on it."""
    make_topic(servers, "planned")
    plan = Sink(Source("input", BYTES, BYTES), "planned", BYTES, BYTES)
    engine.start(QuerySpec("planned", plan=plan, speed="micro-batch"))
    eventually(lambda: len(values(servers, "planned")) >= 1200, about=engine.queries)
    engine.release("planned")
    fill(servers, "input", [(b"after", b"after")])
    engine.start(QuerySpec("planned", plan=plan, delivery="exactly-once"))
    eventually(lambda: "after" in values(servers, "planned"), about=engine.queries)
    eventually(lambda: engine.query("planned").status().progress.lag == 0)
    expected = {message.value().decode() for message in read_all(servers, "input")}
    assert set(values(servers, "planned")) == expected
    assert engine.query("planned").status().progress.batch_id > 0, "it began anew"


def test_a_query_that_keeps_failing_becomes_failed_with_the_exception_of_its_function(
    engine: Engine, servers: str
) -> None:
    fill(servers, "poisoned", [(b"k", b"fine"), (b"k", b"poison")])
    engine.start(QuerySpec("bad", start_function=f"{FLOWS}:fails_on_poison", topic="shouted", max_restarts=1))
    eventually(lambda: engine.query("bad").status().state == "FAILED")
    status = engine.query("bad").status()
    assert status.error.startswith("ValueError: this record is poison")
    assert "flows.py" in status.error
    assert status.restarts == 1


def test_the_engine_refuses_unknown_functions_and_queries_and_a_home_in_use_with_a_reason(engine: Engine) -> None:
    with pytest.raises(SpecRefused, match=r"nowhere:nothing cannot be loaded: No module named 'nowhere'"):
        engine.start(QuerySpec("a", start_function="nowhere:nothing"))
    with pytest.raises(EngineRefused, match="there is no query b"):
        engine.pause("b")
    with pytest.raises(EngineRefused, match="another engine is at work in"):
        Engine(engine.kafka.bootstrap_servers, home=engine.home, state_topic=None)


def test_a_checkpoint_that_only_spark_reaches_is_emptied_by_spark(spark: Any, tmp_path: Path) -> None:
    checkpoint = tmp_path / "there" / "copy"
    for name in ("metadata", "offsets/0", "state/0/0/1.delta"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text("x")
    empty_folder(spark, checkpoint.as_uri())
    left = {
        path.name for path in checkpoint.rglob("*") if path.is_file() and not path.name.startswith((".", "_", "part-"))
    }
    assert left == set()


@pytest.mark.parametrize(("delivery", "is_longer"), [("at-least-once", False), ("exactly-once", True)])
def test_a_query_whose_topic_was_recreated_fails_with_the_reason_and_copies_nothing_from_it(
    engine: Engine, servers: str, delivery: Delivery, is_longer: bool
) -> None:
    source, target = f"again-{delivery}", f"copied-{delivery}"
    make_topic(servers, source)
    make_topic(servers, target)
    fill(servers, source, ((b"k%d" % number, b"old %d" % number) for number in range(50)))
    plan = Sink(Source(source, BYTES, BYTES), target, BYTES, BYTES)
    engine.start(QuerySpec("again", plan=plan, delivery=delivery, speed="micro-batch", max_restarts=0, slots=1))
    eventually(lambda: len(values(servers, target)) == 50, about=engine.queries)
    eventually(lambda: engine.query("again").progress.lag == 0, about=engine.queries)
    if is_longer:
        # By its offsets Spark would take the new topic for the old one, and skip its first records.
        engine.pause("again")
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    admin.delete_topics([source])[source].result(60)
    eventually(lambda: source not in admin.list_topics(timeout=60).topics)
    make_topic(servers, source)
    fill(servers, source, ((b"k%d" % number, b"new %d" % number) for number in range(200 if is_longer else 10)))
    if is_longer:
        engine.resume("again")
    eventually(lambda: engine.query("again").state == "FAILED", about=engine.queries)
    error = engine.query("again").error
    assert "deleted and made again" in error, error
    assert "under another name" in error, error
    assert values(servers, target) == sorted(f"old {number}" for number in range(50))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 48 MB that Spark's process sees as well."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, timeout=60).returncode != 0:
        pytest.skip("disks are mounted by root alone, where the kernel lets it")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=60)


def fill_up(folder: Path) -> Path:
    """Fill the disk of the folder completely, and return the file that takes up the space."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        # In large steps and then in small ones, since a step that does not fit takes nothing.
        for step in (1 << 20, 1 << 12):
            try:
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
            except OSError as problem:
                if problem.errno != errno.ENOSPC:
                    raise
    return filler


def test_a_query_reports_a_full_state_disk_and_continues_exactly_once_after_space_is_freed(
    servers: str, spark_address: str, small_disk: Path
) -> None:
    source, target = "into-full-disk", "out-of-full-disk"
    make_topic(servers, source)
    make_topic(servers, target)
    plan = Sink(Aggregate(Source(source), (Column("count", "count(*)"),)), target)

    def feed() -> None:
        fill(servers, source, ((b"k%d" % (number % 5), b"x") for number in range(100)))

    def counts() -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for message in read_all(servers, target):
            found.setdefault(message.key(), []).append(json.loads(message.value())["count"])
        return found

    def has_counted(count: int) -> bool:
        return {key: seen[-1] for key, seen in counts().items()} == {b"k%d" % key: count for key in range(5)}

    feed()
    with Engine(servers, home=small_disk / "home", spark_remote=spark_address, state_topic=None) as engine:
        engine.start(QuerySpec("full", plan=plan, delivery="exactly-once", slots=1, max_restarts=50))
        eventually(lambda: has_counted(20), about=engine.queries)
        filler = fill_up(small_disk)
        feed()
        eventually(lambda: "there is no space left on a disk" in engine.query("full").error, about=engine.queries)
        assert engine.query("full").status().state in ("RESTARTING", "STARTING", "RUNNING")
        feed()
        filler.unlink()
        eventually(lambda: has_counted(60), about=engine.queries)
        eventually(lambda: engine.query("full").status().state == "RUNNING", about=engine.queries)
    # A batch that was repeated would have emitted a count twice.
    assert all(seen == sorted(set(seen)) for seen in counts().values()), counts()
