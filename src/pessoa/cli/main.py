"""The `pessoa` command: one table of subcommands, each imported only when it is asked for.

A tool must start in less than 0.2 s, and the parts behind the subcommands (the broker, the services, Spark) cost far
more than that to import. So the group knows each subcommand by three strings (its name, where it lives, one line of
help), and `pessoa --help` is printed from the table alone. A new tool is a new file beside this one and one row here.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click

from pessoa import __version__


class Subcommand(NamedTuple):
    module: str
    attribute: str
    help: str


SUBCOMMANDS = {
    "up": Subcommand("pessoa.cli.up", "up", "Start the platform on this machine and keep it running."),
    "down": Subcommand("pessoa.cli.down", "down", "Stop the platform that `pessoa up` started."),
    "status": Subcommand("pessoa.cli.status", "status", "Say what of the platform runs and answers."),
    "logs": Subcommand("pessoa.cli.logs", "logs", "Print what a service, or every service, has logged."),
    "top": Subcommand("pessoa.cli.top", "top", "Show what the processes of the platform use."),
    "users": Subcommand("pessoa.cli.users", "users", "Add, remove and list the users of a secured cluster."),
    "acls": Subcommand("pessoa.cli.user_acls", "acls", "Say who may do what in a secured cluster."),
    "demo": Subcommand("pessoa.cli.demo", "demo", "Fill topics with the events of a small shop."),
    "broker": Subcommand("pessoa.cli.broker", "broker", "Run one broker in the foreground."),
    "rest-proxy": Subcommand("pessoa.cli.rest_proxy", "rest_proxy", "Run the REST proxy (port 8082)."),
    "schema-registry": Subcommand(
        "pessoa.cli.schema_registry", "schema_registry", "Run a schema registry in the foreground."
    ),
    "pipelines": Subcommand("pessoa.cli.pipelines", "pipelines", "Run data pipelines on Spark."),
    "connect": Subcommand("pessoa.cli.connect", "connect", "Run a Connect worker (port 8083)."),
    "control-center": Subcommand("pessoa.cli.control_center", "control_center", "Run the control centre (port 9021)."),
    "ksql-server": Subcommand("pessoa.cli.ksql_server", "ksql_server", "Run a ksql server (port 8088)."),
    "ksql": Subcommand("pessoa.cli.ksql.ksql", "ksql_group", "Type ksql statements, or run the cases of a file."),
    "partitions": Subcommand("pessoa.cli.partitions", "partitions", "Say how many partitions a throughput needs."),
    "shell": Subcommand("pessoa.cli.shell", "shell", "Type Kafka's commands with completion."),
    "version": Subcommand("pessoa.cli.version", "version", "Say which Pessoa, Python and machine this is."),
}

# \b keeps click from re-wrapping the lines that follow it.
EXAMPLES = """\b
Examples:
  pessoa up                    everything, until Ctrl-C
  pessoa up --secure           the same with TLS, logins and access control lists
  PESSOA_HOME=/data pessoa up  the same, with data and logs under /data
  pessoa broker --help         what a single broker takes
  kafka-topics --help          Kafka's own commands come with this one
"""


class LateGroup(click.Group):
    """A click group whose subcommands are rows of a table until one of them is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = SUBCOMMANDS.get(cmd_name)
        if row is None:
            return None
        command = getattr(import_module(row.module), row.attribute)
        assert isinstance(command, click.Command), f"{row.module}.{row.attribute} is not a click command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # A shell that requests completions expects None, as click itself returns it.
        if args and args[0] not in SUBCOMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], SUBCOMMANDS, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click's own version imports every subcommand for its help line; the table has it already.
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in SUBCOMMANDS.items()])


@click.group(
    cls=LateGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The Kafka platform for Python people.",
    epilog=EXAMPLES,
)
@click.version_option(__version__, "-V", "--version", message="pessoa %(version)s")
def main() -> None:
    pass
