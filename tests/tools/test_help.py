"""The help of every installed command has examples, and the command accepts them."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pessoa.cli.confluent.confluent import COMMANDS
from pessoa.cli.confluent.confluent import main as confluent
from pessoa.cli.main import SUBCOMMANDS
from pessoa.cli.main import main as pessoa
from pessoa.cli.subcommands import ParsedTool
from pessoa.cli.tool_run import Tool
from pessoa.cli.tools import TOOLS, load
from tests.tools.stage import run_ours

SCRIPTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
# These commands use click; the others are Kafka's tools, which parse options with our own tables or argparse.
BY_CLICK = {
    "ksql": "pessoa.cli.ksql.ksql:ksql",
    "ksql-server-start": "pessoa.cli.ksql_server:ksql_server",
    "kafka-rest-start": "pessoa.cli.rest_proxy:rest_proxy",
    "schema-registry-start": "pessoa.cli.schema_registry:schema_registry",
    "connect-distributed": "pessoa.cli.connect:connect",
    "connect-mirror-maker": "pessoa.cli.mirror_maker:mirror_maker",
    "connect-standalone": "pessoa.cli.connect:standalone",
    "kafka-shell": "pessoa.cli.shell:shell",
}


def command_at(place: str) -> click.Command:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, click.Command)
    return found


def examples_in(text: str) -> list[list[str]]:
    """Return the commands below `Examples:`, each as words; of a pipe only the last command."""
    foot = re.split(r"(?im)^ *examples:$", text, maxsplit=1)[1]
    found = []
    for line in foot.splitlines():
        # A description follows a command after two blanks, or is on its own line.
        typed = re.split(r" {2,}", line.strip())[0].rpartition(" | ")[2]
        words = re.sub(r"^[A-Z_]+=\S+ | && .*", "", typed)
        if words.partition(" ")[0] in SCRIPTS:
            found.append(shlex.split(words))
    assert found
    return found


@pytest.fixture(autouse=True)
def _accept_missing_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, _parameter, _context: value)


def parse_by_click(command: click.Command, words: list[str]) -> None:
    with command.make_context("example", list(words)) as context:
        if isinstance(command, click.Group):
            inner = command.get_command(context, words[0])
            assert inner is not None, words
            parse_by_click(inner, words[1:])


def parse_by_table(tool: Tool | ParsedTool, words: list[str]) -> None:
    if isinstance(tool, Tool):
        given = tool.make_options().parse(words)
        assert not given.words, f"these belong to no option: {given.words}"
    else:
        assert isinstance(tool.make_parser().parse_args(words), argparse.Namespace)


@pytest.mark.parametrize("tool", TOOLS)
def test_each_kafka_tool_accepts_the_examples_in_its_help(tool: str) -> None:
    shown = run_ours(tool, "--help")
    for name, *words in examples_in(shown.out + shown.err):
        assert name == tool
        parse_by_table(load(tool), words)


@pytest.mark.parametrize("name", [name for name in SUBCOMMANDS if name != "broker"])
def test_each_pessoa_subcommand_accepts_the_examples_in_its_help(name: str) -> None:
    shown = CliRunner().invoke(pessoa, [name, "--help"], terminal_width=200)
    assert shown.exit_code == 0
    for first, subcommand, *words in examples_in(shown.output):
        assert (first, subcommand) == ("pessoa", name)
        row = SUBCOMMANDS[name]
        parse_by_click(command_at(f"{row.module}:{row.attribute}"), words)


@pytest.mark.parametrize("name", BY_CLICK)
def test_each_service_command_accepts_the_examples_in_its_help(name: str) -> None:
    command = command_at(BY_CLICK[name])
    shown = CliRunner().invoke(command, ["--help"], terminal_width=200)
    assert shown.exit_code == 0
    for first, *words in examples_in(shown.output):
        parse_by_click(command, words[1:] if first == "pessoa" else words)


def test_confluent_has_the_commands_of_its_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert confluent(["--help"]) == 0
    assert {words[1] for words in examples_in(capsys.readouterr().out)} <= set(COMMANDS)


def test_every_installed_command_has_a_test_of_its_help() -> None:
    installed = {name for name in SCRIPTS if not name.endswith(".sh")}
    assert installed == {*TOOLS, *BY_CLICK, "pessoa", "confluent"}
