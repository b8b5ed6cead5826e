"""examples/vendas.py: on records in memory, and as a program in a terminal that Ctrl-C ends.

The program prints something at least every two seconds before its first output. This is tested without measuring a
run: the cluster and Spark answer only after the program has printed that it waits for them, and it imports no slow
module before its first line. How often it reports is tested with a fake clock in
tests/unit/streams/test_progress_report.py.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer

from pessoa.streams import App
from pessoa.testing import Broker

EXAMPLE = Path(__file__).parents[2] / "examples" / "vendas.py"
DEADLINE_S = 120.0


def test_the_example_filters_sums_and_joins_sales_as_its_docstring_describes(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# Run in another process: prints the first output of a program, and the slow modules that it has imported by then.
FIRST_WORDS = """
import os, runpy, sys
class Screen:
    def isatty(self):
        return True
    def write(self, text):
        os.write(1, (text.strip() + "|" + " ".join(name for name in sys.argv[3:] if name in sys.modules)).encode())
        os._exit(0)
    def flush(self):
        pass
sys.stdout = Screen()
sys.argv[0:1] = []
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SLOW_MODULES = ("confluent_kafka", "fastavro", "grpc", "httpx", "numpy", "pandas", "pyarrow", "pyspark", "sqlglot")


def test_the_example_prints_its_first_line_before_it_imports_slow_modules() -> None:
    words = [sys.executable, "-c", FIRST_WORDS, str(EXAMPLE), "127.0.0.1:1", "--", *SLOW_MODULES]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (0, "vendas-app: looking at 127.0.0.1:1|"), done


class LateServer:
    """A proxy whose port accepts connections at once, but forwards nothing until `open` is called."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shut(self._listener)
        if self._accepting.is_alive():
            self._accepting.join(DEADLINE_S)
        # No connection is accepted from here on.
        shut(*self._sockets)
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for each in (self._listener, *self._sockets):
            each.close()

    def open(self) -> None:
        self._accepting.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets.append(server)
                for way in ((client, server), (server, client)):
                    self._threads.append(threading.Thread(target=self._pass, args=way, daemon=True))
                    self._threads[-1].start()

    def _pass(self, source: socket.socket, destination: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                destination.sendall(data)
        shut(source, destination)


def shut(*sockets: socket.socket) -> None:
    """Wake the threads that wait in accept() or recv(), which closing does not do."""
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def test_the_example_program_reports_each_wait_while_it_starts_and_ends_on_ctrl_c(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    spark_port = re.findall(r":(\d+)", spark_address)[0]
    with LateServer(broker.port) as cluster, LateServer(int(spark_port)) as spark:
        run_the_example(broker, cluster, spark, spark_address.replace(f":{spark_port}", f":{spark.port}", 1), tmp_path)


def run_the_example(broker: Broker, cluster: LateServer, spark: LateServer, spark_address: str, tmp_path: Path) -> None:
    servers = f"127.0.0.1:{cluster.port}"
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("clientes", key="ana", value=b'{"nome": "Ana", "cidade": "Lisboa"}')
    producer.produce("vendas", key="ana", value=json.dumps({"produto": "faca", "valor": 12, "quantidade": 2}).encode())
    assert producer.flush(DEADLINE_S) == 0
    screen, terminal = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, str(EXAMPLE), servers],
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
        wait_for_words(rf"… vendas-app: looking at {servers}: \d+ s so far", program, said)
        cluster.open()
        wait_for_words(r"… Waiting for Spark to answer: \d+ s so far", program, said)
        spark.open()
        wait_for_a_record(broker, "vendas-por-minuto", program, said)
        # The last query may still be starting.
        wait_for_words("→ vendas-com-cidade: ", program, said)
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
    assert lines[0] == f"vendas-app: looking at {servers}"
    address = spark_address.partition("/;")[0]
    # Every step that may be slow is announced, in order.
    announced = [line for line in lines if line.startswith(("Starting ", "Connecting ", "Spark "))]
    assert announced[:2] == ["Starting vendas-app-vendas-caras", f"Connecting to Spark at {address}"], lines
    assert re.fullmatch(rf"Spark is ready after [\d.]+ s \({address}\)", announced[2]), lines
    assert {f"Starting vendas-app-{each}" for each in ("vendas-por-minuto", "vendas-com-cidade")} <= {*announced}, lines
    assert "vendas-app-vendas-caras → vendas-caras: real-time" in lines, lines
    # A line with a progress time is overwritten by the next line.
    assert not any(line.endswith("so far") for line in lines), lines


def wait_for_words(pattern: str, program: subprocess.Popen[bytes], said: list[bytes]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not re.search(pattern.encode(), b"".join(said)):
        assert program.poll() is None, said
        assert time.monotonic() < deadline_s, said
        time.sleep(0.05)


def read_all(screen: int, said: list[bytes]) -> None:
    """Collect the output of the program until it has closed its terminal, which Linux reports as EIO."""
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
