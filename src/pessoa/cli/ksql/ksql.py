"""`ksql`: the command line of a ksql server; `pessoa ksql` is the same, and `pessoa ksql test FILE` runs case files.

ksql                                       the prompt, for the server on localhost:8088
ksql -e "SHOW STREAMS;"                    run statements, and leave
ksql -f statements.sql http://host:8088    the same with those of a file
pessoa ksql test cases.sql                 run the cases of a file, without any server
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pessoa.cli.examples import for_click

DEFAULT_SERVER = "http://localhost:8088"
CONTEXT = {"help_option_names": ["-h", "--help"]}
_BANNER = """
                  ===========================================
                  =       _              _ ____  ____       =
                  =      | | _____  __ _| |  _ \\| __ )      =
                  =      | |/ / __|/ _` | | | | |  _ \\      =
                  =      |   <\\__ \\ (_| | | |_| | |_) |     =
                  =      |_|\\_\\___/\\__, |_|____/|____/      =
                  =                   |_|                   =
                  =     statements over Pessoa and Kafka    =
                  ===========================================
"""


@click.command(help="Type ksql statements.", context_settings=CONTEXT, epilog=for_click("ksql"))
@click.argument("server", required=False)
@click.option(
    "--config-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties: ssl.truststore.location, and those that SET would set.",
)
@click.option("-u", "--user", help="The user's name at the server.")
@click.option(
    "-p",
    "--password",
    help="The user's password; better in KSQL_PASSWORD, which others do not see.",
    envvar="KSQL_PASSWORD",
)
@click.option("-t", "--token", help="A bearer token.", envvar="KSQL_TOKEN")
@click.option("--confluent-api-key", help="As --user.")
@click.option("--confluent-api-secret", help="As --password.")
@click.option("--query-row-limit", type=click.IntRange(1), help="Leave a query after so many rows.")
@click.option("--query-timeout", type=click.IntRange(1), help="Leave a query after so many milliseconds.")
@click.option("--output", type=click.Choice(["JSON", "TABULAR"], case_sensitive=False), default="TABULAR")
@click.option("-e", "--execute", help="Run these statements, and leave.")
@click.option(
    "-f",
    "--file",
    "script",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the statements of a file, and leave.",
)
@click.option("-d", "--define", "defined", multiple=True, metavar="NAME=VALUE", help="Define a variable.")
@click.pass_context  # fmt: skip
def ksql(
    ctx: click.Context, server: str | None, config_file: Path | None, user: str | None, password: str | None,
    token: str | None, confluent_api_key: str | None, confluent_api_secret: str | None, query_row_limit: int | None,
    query_timeout: int | None, output: str, execute: str | None, script: Path | None, defined: tuple[str, ...],
) -> None:  # fmt: skip
    from pessoa.cli.ksql.ksql_session import KsqlSession, Leave
    from pessoa.cli.ksql.server_client import KsqlClient, ServerRefused, ServerUnreachable

    settings = {} if config_file is None else _settings_in(config_file)
    variables = dict(_pair(one) for one in defined)

    def make_client(url: str) -> KsqlClient:
        return KsqlClient(
            url, user or confluent_api_key, password or confluent_api_secret, token=token,
            authority=settings.pop("ssl.truststore.location", None),
        )  # fmt: skip

    try:
        client = make_client(server or settings.pop("server", DEFAULT_SERVER))
    except ServerUnreachable as wrong:
        raise click.ClickException(str(wrong)) from None
    session = KsqlSession(client, output.upper(), row_limit=query_row_limit, variables=variables)
    session.make_client = make_client
    session.properties.update({key.removeprefix("ksql.streams."): value for key, value in settings.items()
                               if not key.startswith("ssl.")})  # fmt: skip
    if query_timeout is not None:
        _end_after(query_timeout / 1000)
    try:
        if script is not None:
            ctx.exit(0 if session.run_script(str(script)) else 1)
        if execute is not None or not sys.stdin.isatty():
            text = execute if execute is not None else sys.stdin.read()
            ctx.exit(0 if _run_text(session, text) else 1)
        _run_shell(session)
    except Leave:
        ctx.exit(0)
    except (ServerRefused, ServerUnreachable) as problem:
        raise click.ClickException(str(problem)) from None


def _run_text(session: object, text: str) -> bool:
    """Run the statements of the command line or of a pipe; the last semicolon may be missing."""
    from pessoa.cli.ksql.ksql_session import KsqlSession

    assert isinstance(session, KsqlSession)
    lines = text.splitlines()
    rest: list[str] = []
    for index, line in enumerate(lines):
        if not rest and session.run_line(line):
            continue
        rest = lines[index:]
        break
    left = "\n".join(rest).strip()
    return session.run(left if left.endswith(";") or not left else left + ";")


def _run_shell(session: object) -> None:
    from pessoa import __version__
    from pessoa.cli.ksql.ksql_session import KsqlSession
    from pessoa.cli.ksql.ksql_shell import Shell
    from pessoa.cli.ksql.server_client import ServerRefused, ServerUnreachable

    assert isinstance(session, KsqlSession)
    session.write(_BANNER)
    try:
        info = session.client.info()
        version, status = info["version"], info.get("serverStatus", "RUNNING")
    except (ServerUnreachable, ServerRefused) as problem:
        version, status = "<unknown>", f"<unknown>: {problem}"
    session.write(f"CLI v{__version__}, Server v{version} located at {session.client.url}")
    session.write(f"Server Status: {status}\n\nHaving trouble? Type 'help' (case-insensitive) for a rundown of how "
                  "things work!\n")  # fmt: skip
    Shell(session, Path.home() / ".ksql-history").run()


def _end_after(seconds: float) -> None:
    """Raise KeyboardInterrupt after so many seconds, which ends a query as Ctrl-C does."""
    import signal

    def interrupt(_: int, __: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _settings_in(path: Path) -> dict[str, str]:
    from pessoa.cli.service_settings import settings_in

    return settings_in(path)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--define {text}: write NAME=VALUE")
    return name, value


@click.command(
    name="ksql",
    help="Type ksql statements, or run the cases of a file: pessoa ksql test FILE",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
    epilog=for_click("pessoa ksql"),
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def ksql_group(ctx: click.Context, words: tuple[str, ...]) -> None:
    if words and words[0] == "test":
        from pessoa.cli.ksql.case_runs import run_case_files

        ctx.exit(run_case_files([Path(one) for one in words[1:]], click.echo))
    ksql.main(list(words), prog_name="pessoa ksql")


def main() -> None:
    ksql(prog_name="ksql")
