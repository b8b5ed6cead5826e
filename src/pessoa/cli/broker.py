"""`pessoa broker`: hands its arguments, untouched, to the broker's own assembly.

The broker reads its options itself (they are Kafka's: a `server.properties` and overrides of its keys), so click must
not interpret any of them, `--help` included.
"""

from __future__ import annotations

import click

ASSEMBLY = "pessoa.broker.assembly"


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    help="Run one broker in the foreground.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def broker(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    from importlib import import_module

    try:
        assembly = import_module(ASSEMBLY)
    except ModuleNotFoundError as missing:
        # Only the broker's own absence is ours to explain; a missing library inside it must show itself.
        if missing.name is None or not ASSEMBLY.startswith(missing.name):
            raise
        raise click.ClickException(f"this installation of Pessoa has no broker in it (no module {ASSEMBLY})") from None
    ctx.exit(assembly.main(list(arguments)))
