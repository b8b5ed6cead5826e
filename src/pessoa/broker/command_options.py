"""The options of `pessoa broker`.

argparse, with what it imports, takes five milliseconds of a start and half a megabyte that the broker keeps. So the
way in which a supervisor or a script writes them, names in full and each with its value behind it, is read without it;
it gets whatever else there is: help, abbreviations, `--name=value`, mistakes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

_EXAMPLES = """\
examples:
  pessoa broker                                        a cluster of one on 127.0.0.1:9092
  pessoa broker --set listeners=PLAINTEXT://127.0.0.1:19092 --set log.dirs=/tmp/broker
  pessoa broker --config server.properties             with Kafka's own keys

a cluster of three, each in a terminal of its own (N is 1, 2 and 3):
  pessoa broker --set node.id=N \
    --set listeners=PLAINTEXT://127.0.0.1:N9092,CONTROLLER://127.0.0.1:N9093 \
    --set controller.quorum.voters=1@127.0.0.1:19093,2@127.0.0.1:29093,3@127.0.0.1:39093
"""


class CommandOptions(NamedTuple):
    """The options of the command line. `settings` and `first_users` are as written; `config` is the path of a file."""

    config: str | None
    settings: Sequence[str]
    cluster_id: str | None
    first_users: Sequence[str]


def read_options(argv: Sequence[str]) -> CommandOptions:
    """Return the options. Exits the process for `--help` and for mistakes."""
    plain = read_plainly(argv)
    if plain is not None:
        return plain
    read = _parser().parse_args(argv)
    return CommandOptions(read.config, read.set, read.cluster_id, read.add_scram)


def read_plainly(argv: Sequence[str]) -> CommandOptions | None:
    """Return the options without argparse, which is slow to import; None if it is needed."""
    found: dict[str, list[str]] = {"--config": [], "--set": [], "--cluster-id": [], "--add-scram": []}
    if len(argv) % 2:
        return None
    for name, value in zip(argv[::2], argv[1::2], strict=True):
        if name not in found or value.startswith("-"):
            return None
        found[name].append(value)
    config, cluster_id = found["--config"], found["--cluster-id"]
    return CommandOptions(
        config[-1] if config else None, found["--set"], cluster_id[-1] if cluster_id else None, found["--add-scram"]
    )


def _parser() -> ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="pessoa broker",
        description="Run one broker in the foreground. SIGTERM and Ctrl-C stop it in order.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one key; wins over the file (repeatable)"
    )
    parser.add_argument("--cluster-id", metavar="ID", help="the cluster to belong to; a new directory gets it")
    parser.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="SCRAM-SHA-512=[name=…,password=…]",
        help="a user that a new cluster begins with, as for kafka-storage (repeatable)",
    )
    return parser
