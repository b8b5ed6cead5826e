"""Stores of an app that runs on a broker and a real Spark: named state by key, range and window, and over HTTP."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from pessoa.streams import App, PlanRefused, avro, tumbling
from pessoa.testing import Broker
from tests.streams.test_running import DEADLINE_S, produce


def eventually(app_check: object, holds: object) -> None:
    assert callable(app_check)
    assert callable(holds)
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        app_check()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_named_state_is_asked_by_key_range_and_window_while_the_app_runs(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    name = f"t{uuid4().hex[:8]}"
    minute_ms = (int(time.time()) // 60 - 60) * 60_000
    app = App(name, broker.bootstrap_servers, spark=spark_address, home=tmp_path / "home")
    sales = app.stream(f"{name}-vendas", value="valor DOUBLE")
    sales.group_by_key().sum("valor", "total").stored("totais")
    sales.group_by_key().window(tumbling("1 min")).count().to(f"{name}-janelas")
    for position, (key, value) in enumerate([("ana", 1), ("rui", 5), ("ana", 2), ("eva", 4)]):
        produce(broker, f"{name}-vendas", (key, {"valor": value}), timestamp_ms=minute_ms + position * 30_000)
    with app.start() as running:
        totals = app.store("totais")
        eventually(running.check, lambda: totals.get("ana") == {"total": 3.0} and totals.count() == 3)
        assert totals.get("zé", fresh=True) is None
        assert list(totals.range("b", "f")) == [("eva", {"total": 4.0})]
        assert [key for key, _ in totals.all()] == ["ana", "eva", "rui"]
        windows = app.store(f"{name}-janelas")
        eventually(running.check, lambda: len(list(windows.windows("ana"))) == 2)
        first, second = windows.windows("ana")
        assert (first.key, first.value["count"], second.value["count"]) == ("ana", 1, 1)
        assert (first.start.timestamp() * 1000, second.start - first.start) == (
            minute_ms,
            datetime.timedelta(minutes=1),
        )
        assert list(windows.windows("ana", second.start)) == [second]
        with pytest.raises(PlanRefused, match="a row for each window"):
            windows.get("ana")
        url = running.serve(0)
        (row,) = httpx.get(f"{url}/tables/{name}-totais-changelog/rows?key=ana").json()["rows"]
        assert row["value"] == {"total": 3.0}
        assert len(httpx.get(f"{url}/queries").json()) == 2
    # When nothing runs, it is still what it was.
    assert app.store("totais").get("ana") == {"total": 3.0}
    app.close_tables()


def test_a_store_that_is_not_there_or_cannot_be_read_is_refused_with_its_reason(tmp_path: Path) -> None:
    app = App("loja", "127.0.0.1:1", home=tmp_path)
    app.table("clientes", value="nome STRING").to("copia", value=avro())
    app.stream("vendas", value="valor DOUBLE").group_by_key().count().to("totais")
    with pytest.raises(PlanRefused, match="loja has no store vendas: it has clientes, copia, totais"):
        app.store("vendas")
    with pytest.raises(PlanRefused, match="are avro, which stores do not read"):
        app.store("copia")
    with pytest.raises(PlanRefused, match="totais has no windows: ask for get"):
        next(app.store("totais").windows("ana"))
    with pytest.raises(PlanRefused, match="cannot be the name of a store"):
        app.table("clientes", value="nome STRING").stored("a b")
    app.close_tables()
