"""Query specifications: validation, and reading them back from the state topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pessoa.pipelines.kafka_options import spark_settings
from pessoa.pipelines.launching import (
    client_settings,
    may_write_progress_aside,
    mode_of,
    settings_of_reader,
    settings_of_sink,
    settings_of_writer,
    speed_of,
)
from pessoa.pipelines.plan import Aggregate, Column, Filter, KafkaSettings, Sink, Source
from pessoa.pipelines.queries import QuerySpec, SpecRefused, find_function, from_value, to_value
from pessoa.pipelines.remote_sessions import with_session

PLAN = Sink(Filter(Source("vendas"), "value IS NOT NULL"), "out")


def test_a_query_specification_decodes_to_the_encoded_one() -> None:
    for spec in (
        QuerySpec("a", plan=PLAN, delivery="exactly-once", slots=3, trigger_ms=100),
        QuerySpec("b", start_function="flows.py:copy", topic="out", max_restarts=2, group_id="g"),
    ):
        assert from_value(spec.id, to_value(spec)) == spec


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"id": "a/b", "plan": PLAN}, "cannot be the name of a query"),
        ({"id": "a"}, "needs a plan or a start function"),
        ({"id": "a", "plan": PLAN, "start_function": "x:y"}, "and not both"),
        ({"id": "a", "plan": PLAN, "delivery": "twice"}, "delivery is at-least-once or exactly-once, not twice"),
        ({"id": "a", "plan": PLAN, "speed": "warp"}, "speed is real-time or micro-batch, not warp"),
        ({"id": "a", "plan": PLAN, "slots": 65}, "between 1 and 64 slots"),
        ({"id": "a", "plan": PLAN, "delivery": "exactly-once", "speed": "real-time"}, "cannot be exactly-once in real"),
        ({"id": "a", "plan": PLAN, "delivery": "exactly-once", "writer": object()}, "only topics are written exactly"),
    ],
)
def test_an_invalid_query_specification_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecRefused, match=sentence):
        QuerySpec(**wrong)


def test_a_query_with_a_function_of_this_process_cannot_be_stored() -> None:
    with pytest.raises(SpecRefused, match='name its function as "module:function"'):
        to_value(QuerySpec("a", start_function=lambda _spark, _kafka: None))  # type: ignore[arg-type, return-value]


def test_a_plan_without_state_is_real_time_unless_it_must_be_exactly_once() -> None:
    assert speed_of(QuerySpec("a", plan=PLAN)) == "real-time"
    assert mode_of(QuerySpec("a", plan=PLAN)) == "update"
    assert speed_of(QuerySpec("a", plan=PLAN, delivery="exactly-once")) == "micro-batch"
    assert speed_of(QuerySpec("a", start_function="x:y")) == "micro-batch"
    assert mode_of(QuerySpec("a", start_function="x:y")) == "append"


def test_a_function_is_found_in_a_file_and_in_a_module(tmp_path: Path) -> None:
    file = tmp_path / "flows.py"
    file.write_text("def copy(spark, kafka):\n    return 'copied'\nnumber = 3\n")
    found: Any = find_function(f"{file}:copy")
    assert found(None, None) == "copied"
    itself: Any = find_function("pessoa.pipelines.queries:find_function")
    assert itself is find_function
    with pytest.raises(SpecRefused, match="cannot be loaded"):
        find_function(f"{file}:paste")
    with pytest.raises(SpecRefused, match="is not a function"):
        find_function(f"{file}:number")
    with pytest.raises(SpecRefused, match="names no function"):
        find_function("copy")
    with pytest.raises(SpecRefused, match="cannot be loaded"):
        find_function(f"{tmp_path}/missing.py:copy")


def test_a_session_is_added_to_the_parameters_of_a_connect_url() -> None:
    assert with_session("sc://host:15002", "u") == "sc://host:15002/;session_id=u"
    assert with_session("sc://host:15002/", "u") == "sc://host:15002/;session_id=u"
    assert with_session("sc://host/;token=t", "u") == "sc://host/;token=t;session_id=u"


def test_only_stateless_at_least_once_micro_batch_queries_write_their_progress_asynchronously() -> None:
    assert may_write_progress_aside(QuerySpec("a", plan=PLAN, speed="micro-batch"))
    counted = Sink(Aggregate(Source("vendas"), (Column("count", "count(*)"),)), "out")
    for spec in (
        QuerySpec("a", plan=PLAN),
        QuerySpec("a", plan=counted),
        QuerySpec("a", plan=PLAN, delivery="exactly-once"),
        QuerySpec("a", plan=PLAN, speed="micro-batch", keep_timestamps=True),
        QuerySpec("a", start_function="x:y"),
    ):
        assert not may_write_progress_aside(spec), spec


def test_the_producer_settings_of_a_query_override_those_of_the_engine() -> None:
    kafka = KafkaSettings("h:1", {"security.protocol": "SASL_SSL", "acks": "all"})
    spec = QuerySpec("a", start_function="x:y", producer_options={"acks": "1", "linger.ms": "7"})
    found = settings_of_writer(spec, kafka)
    wanted = {"security.protocol": "SASL_SSL", "acks": "1", "linger.ms": "7"}
    # Of Spark's sink, and of the writer with transactions.
    assert spark_settings(found) == {
        "kafka.bootstrap.servers": "h:1",
        **{f"kafka.{key}": wanted[key] for key in wanted},
    }
    assert client_settings(found) == {"bootstrap.servers": "h:1", **wanted}
    assert spark_settings(kafka)["kafka.acks"] == "all"
    with pytest.raises(SpecRefused, match="secrets"):
        to_value(spec)


def test_clients_use_bulk_settings_in_micro_batches_only_and_user_settings_override_them() -> None:
    kafka = KafkaSettings("h:1", {"max.poll.records": "7"})
    batches = QuerySpec("a", plan=PLAN, speed="micro-batch", producer_options={"batch.size": "9"})
    assert settings_of_reader(batches, KafkaSettings("h:1")).options == {"max.poll.records": "5000"}
    assert settings_of_reader(batches, kafka).options == {"max.poll.records": "7"}
    assert settings_of_sink(batches, KafkaSettings("h:1")).options == {"linger.ms": "20", "batch.size": "9"}
    # One record waits for no other.
    at_once = QuerySpec("a", plan=PLAN, speed="real-time")
    assert settings_of_reader(at_once, kafka) == settings_of_sink(at_once, kafka) == kafka
