"""Kill Spark, the ksql server and the broker under load, with exactly-once.

The committed records must equal those of a run without faults: for each key the same records in the same order, each
once. The server restores its statements from the command topic, and its queries continue from their checkpoints.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import httpx

from pessoa.ksql.operators.records import KafkaRecord
from pessoa.testing import Broker
from tests.ksql.statements import Row, by_key, catalogue_of, in_process, plan_of, row
from tests.support.logged_process import LoggedProcess
from tests.support.topics import eventually, fill, make_topic, read_all

ROOT = Path(__file__).resolve().parents[2]
ROUND = 400
FIRST_MS = 1_700_000_000_000
PATIENCE_S = 400.0
SOURCES = """
CREATE STREAM sales (id BIGINT KEY, item STRING, amount INT) WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON');
CREATE TABLE owners (id BIGINT PRIMARY KEY, item STRING, amount INT) WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON');
"""
STATEMENTS = {
    "COPIED": "CREATE STREAM copied AS SELECT id, UCASE(item) AS item, amount FROM sales WHERE amount >= 0;",
    "SOME": """CREATE TABLE some AS SELECT item, COUNT(*) AS n, SUM(amount) AS total, COLLECT_SET(id) AS ids FROM sales
        GROUP BY item HAVING SUM(amount) % 3 <> 0;""",
    "GROUPED": "CREATE TABLE grouped AS SELECT item, COUNT(*) AS n, SUM(amount) AS total FROM owners GROUP BY item;",
}
CATALOGUE = catalogue_of(SOURCES)


class ServerProcess(LoggedProcess):
    def __init__(self, servers: str, home: Path) -> None:
        command = [sys.executable, "-m", "tests.ksql.server_process", servers, str(home)]
        log = home.with_suffix(".output")
        super().__init__(command, log, errors=home.with_suffix(".errors"), env={"PYTHONPATH": str(ROOT)})
        self.url = ""

    def start(self, *wrapper: str) -> None:
        super().start(*wrapper)
        self.url = self.wait_for(r"(?m)^server (\S+)\n", PATIENCE_S)[1]

    def spark(self, *, after: int = 0) -> int:
        """Wait for the first Spark whose process group is not `after`, and return its process group."""
        return int(self.wait_for(rf"(?m)^spark (?!{after}\n)(\d+)\n", PATIENCE_S)[1])

    def run(self, text: str) -> list[dict[str, object]]:
        answer = httpx.post(f"{self.url}/ksql", json={"ksql": text}, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, object]] = answer.json()
        return found


def record(number: int) -> tuple[bytes, bytes, int]:
    value = {"item": f"i{number * 7 % 11}", "amount": number % 13 - 1}
    return (number % 17).to_bytes(8, "big"), json.dumps(value).encode(), FIRST_MS + number


def rows_of(servers: str, topic: str) -> list[Row]:
    return [row(one.key(), one.value(), one.timestamp()[1]) for one in read_all(servers, topic)]


def test_exactly_once_outputs_equal_a_run_without_faults_when_spark_server_and_broker_are_killed(
    tmp_path: Path,
) -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "sales", 1, retention_ms="-1")
        for topic in STATEMENTS:
            make_topic(servers, topic, 1, retention_ms="-1")
        written = 0

        def feed() -> None:
            nonlocal written
            records = [record(number) for number in range(written, written + ROUND)]
            written += fill(servers, "sales", [one[:2] for one in records], [one[2] for one in records])

        def wait_for_output_of(count: int) -> None:
            wanted = len(wanted_rows("COPIED", count))
            eventually(lambda: len(read_all(servers, "COPIED")) >= wanted, PATIENCE_S, pause_s=0.5)

        with ServerProcess(servers, tmp_path) as server:
            feed()
            server.run(SOURCES + "".join(STATEMENTS.values()))
            spark = server.spark()
            wait_for_output_of(ROUND)
            feed()
            os.killpg(spark, signal.SIGKILL)
            feed()
            server.spark(after=spark)
            wait_for_output_of(2 * ROUND)
            feed()
            server.kill()
            server.start()
            server.spark()
            wait_for_output_of(3 * ROUND)
            broker.kill()
            broker.start()
            feed()
            for name in STATEMENTS:
                wait_for_rows_of_a_run_without_faults(servers, name, written)
            (shown,) = server.run("SHOW QUERIES;")
            assert str(shown).count("'RUNNING': 1") == len(STATEMENTS), shown


def wait_for_rows_of_a_run_without_faults(servers: str, name: str, count: int) -> None:
    wanted = by_key(wanted_rows(name, count))

    def is_there() -> bool:
        return by_key(rows_of(servers, name)) == wanted

    def shown() -> str:
        found = by_key(rows_of(servers, name))
        return f"{name}: " + str({key: len(found.get(key, [])) - len(rows) for key, rows in wanted.items()})

    eventually(is_there, PATIENCE_S, pause_s=0.5, about=shown)


def wanted_rows(name: str, count: int) -> list[Row]:
    plan = plan_of(STATEMENTS[name], CATALOGUE)
    records = (KafkaRecord("sales", 0, number, time_ms, key, value) for number, (key, value, time_ms) in
               enumerate(map(record, range(count))))  # fmt: skip
    return in_process(plan, records)
