"""Apps on a broker and a real Spark: real-time filters, windowed counts, table joins, dead letters, restarts."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Message, Producer

from pessoa.streams import App, PlanRefused, double, tumbling
from pessoa.streams import running as running_file
from pessoa.streams.running import Running
from pessoa.testing import Broker

# Spark gives the Python process that handles its state ten seconds to start. On a busy machine that may fail, and the
# engine retries; there is time for several attempts.
DEADLINE_S = 240.0


@dataclass
class Sale:
    produto: str
    valor: float


@pytest.fixture
def prefix() -> str:
    """Return a prefix for the topics of one test."""
    return f"t{uuid4().hex[:8]}"


def produce(broker: Broker, topic: str, *records: tuple[str | None, Any], timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in records:
        data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        producer.produce(topic, key=key, value=data, timestamp=timestamp_ms)
    assert producer.flush(DEADLINE_S) == 0


def consume(
    broker: Broker, topics: list[str], is_enough: Callable[[list[Message]], bool], check: Callable[[], None]
) -> list[Message]:
    """Read committed records until `is_enough`, and return them; `check` raises if the pipeline has failed."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(topics)
    found: list[Message] = []
    deadline_s = time.monotonic() + DEADLINE_S
    try:
        while not is_enough(found):
            assert time.monotonic() < deadline_s, [(each.topic(), each.key(), each.value()) for each in found]
            check()
            record = consumer.poll(0.2)
            if record is not None and record.error() is None:
                found.append(record)
    finally:
        consumer.close()
    return found


def latest(records: list[Message]) -> dict[tuple[str | None, bytes | str | None], Any]:
    """Return the last value of each topic and key."""
    return {(record.topic(), record.key()): json.loads(record.value() or b"null") for record in records}


@pytest.fixture
def make_app(broker: Broker, spark_address: str, prefix: str, tmp_path: Path) -> Callable[..., App]:
    def make(**settings: Any) -> App:
        return App(prefix, broker.bootstrap_servers, spark=spark_address, home=tmp_path / "home", **settings)

    return make


def test_an_app_filters_in_real_time_and_writes_bad_records_to_its_dead_letter_topic(
    broker: Broker, prefix: str, make_app: Callable[..., App]
) -> None:
    sales, dear = f"{prefix}-vendas", f"{prefix}-caras"
    produce(broker, sales, ("ana", {"valor": 12}), ("rui", b"lixo"), ("eva", {"valor": 3.5}), ("zé", {"valor": 11}))
    app = make_app(on_error="dead-letter")
    app.stream(sales).filter("valor > 10").to(dear)
    with app.start() as running:
        assert running.report() == f"{prefix}-{dear} → {dear}: real-time"
        found = consume(broker, [dear, f"{prefix}-dead-letters"], lambda records: len(records) == 3, running.check)
        produce(broker, sales, ("ivo", {"valor": 99}))
        found += consume(broker, [dear], lambda records: len(records) == 3, running.check)[-1:]
    good = {record.key(): json.loads(record.value() or b"") for record in found if record.topic() == dear}
    assert good == {b"ana": {"valor": 12.0}, "zé".encode(): {"valor": 11.0}, b"ivo": {"valor": 99.0}}
    (letter,) = [record for record in found if record.topic() != dear]
    assert letter.value() == b"lixo"
    assert dict(letter.headers() or [])["__streams.errors.message"] == b"its value is not JSON with the columns valor"


