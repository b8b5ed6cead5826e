"""Run a ksql server as a process that tests can kill: `python -m tests.ksql.server_process SERVERS HOME`.

It is the server that `pessoa ksql-server` runs, but with a Spark that starts quickly. It prints `server URL`, and
`spark PID` for each new process of Spark. Restarted with the same home it continues its queries.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from pessoa.ksql.server.ksql_service import make_ksql_app
from pessoa.ksql.server.server_config import KsqlConfig, make_config
from pessoa.ksql.spark.spark_query_runner import SparkQueryRunner
from pessoa.pipelines.engine import Engine
from pessoa.web.serving import ThreadedServer, bind
from tests.support.spark import SMALL


def small_runner(config: KsqlConfig) -> SparkQueryRunner:
    engine = Engine(config.bootstrap_servers, home=config.home / "engine", spark=SMALL, state_topic=None)
    threading.Thread(target=print_spark_pids, args=(engine,), daemon=True).start()
    properties = {**config.below("ksql.streams."), "auto.offset.reset": config.offset_reset}
    return SparkQueryRunner(engine, service_id=config.service_id, properties=properties)


def print_spark_pids(engine: Engine) -> None:
    told = 0
    while True:
        server = engine.spark_server
        if server is not None and server.is_running and server.pid != told:
            told = server.pid
            print(f"spark {told}", flush=True)
        time.sleep(0.1)


def main(servers: str, home: str) -> None:
    settings = {
        "bootstrap.servers": servers,
        "pessoa.home": str(Path(home)),
        "ksql.streams.auto.offset.reset": "earliest",
        "ksql.streams.processing.guarantee": "exactly_once_v2",
    }
    config = make_config(settings)
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    with ThreadedServer(lambda: make_ksql_app(config, port, make_runner=small_runner), listening=listening) as server:
        print(f"server {server.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
