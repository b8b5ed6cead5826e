"""Tools whose command line has subcommands: `kafka-cluster cluster-id --bootstrap-server …`.

Kafka builds these on argparse4j, which is Python's argparse in Java, so argparse it is: the same abbreviations, groups
and complaints. What differs is the end: 1 and not 2 after a complaint, and 1 after --help as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from pessoa.cli.running import reach, read_properties

if TYPE_CHECKING:
    from pessoa.client.cluster import Cluster


class Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        from pessoa.cli.examples import text_of

        examples = text_of(self.prog)
        return super().format_help() + (f"\n{examples}" if examples else "")

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog.split()[0]}: error: {message}", file=sys.stderr)
        raise SystemExit(1)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            print(message, end="", file=sys.stderr)
        raise SystemExit(1 if status == 0 and message is None else status)


class Failed(Exception):
    """What was asked for cannot be done; the sentence goes to standard error, and the exit code is 1."""


def run_parsed(
    parser: argparse.ArgumentParser,
    act: Callable[[argparse.Namespace], int | None],
    words: Sequence[str] | None,
) -> int:
    from pessoa.cli.options import Options
    from pessoa.cli.running import run, warn
    from pessoa.client.errors import KafkaFailure

    def tool(given: Sequence[str]) -> int:
        chosen = parser.parse_args(given)
        try:
            return act(chosen) or 0
        except Failed as failure:
            sys.stdout.flush()
            warn(str(failure))
        except KafkaFailure as failure:
            sys.stdout.flush()
            # Apache unwraps these only as far as to the name of the class.
            warn(failure.java_text)
        return 1

    return run(tool, Options(parser.prog, ""), words)


def connect(servers: str | None, controllers: str | None = None, config: str | None = None, **settings: str) -> Cluster:
    properties = (read_properties(config) if config else {}) | settings
    if controllers is not None:
        return reach(controllers, properties, controllers=True)
    assert servers is not None
    return reach(servers, properties)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell, each followed by a tab."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    for row in cells:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))
