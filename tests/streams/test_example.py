"""examples/vendas.py: on records in memory, and as a program in a terminal that Ctrl-C ends."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import pty
import signal
import subprocess
import sys
import threading
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
    screen, terminal = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, str(EXAMPLE), broker.bootstrap_servers],
        env={**os.environ, "PESSOA_SPARK": spark_address, "PESSOA_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    said: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(screen, said))
    reader.start()
    try:
        wait_for_a_record(broker, "vendas-por-minuto", program, said)
        # Its last query may still be starting.
        deadline_s = time.monotonic() + DEADLINE_S
        while "→ vendas-com-cidade: ".encode() not in b"".join(said):
            assert program.poll() is None, said
            assert time.monotonic() < deadline_s, said
            time.sleep(0.05)
        program.send_signal(signal.SIGINT)
        program.wait(DEADLINE_S)
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
        reader.join()
        os.close(screen)
    lines = [line.rpartition("\r")[2] for line in b"".join(said).decode().replace("\r\n", "\n").split("\n")]
    assert program.returncode == 0, lines
    assert lines[0] == f"vendas-app: looking at {broker.bootstrap_servers}"
    assert "Starting vendas-app-vendas-caras" in lines, lines
    assert "vendas-app-vendas-caras → vendas-caras: real-time" in lines, lines
    # A line that tells how long something takes is overwritten by the next.
    assert not any(line.endswith("so far") for line in lines), lines


def read_all(screen: int, said: list[bytes]) -> None:
    """What the program writes, until it has closed its terminal, which Linux calls an error."""
    try:
        while data := os.read(screen, 65536):
            said.append(data)
    except OSError as closed:
        if closed.errno != errno.EIO:
            raise


def wait_for_a_record(broker: Broker, topic: str, program: subprocess.Popen[bytes], said: list[bytes]) -> None:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "teste", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + DEADLINE_S
    try:
        while (record := consumer.poll(0.2)) is None or record.error() is not None:
            assert program.poll() is None, said
            assert time.monotonic() < deadline_s, f"nothing came to {topic}: {said}"
    finally:
        consumer.close()
