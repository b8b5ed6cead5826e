"""Tools whose command line has subcommands: `kafka-cluster cluster-id --bootstrap-server …`.

Kafka builds these on argparse4j, which is Python's argparse in Java, so argparse it is: the same abbreviations, groups
and complaints. What differs is the end: 1 and not 2 after a complaint, and 1 after --help as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from pessoa.cli.tool_run import reach, read_properties, run, warn

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster


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
    """The command cannot be carried out; the sentence goes to standard error, and the exit code is 1."""


class ParsedTool:
    """A command whose options argparse parses. The exit code of an act that returns None is 0."""

    def __init__(
        self,
        make_parser: Callable[[], argparse.ArgumentParser],
        act: Callable[[argparse.Namespace], int | None],
        *,
        helps_empty_lines: bool,
    ) -> None:
        self.make_parser = make_parser
        self._act = act
        self._helps_empty_lines = helps_empty_lines

    def __call__(self, words: Sequence[str] | None = None) -> int:
        return run(self._code, words)

    def _code(self, words: Sequence[str]) -> int | None:
        parser = self.make_parser()
        if self._helps_empty_lines and not words:
            parser.print_help()
            return 0
        chosen = parser.parse_args(words)
        try:
            return self._act(chosen)
        except Failed as failure:
            sys.stdout.flush()
            warn(str(failure))
            return 1

    def completions(self) -> dict[str, tuple[str, bool]]:
        """Return the options by name: their help, and whether a value follows."""
        return {
            name.removeprefix("--"): (action.help or "", action.nargs != 0)
            for action in self.make_parser()._actions
            for name in action.option_strings
            if name.startswith("--")
        }


def parsed_tool(
    make_parser: Callable[[], argparse.ArgumentParser], *, helps_empty_lines: bool = False
) -> Callable[[Callable[[argparse.Namespace], int | None]], ParsedTool]:
    """Return a decorator that makes a ParsedTool, as `tool_run.tool` makes a Tool. With `helps_empty_lines` an empty
    command line prints the help, and is not an error."""
    return lambda act: ParsedTool(make_parser, act, helps_empty_lines=helps_empty_lines)


def connect(servers: str | None, controllers: str | None = None, config: str | None = None, **settings: str) -> Cluster:
    properties = (read_properties(config) if config else {}) | settings
    if controllers is not None:
        return reach(controllers, properties, controllers=True)
    assert servers is not None
    return reach(servers, properties)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with columns as wide as their widest cell, each followed by a tab."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    for row in cells:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))
