"""`pessoa broker` among the other subcommands, for their help and completion. `pessoa.__main__` runs it without click.

The broker reads its options itself (they are Kafka's: a `server.properties` and overrides of its keys), so click must
not interpret any of them, `--help` included.
"""

from __future__ import annotations

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    help="Run one broker in the foreground.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def broker(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    from pessoa.broker import assembly

    ctx.exit(assembly.main(list(arguments)))
