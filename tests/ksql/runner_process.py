"""A process that runs persistent queries, for tests that kill it: `python runner_process.py SERVERS HOME`.

It starts the queries of STATEMENTS exactly-once, prints `spark PID` whenever Spark is another process, and works until
it is killed. Started anew with the same home it goes on.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pessoa.ksql.query_runner import PersistentQuery
from pessoa.ksql.spark.spark_query_runner import SparkQueryRunner
from pessoa.pipelines.engine import Engine
from tests.ksql.statements import catalogue_of, plan_of
from tests.support.spark import SMALL

CATALOGUE = catalogue_of("""
CREATE STREAM sales (id BIGINT KEY, item STRING, amount INT) WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON');
CREATE TABLE owners (id BIGINT PRIMARY KEY, item STRING, amount INT) WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON');
""")
STATEMENTS = {
    "COPIED": "CREATE STREAM copied AS SELECT id, UCASE(item) AS item, amount FROM sales WHERE amount >= 0;",
    "SOME": """CREATE TABLE some AS SELECT item, COUNT(*) AS n, SUM(amount) AS total, COLLECT_SET(id) AS ids FROM sales
        GROUP BY item HAVING SUM(amount) % 3 <> 0;""",
    "GROUPED": "CREATE TABLE grouped AS SELECT item, COUNT(*) AS n, SUM(amount) AS total FROM owners GROUP BY item;",
}


def main(servers: str, home: str) -> None:
    engine = Engine(servers, home=Path(home), spark=SMALL, state_topic=None)
    properties = {"auto.offset.reset": "earliest", "processing.guarantee": "exactly_once_v2"}
    runner = SparkQueryRunner(engine, properties=properties)
    for name, text in STATEMENTS.items():
        runner.start(PersistentQuery(f"Q_{name}_1", text, plan_of(text, CATALOGUE)))
    told = 0
    while True:
        server = engine.spark_server
        if server is not None and server.is_running and server.pid != told:
            told = server.pid
            print(f"spark {told}", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
