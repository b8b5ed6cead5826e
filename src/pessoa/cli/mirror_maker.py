"""`connect-mirror-maker`: what MirrorMaker 2 does, from its properties file, without a Connect cluster.

    connect-mirror-maker mm2.properties                   all flows of the file
    connect-mirror-maker mm2.properties --clusters aqui   the flows into this cluster

Every cluster that something flows to has a worker, in a process of its own if there are several. How far it has come is
kept under `pessoa.home` of the file, or `$PESSOA_HOME/connect/mirror-maker`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pessoa.cli.connect import CONTEXT, PATH
from pessoa.cli.examples import for_click

if TYPE_CHECKING:
    from pessoa.connect.mirror_flows import MirrorWorker


@click.command(
    help="Mirror Kafka clusters, as a MirrorMaker 2 file says.",
    context_settings=CONTEXT,
    epilog=for_click("connect-mirror-maker"),
)
@click.argument("properties", type=PATH)
@click.option("--clusters", multiple=True, metavar="ALIAS", help="Only the flows into this cluster; may be repeated.")
@click.pass_context
def mirror_maker(ctx: click.Context, properties: Path, clusters: tuple[str, ...]) -> None:
    from pessoa.base.config_values import ConfigProblem
    from pessoa.cli.service_settings import settings_in
    from pessoa.connect.mirror_flows import mirror_workers

    only = [name for each in clusters for name in each.replace(",", " ").split()]
    try:
        workers = mirror_workers(settings_in(properties), only)
    except ConfigProblem as wrong:
        raise click.ClickException(str(wrong)) from None
    ctx.exit(_run_one(workers[0]) if len(workers) == 1 else _run_each(properties, workers))


def _run_one(worker: MirrorWorker) -> int:
    from pessoa.cli.connect import run_worker
    from pessoa.connect.worker_config import default_home

    settings = {"listeners": "http://127.0.0.1:0", **worker.settings}
    home = Path(settings.get("pessoa.home") or default_home() / "mirror-maker") / worker.target
    connectors = {name: dict(each) for name, each in worker.connectors.items()}
    return run_worker({**settings, "pessoa.home": str(home)}, connectors)


def _run_each(properties: Path, workers: list[MirrorWorker]) -> int:
    """Run each worker as a process; when one ends, or a signal arrives, stop all."""
    import signal
    import subprocess
    import sys
    import time

    command = [sys.executable, "-m", "pessoa.cli.mirror_maker", str(properties), "--clusters"]
    children = [subprocess.Popen([*command, each.target]) for each in workers]

    def end(*_: object) -> None:
        for child in children:
            if child.poll() is None:
                child.terminate()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    while all(child.poll() is None for child in children):
        time.sleep(0.2)
    end()
    return max(abs(child.wait()) for child in children)


def main() -> None:
    mirror_maker(prog_name="connect-mirror-maker")


if __name__ == "__main__":
    main()