def test_an_exactly_once_windowed_count_continues_after_a_restart(
    broker: Broker, prefix: str, make_app: Callable[..., App]
) -> None:
    sales, totals = f"{prefix}-vendas", f"{prefix}-totais"
    # An hour ago, so that retention keeps the records.
    minute_ms = (int(time.time()) // 60 - 60) * 60_000
    key = b"ana" + minute_ms.to_bytes(8, "big")

    def counted(count: int) -> Callable[[list[Message]], bool]:
        return lambda records: latest(records).get((totals, key), {}).get("count") == count

    for count in (2, 4):
        produce(broker, sales, *[("ana", {"produto": "x", "valor": 1})] * 2, timestamp_ms=minute_ms + 1000)
        app = make_app(delivery="exactly-once")
        app.stream(sales, value=Sale).group_by_key().window(tumbling("1 min")).count().to(totals)
        with app.start() as running:
            found = consume(broker, [totals], counted(count), running.check)
    written = latest(found)[totals, key]
    start, end = (datetime.fromisoformat(written[name]).timestamp() for name in ("window_start", "window_end"))
    assert (start * 1000, end * 1000) == (minute_ms, minute_ms + 60_000)


def test_a_real_time_windowed_count_emits_every_change_and_continues_after_a_restart(
    broker: Broker, prefix: str, make_app: Callable[..., App]
) -> None:
    sales, totals, letters = f"{prefix}-vendas", f"{prefix}-totais", f"{prefix}-dead-letters"
    minute_ms = (int(time.time()) // 60 - 60) * 60_000
    key = b"ana" + minute_ms.to_bytes(8, "big")
    produce(broker, sales, ("rui", b"lixo"))
    for last in (3, 6):
        produce(broker, sales, *[("ana", {"produto": "x", "valor": 1})] * 3, timestamp_ms=minute_ms + 1000)
        app = make_app(on_error="dead-letter")
        app.stream(sales, value=Sale).group_by_key().window(tumbling("1 min")).count().to(totals)
        with app.start() as running:
            assert running.report().splitlines() == [
                f"{prefix}-{totals}-letters → {letters}: real-time",
                f"{prefix}-{totals} → {totals}: real-time",
            ]
            slots = running.engine.task_slots()
            partitions = len(broker_partitions(broker, sales))
            # Both queries read the topic, and one keeps state in two partitions: the tests' Spark shuffles to two.
            assert (slots.used, slots.total) == (2 * partitions + 2, 64)
            found = consume(broker, [totals, letters], _has_counted(totals, key, last), running.check)
        counts = [json.loads(record.value() or b"")["count"] for record in found if record.key() == key]
        # Each record has its own update; updates of a batch that had not ended may be repeated after a restart.
        assert counts[:3] == [1, 2, 3]
        assert counts[-3:] == [last - 2, last - 1, last]
    assert [record.value() for record in found if record.topic() == letters][:1] == [b"lixo"]


def broker_partitions(broker: Broker, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": uuid4().hex})
    try:
        return list(consumer.list_topics(topic, 30).topics[topic].partitions)
    finally:
        consumer.close()


def _has_counted(totals: str, key: bytes, count: int) -> Callable[[list[Message]], bool]:
    def is_enough(records: list[Message]) -> bool:
        has_letter = any(record.topic() != totals for record in records)
        mine = [record for record in records if record.topic() == totals]
        return has_letter and latest(mine).get((totals, key), {}).get("count") == count

    return is_enough


def test_a_stream_joined_with_a_changing_table_is_summed_in_a_second_query(
    broker: Broker, prefix: str, make_app: Callable[..., App]
) -> None:
    sales, clients, totals = (f"{prefix}-{name}" for name in ("vendas", "clientes", "por_nome"))
    produce(broker, clients, ("1", {"nome": "Ana"}), timestamp_ms=int(time.time() - 60) * 1000)
    produce(broker, sales, ("1", {"produto": "x", "valor": 2}), ("2", {"produto": "y", "valor": 3}))
    # With at-least-once a batch that is repeated between the two queries would be summed twice.
    app = make_app(delivery="exactly-once")
    names = app.table(clients, value={"nome": str})
    app.stream(sales, value=Sale).join(names).group_by("nome").sum("valor", "total").to(totals)
    with app.start() as running:
        assert len(running.status()) == 2
        found = consume(broker, [totals], _is_sum(2), running.check)
        produce(broker, clients, ("1", {"nome": "Ana Maria"}))
        # The two topics are read one after the other, so the next sales may still be joined with the old name.
        expected = 2
        while (totals, b"Ana Maria") not in latest(found):
            produce(broker, sales, ("1", {"produto": "x", "valor": 5}))
            expected += 5
            found = consume(broker, [totals], _is_sum(expected), running.check)
    assert set(latest(found)) == {(totals, b"Ana"), (totals, b"Ana Maria")}


def _is_sum(expected: int) -> Callable[[list[Message]], bool]:
    return lambda records: sum(value["total"] for value in latest(records).values()) == expected


def test_starting_an_app_on_a_missing_topic_is_refused_before_spark_is_used(make_app: Callable[..., App]) -> None:
    app = make_app()
    app.stream("nada").to("saida")
    with pytest.raises(PlanRefused, match="the topic nada does not exist: create it with kafka-topics"):
        app.start()


def test_a_topic_without_json_records_is_refused_when_columns_must_be_inferred(
    broker: Broker, prefix: str, make_app: Callable[..., App]
) -> None:
    produce(broker, f"{prefix}-vazio", ("k", b"texto"))
    app = make_app()
    app.stream(f"{prefix}-vazio").filter("valor > 1").to(f"{prefix}-saida")
    with pytest.raises(PlanRefused, match=r"the columns of .*-vazio are not known"):
        app.start()


def test_a_long_catch_up_is_shown_as_a_progress_bar_until_it_is_over(
    broker: Broker, prefix: str, make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_file, "RECORDS_PER_BATCH", 500)
    sales, doubled = f"{prefix}-vendas", f"{prefix}-dobros"
    produce(broker, sales, *(("ana", {"produto": "x", "valor": number}) for number in range(6_000)))
    app = make_app()
    app.stream(sales, value=Sale).map_values(lambda sale: sale.valor * 2, returns=float).to(doubled, value=double)
    said: list[str] = []
    with Running(app, said.append) as running:
        waiting = threading.Thread(target=running.wait)
        waiting.start()
        try:
            consume(broker, [doubled], lambda records: len(records) == 6_000, running.check)
            deadline_s = time.monotonic() + DEADLINE_S
            while f"{prefix}-{doubled} has caught up" not in said:
                assert time.monotonic() < deadline_s, said
                time.sleep(0.1)
        finally:
            running.stop()
            waiting.join()
    bars = [sentence for sentence in said if "▕" in sentence]
    assert bars, said
    assert re.search(r"-dobros ▕█*░+▏ \d+ % · [\d,]+ of [\d,]+ records · [\d,]+ a second", bars[0]), bars
