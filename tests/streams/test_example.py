"""examples/vendas.py: on records in memory, and as a program that Ctrl-C ends."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from pessoa.streams import App
from pessoa.testing import Broker

EXAMPLE = Path(__file__).parents[2] / "examples" / "vendas.py"
DEADLINE_S = 120.0


def test_the_example_does_what_its_first_lines_say(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("vendas_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    app: App = module.describe("localhost:9092")
    sale = module.Venda
    out = app.test(
        {
            "clientes": [("ana", {"nome": "Ana", "cidade": "Lisboa"})],
            "vendas": [("ana", sale("faca", 12, 2)), ("rui", sale("copo", 3)), ("rui", b"nada")],
        },
        spark=spark,
    )
    assert [record.value for record in out["vendas-caras"]] == [{"produto": "faca", "valor": 12.0, "quantidade": 2}]
    totals = {record.key: (record.value["vendas"], record.value["dinheiro"]) for record in out["vendas-por-minuto"]}
    assert totals == {"faca": (1, 24.0), "copo": (1, 3.0)}
    assert [record.value for record in out["vendas-com-cidade"]] == [
        {"produto": "faca", "cidade": "Lisboa", "total": 24.0},
        {"produto": "copo", "cidade": None, "total": 3.0},
    ]
    assert {record.value for record in out["vendas-app-dead-letters"]} == {b"nada"}


def test_the_example_runs_as_a_program_until_ctrl_c(broker: Broker, spark_address: str, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("clientes", key="ana", value=b'{"nome": "Ana", "cidade": "Lisboa"}')
    producer.produce("vendas", key="ana", value=json.dumps({"produto": "faca", "valor": 12, "quantidade": 2}).encode())
    assert producer.flush(DEADLINE_S) == 0
    program = subprocess.Popen(
        [sys.executable, str(EXAMPLE), broker.bootstrap_servers],
        env={**os.environ, "PESSOA_SPARK": spark_address, "PESSOA_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for_a_record(broker, "vendas-por-minuto", program)
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=DEADLINE_S)
    finally:
        if program.poll() is None:
            program.kill()
            program.communicate()
    assert program.returncode == 0, said
    assert "vendas-app-vendas-caras → vendas-caras: real-time" in said


def wait_for_a_record(broker: Broker, topic: str, program: subprocess.Popen[str]) -> None:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "teste", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + DEADLINE_S
    try:
        while (record := consumer.poll(0.2)) is None or record.error() is not None:
            assert program.poll() is None, program.communicate()[0]
            assert time.monotonic() < deadline_s, f"nothing came to {topic}"
    finally:
        consumer.close()
