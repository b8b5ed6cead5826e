"""`pessoa shell`, also `kafka-shell`: Kafka's commands with completion, history and help, on one of several clusters.

    F2   the next cluster      F3   fuzzy completion on or off
    F9   help on or off        F10  leave (also exit, Ctrl-D); Ctrl-C clears the line

A command gets `--bootstrap-server` of the chosen cluster where it names none. What completes is in shell_words; this is
the terminal around it. Without a terminal (`pessoa shell < commands.txt`) the lines are run one after the other.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from pessoa.cli.examples import for_click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completion
    from prompt_toolkit.document import Document

    from pessoa.cli.shell_words import Live


class State:
    """The settings of the shell that the function keys change."""

    def __init__(self, clusters: dict[str, str]) -> None:
        from pessoa.cli.shell_words import Live

        assert clusters
        self._live_by_cluster: dict[str, Live] = {name: Live(servers) for name, servers in clusters.items()}
        self.cluster = next(iter(clusters))
        self.is_fuzzy = True
        self.shows_help = True

    @property
    def live(self) -> Live:
        return self._live_by_cluster[self.cluster]

    def choose(self, name: str) -> bool:
        if name not in self._live_by_cluster:
            return False
        self.cluster = name
        return True

    def next_cluster(self) -> None:
        names = list(self._live_by_cluster)
        self.cluster = names[(names.index(self.cluster) + 1) % len(names)]

    def toolbar(self) -> str:
        fuzzy, helps = ("ON" if flag else "OFF" for flag in (self.is_fuzzy, self.shows_help))
        return f" [F2] Cluster: {self.cluster} [F3] Fuzzy: {fuzzy} [F9] In-Line Help: {helps} [F10] Exit"


# `docker-compose exec broker`, `docker exec -it kafka_1`: there are no containers here, and what follows is meant.
_CONTAINER = re.compile(r"docker(-compose| compose)? exec (-\w+ )*\S+\s+(?=\S*(kafka|confluent))")
# What a shell would understand and no command of Kafka's does.
_OF_THE_SHELL = frozenset("| || && ; > >> < 2> 2>&1 &".split())


def as_typed(text: str) -> str:
    """Return a copied line without the prompt or the `docker exec` of a container before it."""
    words = text.removeprefix("$ ").strip()
    return _CONTAINER.sub("", words)


def command_line(text: str, state: State) -> list[str] | None:
    """Return the command to run for a line; None if it is not one of Kafka's tools."""
    from pessoa.cli.shell_words import with_cluster
    from pessoa.cli.tools import TOOLS

    words = shlex.split(text)
    tool = words[0].removesuffix(".sh") if words else ""
    if tool not in TOOLS:
        return None
    words = with_cluster(words, state.live.servers)
    command = [sys.executable, "-m", "pessoa.cli.tools", tool]
    if _OF_THE_SHELL.isdisjoint(words):
        return [*command, *words[1:]]
    # A pipe, for instance. What was typed stays as it is, quotes and all, behind what the cluster adds.
    added = words[1 : len(words) - len(shlex.split(text)) + 1]
    rest = text.split(maxsplit=1)[1]
    return ["bash", "-c", f"{shlex.join([*command, *added])} {rest}"]


@click.command(
    help="Type Kafka's commands with completion, from the live cluster too.", epilog=for_click("pessoa shell")
)
@click.option("--cluster", "clusters", multiple=True, metavar="NAME=HOST:PORT,…", help="A cluster; repeatable, for F2.")
def shell(clusters: tuple[str, ...]) -> None:
    from pessoa.cli.tool_run import default_cluster

    named = dict(one.partition("=")[::2] for one in clusters) or {"local": default_cluster()}
    if not all(name and servers for name, servers in named.items()):
        raise click.UsageError("a cluster is given as NAME=HOST:PORT")
    state = State(named)
    if not sys.stdin.isatty():
        for text in sys.stdin:
            if text.strip() == "exit":
                return
            # What follows are commands, and no input for this one.
            _run(text.strip(), state, subprocess.DEVNULL)
        return
    session = _session(state)
    while True:
        try:
            text = session.prompt("> ", bottom_toolbar=state.toolbar)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.strip() == "exit":
            return
        _run(text.strip(), state)


def _run(text: str, state: State, stdin: int | None = None) -> None:
    from pessoa.cli.tool_run import DEFAULT_CLUSTER_VARIABLE

    text = as_typed(text)
    if not text:
        return
    try:
        first, *rest = shlex.split(text)
        command = command_line(text, state)
    except ValueError as error:
        click.echo(f"{error}: {text}")
        return
    if first == "clear":
        click.clear()
    elif first == "cluster":
        if rest and not state.choose(rest[0]):
            click.echo("Unknown cluster!")
        else:
            click.echo(f"Selected cluster: {state.cluster} ({state.live.servers})")
    elif command is None:
        click.echo(f"{first} is not a command of Kafka's; Tab shows what there is.")
    else:
        # For those that stand behind a pipe or a semicolon and name no cluster.
        environment = {**os.environ, DEFAULT_CLUSTER_VARIABLE: state.live.servers}
        try:
            subprocess.run(command, check=False, stdin=stdin, env=environment)
        except KeyboardInterrupt:
            click.echo()


def _session(state: State) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.completion import Completer, Completion, DynamicCompleter, FuzzyCompleter, ThreadedCompleter
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings

    from pessoa.base.home_folder import pessoa_home
    from pessoa.cli.shell_words import suggestions

    class Words(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            for one in suggestions(document.text_before_cursor, state.live):
                explanation = one.help if state.shows_help else ""
                yield Completion(one.text, start_position=-one.replaces, display_meta=explanation)

    plain = ThreadedCompleter(Words())
    # A word may have dots, dashes and slashes in it.
    fuzzy = FuzzyCompleter(plain, pattern=r"^[^\s=]*")
    keys = KeyBindings()
    keys.add("f2")(lambda _: state.next_cluster())
    keys.add("f3")(lambda _: setattr(state, "is_fuzzy", not state.is_fuzzy))
    keys.add("f9")(lambda _: setattr(state, "shows_help", not state.shows_help))
    keys.add("f10")(lambda event: event.app.exit(exception=EOFError))
    history: History = InMemoryHistory()
    home = pessoa_home()
    # A user who may not write there goes without the history.
    with suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
        (home / "shell-history").touch()
        history = FileHistory(str(home / "shell-history"))
    return PromptSession(
        completer=DynamicCompleter(lambda: fuzzy if state.is_fuzzy else plain),
        auto_suggest=AutoSuggestFromHistory(),
        history=history,
        key_bindings=keys,
        complete_while_typing=True,
    )
