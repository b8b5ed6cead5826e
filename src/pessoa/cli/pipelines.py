"""`pessoa pipelines`: run the engine, and tell it what to run.

    pessoa pipelines serve --bootstrap-server localhost:9092      the engine, in the foreground
    pessoa pipelines start copy flows.py:copy --topic out         a query out of a Python file
    pessoa pipelines top                                          what runs, drawn anew every second
    pessoa pipelines list, status, pause, resume, stop, restart, delete, logs

All but `serve` speak to the engine over HTTP (pessoa.pipelines.api), and none of them imports Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pessoa.cli.examples import for_click
from pessoa.cli.service_settings import OVERRIDE, PROPERTIES, config_of, listen_at, settings_in, settings_of

URL = click.option(
    "--url", envvar="PESSOA_PIPELINES_URL", default="http://localhost:8084", show_default=True, help="The engine."
)

# The options of `serve` that say a setting in another way.
SETTING_OF_OPTION = {
    "bootstrap_server": "bootstrap.servers",
    "home": "pessoa.home",
    "schema_registry": "schema.registry.url",
    "spark_remote": "pessoa.spark.remote",
    "spark_master": "pessoa.spark.master",
    "spark_memory": "pessoa.spark.memory",
    "checkpoints": "pessoa.checkpoints",
    "state_topic": "pessoa.state.topic",
}


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run data pipelines on Spark.",
    epilog=for_click("pessoa pipelines"),
)
def pipelines() -> None:
    pass


@pipelines.command(help="Run the engine in the foreground. Settings come from PROPERTIES, if it is given.")
@PROPERTIES
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="Where Kafka is; default localhost:9092.")
@click.option("--home", type=click.Path(file_okay=False), help="Checkpoints and logs; default $PESSOA_HOME/pipelines.")
@click.option("--host", help="The address to listen on; default 127.0.0.1.")
@click.option("--port", type=int, help="The port to listen on; default 8084, and 0 for any that is free.")
@click.option("--schema-registry", metavar="URL", help="The schema registry, for formats that need one.")
@click.option("--spark-remote", metavar="sc://HOST:PORT", help="A Spark Connect server to use instead of our own.")
@click.option("--spark-master", help="Or spark://HOST:PORT, a cluster; local[N] for N task slots; default local[*].")
@click.option("--spark-memory", help="The most that Spark's driver may take; default 1g.")
@click.option("--spark-set", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
@click.option("--checkpoints", metavar="URI", help="Where a cluster keeps checkpoints: all its machines reach it.")
@click.option("--state-topic", help="Remembers what should run; default _pessoa_queries.")
@click.option("--command-config", type=click.Path(exists=True), help="Properties for Kafka's clients.")
@OVERRIDE
@click.pass_context
def serve(ctx: click.Context, /, **chosen: Any) -> None:
    import logging
    import warnings

    from pessoa.base.config_values import ConfigProblem
    from pessoa.client.topic_creation import TopicUnavailable
    from pessoa.pipelines.api import pipelines_app
    from pessoa.pipelines.engine import Engine, EngineRefused
    from pessoa.pipelines.engine_config import DEFAULT_PORT, make_config
    from pessoa.pipelines.spark_server import SparkOptions
    from pessoa.web.asgi_app import App
    from pessoa.web.http_settings import serve_service

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    # Spark's client logs it when Spark has ended; the engine notices and reports that itself.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    options = {key: chosen[name] for name, key in SETTING_OF_OPTION.items()}
    settings = settings_of(chosen["properties"], chosen["overrides"], options)
    host, port = chosen["host"], chosen["port"]
    listen_at(settings, host or ("127.0.0.1" if port is not None else None), port, DEFAULT_PORT)
    for_clients = settings_in(Path(chosen["command_config"])) if chosen["command_config"] else {}
    for_spark = dict(pair.partition("=")[::2] for pair in chosen["spark_set"])
    config = config_of(make_config, settings)
    kafka_options = {**config.kafka_options, **for_clients}
    try:
        auth = config.http.authenticator(config.bootstrap_servers, kafka_options)
    except ConfigProblem as wrong:
        raise click.ClickException(str(wrong)) from None

    async def make(_: int) -> App:
        spark = SparkOptions(config.spark_master, config.spark_memory, {**config.spark_options, **for_spark})
        engine = Engine(
            config.bootstrap_servers,
            home=config.home,
            spark_remote=config.spark_remote,
            spark=spark,
            kafka_options=kafka_options,
            schema_registry_url=config.registry_url,
            checkpoints=config.checkpoints,
            state_topic=config.state_topic,
            say=click.echo,
        )
        return pipelines_app(engine, auth=auth, body_limit=config.http.request_max_bytes)

    try:
        ctx.exit(serve_service(make, config.http, click.echo))
    except (EngineRefused, TopicUnavailable) as refused:
        raise click.ClickException(str(refused)) from None


@pipelines.command(help="Start the query ID: FUNCTION is module:name or file.py:name.")
@click.argument("id")
@click.argument("function")
@click.option("--topic", help="Where its records go, unless they have a column topic.")
@click.option("--exactly-once", is_flag=True, help="Write every record once, also after crashes.")
@click.option("--speed", type=click.Choice(["real-time", "micro-batch"]))
@click.option("--output-mode", type=click.Choice(["append", "update"]))
@click.option("--trigger-ms", type=int, help="The pace of batches.")
@click.option("--slots", type=int, default=4, show_default=True, help="How many transactions write at once.")
@URL
def start(url: str, id: str, function: str, exactly_once: bool, **chosen: Any) -> None:  # noqa: A002
    place, colon, name = function.rpartition(":")
    if place.endswith(".py"):
        # The engine has a working directory of its own.
        function = f"{Path(place).absolute()}{colon}{name}"
    wanted = {key: value for key, value in chosen.items() if value is not None}
    wanted |= {"id": id, "start_function": function}
    if exactly_once:
        wanted["delivery"] = "exactly-once"
    from pessoa.pipelines.slow_steps import saying

    with saying(lambda sentence: click.echo(sentence, err=True), f"Starting {id}, and Spark if it does not run"):
        started = ask(url, "POST", "/queries", wanted)
    show([started])


@pipelines.command("list", help="All queries, and Spark's task slots.")
@URL
def list_(url: str) -> None:
    show(ask(url, "GET", "/queries"))
    slots = ask(url, "GET", "/task-slots")
    if slots["total"]:
        click.echo(f"task slots: {slots['used']} held in real-time mode, {slots['free']} free")


@pipelines.command(help="One query, with everything that is known of it.")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True)
@URL
def status(url: str, id: str, as_json: bool) -> None:  # noqa: A002
    import json

    found = ask(url, "GET", f"/queries/{id}")
    if as_json:
        click.echo(json.dumps(found))
        return
    progress = found.pop("progress")
    for key, value in {**found, **progress}.items():
        if key != "offsets" and value not in ("", None):
            click.echo(f"{key.replace('_', ' '):<16} {value}")
    for topic, partition, offset in progress["offsets"]:
        click.echo(f"{'offset':<16} {topic}-{partition}: {offset}")


@pipelines.command(help="Print what Spark has logged.")
@click.option("--home", type=click.Path(file_okay=False), help="That of the engine; default $PESSOA_HOME/pipelines.")
@click.option("--lines", default=50, show_default=True)
def logs(home: str | None, lines: int) -> None:
    from pessoa.base.home_folder import pessoa_home

    path = (Path(home) if home else pessoa_home() / "pipelines") / "spark" / "spark.log"
    if not path.exists():
        raise click.ClickException(f"there is no {path}: Spark was never started there")
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
        click.echo(line)


def _add_action(action: str, about: str) -> None:
    @pipelines.command(action, help=about)
    @click.argument("id")
    @URL
    def act(url: str, id: str) -> None:  # noqa: A002
        show([ask(url, "PUT", f"/queries/{id}/{action}")])


_add_action("pause", "Let a query rest; resume lets it go on where it was.")
_add_action("resume", "Let a query go on.")
_add_action("stop", "Stop a query; it keeps its place.")
_add_action("restart", "Stop a query and start it again.")


@pipelines.command(help="Stop a query and forget it, with its checkpoint.")
@click.argument("id")
@URL
def delete(url: str, id: str) -> None:  # noqa: A002
    ask(url, "DELETE", f"/queries/{id}")
    click.echo(f"{id} is deleted")


def ask(url: str, method: str, path: str, body: object = None) -> Any:
    from urllib.parse import urlsplit

    import httpx

    try:
        answer = httpx.request(method, url.rstrip("/") + path, json=body, timeout=600)
    except httpx.HTTPError as failure:
        shown = urlsplit(url)
        shown = shown._replace(netloc=shown.netloc.rpartition("@")[2])
        raise click.ClickException(
            f"no engine answers at {shown.geturl()} ({failure}): start one with `pessoa pipelines serve`, or name it"
            " with --url"
        ) from None
    if answer.is_success:
        return answer.json() if answer.content else None
    try:
        message = answer.json()["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.text
    raise click.ClickException(message)


@pipelines.command(help="What runs, drawn anew every second until Ctrl-C; elsewhere than in a terminal, once.")
@click.option("--once", is_flag=True, help="One table, also in a terminal.")
@URL
def top(url: str, once: bool) -> None:
    import sys
    import time

    from pessoa.platform.report import rich_table, table_for_here

    if once or not sys.stdout.isatty():
        click.echo(table_for_here(top_rows(ask(url, "GET", "/queries"), ask(url, "GET", "/tables")), TOP_COLUMNS))
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        try:
            while True:
                rows = top_rows(ask(url, "GET", "/queries"), ask(url, "GET", "/tables"))
                live.update(rich_table(rows, TOP_COLUMNS), refresh=True)
                time.sleep(TOP_INTERVAL_S)
        except KeyboardInterrupt:
            pass  # how it is meant to end


TOP_COLUMNS = ("name", "state", "speed", "rows/s", "lag", "batch", "rows kept", "restarts")
TOP_INTERVAL_S = 1.0


def top_rows(queries: list[dict[str, Any]], tables: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the rows of `top`: queries, failed ones first, then the tables that are kept beside the engine."""
    rows: list[tuple[str, ...]] = []
    for query in sorted(queries, key=lambda query: (query["state"] != "FAILED", query["id"])):
        progress = query["progress"]
        rows.append(
            (
                query["id"], query["state"], query["speed"], f"{progress['rows_per_second']:,.0f}",
                "-" if progress["lag"] is None else f"{progress['lag']:,}",
                f"{progress['batch_ms']:,} ms" if progress["batch_id"] >= 0 else "-", f"{progress['state_rows']:,}",
                str(query["restarts"]),
            )
        )  # fmt: skip
    for table in tables:
        state = "WAITING" if table["trouble"] else "FOLLOWS"
        lag = "-" if table["lag"] is None else f"{table['lag']:,}"
        rows.append((f"table {table['topic']}", state, "", "", lag, "", f"{table['count']:,}", ""))
    return rows


COLUMNS = ("id", "state", "delivery", "speed", "batch", "rows/s", "lag", "state rows", "slots", "restarts", "error")


def show(statuses: list[dict[str, Any]]) -> None:
    rows = [COLUMNS]
    for status in statuses:
        progress = status["progress"]
        lag = progress["lag"]
        rows.append(
            (
                *(status[name] for name in ("id", "state", "delivery", "speed")),
                str(progress["batch_id"]) if progress["batch_id"] >= 0 else "-",
                f"{progress['rows_per_second']:.0f}",
                "-" if lag is None else str(lag),
                str(progress["state_rows"]),
                str(status["task_slots"]) if status["task_slots"] else "-",
                str(status["restarts"]),
                (status["error"].splitlines() or [""])[0],
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
