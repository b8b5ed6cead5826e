"""`pessoa up`: the supervisor with the plan that the options ask for, talking to the terminal.

With `--detach` this command starts itself again in a session of its own, waits until that process is ready or has
failed, and shows its output.

With `--secure` the home gets an authority, keys, users and their files (`platform/secured_home.py`), and the first
users enter the cluster when its brokers are ready (`platform/first_access.py`). A home that was secured stays so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from pessoa.platform.secured_home import Secured

EPILOG = """\b
Brokers are on 9092 (also 19092), 29092 and 39092, schema-registry on 8081, kafka-rest on 8082,
and where they are installed connect on 8083, ksql-server on 8088 and control-center on 9021.
Data and logs go to $PESSOA_HOME (default ~/.pessoa).
Ctrl-C stops everything in reverse order; a second Ctrl-C stops it at once.

\b
Examples:
  pessoa up --brokers 1 --services none       one broker and nothing else
  pessoa up --services schema-registry        three brokers and a registry
  pessoa up --secure                          TLS, logins and access control lists, with an admin to begin with
  pessoa up --detach                          in the background; pessoa status, logs, top and down know about it
"""


@click.command(help="Start the platform on this machine and keep it running until Ctrl-C.", epilog=EPILOG)
@click.option("--brokers", type=click.IntRange(1, 5), metavar="N", help="How many brokers, 1 to 5; 3 for a new home.")
@click.option("--services", metavar="A,B", help="Only these services; all by default, none for brokers alone.")
@click.option("--detach", "-d", is_flag=True, help="Return when everything is ready, and leave it running.")
@click.option("--secure", is_flag=True, help="With TLS, logins and access control lists. A home stays secured.")
@click.option(
    "--port-shift", type=int, default=0, metavar="N", help="Add N to every port, to run beside another Kafka."
)
@click.pass_context
def up(
    ctx: click.Context, brokers: int | None, services: str | None, detach: bool, secure: bool, port_shift: int
) -> None:
    from pessoa.platform.process_plan import CannotPlan, choose, left_out

    wanted = None if services is None else [name.strip() for name in services.split(",") if name.strip()]
    try:
        chosen = choose([] if wanted == ["none"] else wanted)
    except CannotPlan as problem:
        raise click.UsageError(str(problem)) from None
    if wanted is None:
        for sentence in left_out():
            click.echo(sentence)
    run = _detach if detach else _supervise
    ctx.exit(run(brokers, chosen, port_shift, secure))


def _supervise(brokers: int | None, services: list[str], port_shift: int, secure: bool) -> int:
    from pessoa.base.home_folder import pessoa_home
    from pessoa.platform.home import HomeProblem, prepare
    from pessoa.platform.process_plan import DEFAULT_BROKERS, CannotPlan, plan
    from pessoa.platform.report import view_for_here
    from pessoa.platform.run_file import AlreadyRunning, RunLock, stop_orphans
    from pessoa.platform.supervisor import Supervisor

    home = pessoa_home()
    view = view_for_here()
    try:
        platform = prepare(home, brokers, DEFAULT_BROKERS)
        with RunLock(home):
            secured = _secure(home, platform.brokers, services, port_shift, secure)
            files = None if secured is None else secured.files
            rows = plan(home, platform.cluster_id, platform.brokers, services, port_shift, files)
            if left := stop_orphans(home):
                view.tell(f"The last `pessoa up` was killed and left {', '.join(left)} running; stopped them.")
            hint = "\n".join(filter(None, (_how_to_enter(secured, port_shift), where_the_commands_are())))
            acts = {} if secured is None else {"brokers": lambda: _grant(secured)}
            supervisor = Supervisor(rows, home, view.tell, on_change=view.changed, hint=hint, after_tier=acts)
            return supervisor.run_until_signalled()
    except (HomeProblem, AlreadyRunning, CannotPlan) as problem:
        raise click.ClickException(str(problem)) from None


def _secure(home: Path, brokers: int, services: list[str], port_shift: int, secure: bool) -> Secured | None:
    """Return the files of a cluster that is or becomes secured; None for an open one."""
    from datetime import UTC, datetime

    from pessoa.platform.process_plan import bootstrap_servers, registry_url
    from pessoa.platform.secured_home import is_secured, secure_home

    if not secure and not is_secured(home):
        return None
    servers, registry = bootstrap_servers(brokers, port_shift), registry_url(port_shift, is_secured=True)
    return secure_home(home, brokers, services, servers, datetime.now(UTC), registry)


def _grant(secured: Secured) -> None:
    from pessoa.client.client_errors import KafkaFailure
    from pessoa.platform.first_access import grant_first_access
    from pessoa.platform.supervisor import StartFailure

    try:
        grant_first_access(secured)
    except KafkaFailure as failure:
        raise StartFailure(f"The first users could not be made: {failure}.") from failure


def _how_to_enter(secured: Secured | None, port_shift: int) -> str:
    """Return the commands with which a user reaches a secured cluster; "" for an open one."""
    if secured is None:
        return ""
    from pessoa.platform.process_plan import bootstrap_servers, registry_url
    from pessoa.platform.security_plan import ADMIN

    first, files = bootstrap_servers(1, port_shift), secured.files
    subjects = f"{registry_url(port_shift, is_secured=True)}/subjects"
    return (
        "Brokers and services demand TLS and a login and allow what an ACL allows; User:admin may do everything:\n"
        f"  kafka-topics --bootstrap-server {first} --command-config {files.client(ADMIN)} --list\n"
        f"  curl --cacert {files.authority} --netrc-file {files.netrc(ADMIN)} {subjects}\n"
        "  pessoa users add ana && pessoa acls allow ana --produce --topic orders\n"
        f"Python and kcat: {files.librdkafka(ADMIN)}"
    )


def where_the_commands_are() -> str:
    """Return how to get kafka-topics and the others into PATH if the virtual environment is not activated; "" if
    they are there."""
    import shutil
    import sys
    from pathlib import Path

    folder = Path(sys.executable).parent
    if shutil.which("kafka-topics") is not None or not (folder / "kafka-topics").exists():
        return ""
    way = f". {folder}/activate" if (folder / "activate").exists() else f"export PATH={folder}:$PATH"
    return f"In another terminal, `{way}` lets you type kafka-topics, confluent, pessoa and the other commands."


def _detach(brokers: int | None, services: list[str], port_shift: int, secure: bool) -> int:
    import subprocess
    import sys
    import time

    from pessoa.base.home_folder import pessoa_home
    from pessoa.platform.home import HomeProblem, log_path, prepare
    from pessoa.platform.process_plan import DEFAULT_BROKERS
    from pessoa.platform.run_file import read_run

    home = pessoa_home()
    try:
        prepare(home, brokers, DEFAULT_BROKERS)
    except HomeProblem as problem:
        raise click.ClickException(str(problem)) from None
    words = ["--services", ",".join(services) or "none", "--port-shift", str(port_shift)]
    words += [] if brokers is None else ["--brokers", str(brokers)]
    words += ["--secure"] if secure else []
    path = log_path(home, "up")
    with path.open("ab") as log:
        begin = log.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "pessoa", "up", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    # The supervisor itself gives up in time; so this ends.
    while child.poll() is None:
        run = read_run(home)
        if run is not None and run.pid == child.pid and run.phase == "ready":
            break
        time.sleep(0.02)
    with path.open("rb") as log:
        log.seek(begin)
        output = (
            log.read().decode(errors="replace").replace("Ctrl-C stops everything", "`pessoa down` stops everything")
        )
    click.echo(output.rstrip("\n"), err=child.returncode is not None)
    code = child.returncode
    if code is None:
        # The platform outlives this command on purpose: it is not waited for.
        child.returncode = 0
    return code or 0
