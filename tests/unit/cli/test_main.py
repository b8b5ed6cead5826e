from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from pessoa import __version__
from pessoa.cli.main import SUBCOMMANDS, main


def test_help_names_every_subcommand_and_gives_examples() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name, row in SUBCOMMANDS.items():
        assert f"  {name} " in result.output
        assert row.help in result.output
    assert "Examples:\n    pessoa up " in result.output


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_tool_row_and_its_command_have_the_same_name_and_help(name: str) -> None:
    with main.make_context("pessoa", [name], resilient_parsing=True) as context:
        command = main.get_command(context, name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").startswith(SUBCOMMANDS[name].help.removesuffix("."))


def test_version_is_the_package_version_in_both_spellings() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"pessoa {__version__}\n"
    assert CliRunner().invoke(main, ["version"]).output.startswith(f"pessoa {__version__}\npython 3.")


def test_an_unknown_subcommand_is_named_in_the_error() -> None:
    result = CliRunner().invoke(main, ["levitate"])
    assert result.exit_code == 2
    assert "No such command 'levitate'" in result.output


@pytest.mark.parametrize("line", ["pessoa upp ", "pessoa upp --"])
def test_completing_a_command_line_with_a_mistake_prints_no_error(line: str) -> None:
    asked = {"_PESSOA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "2"}
    result = CliRunner().invoke(main, prog_name="pessoa", env=asked)
    assert (result.exit_code, result.output.count("No such command")) == (0, 0)


def test_help_imports_neither_the_platform_nor_rich() -> None:
    code = (
        "import sys; from pessoa.cli.main import main; main(['--help'], standalone_mode=False); "
        "print(sorted(name for name in sys.modules if name.startswith(('pessoa.', 'rich', 'asyncio'))))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "['pessoa.cli', 'pessoa.cli.main']"


def test_python_dash_m_pessoa_is_the_same_command() -> None:
    run = subprocess.run([sys.executable, "-m", "pessoa", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"pessoa {__version__}\n"


def test_importing_pessoa_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import pessoa; print(sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "['pessoa']\n"


def test_pessoa_broker_passes_every_argument_unchanged_to_the_assembly(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[str] = []

    def fake_main(argv: list[str]) -> int:
        received.extend(argv)
        return 7

    assembly = ModuleType("pessoa.broker.assembly")
    assembly.__dict__["main"] = fake_main
    monkeypatch.setitem(sys.modules, "pessoa.broker", ModuleType("pessoa.broker"))
    monkeypatch.setitem(sys.modules, "pessoa.broker.assembly", assembly)
    arguments = ["server.properties", "--override", "node.id=1", "--help", "-x"]
    result = CliRunner().invoke(main, ["broker", *arguments])
    assert received == arguments
    assert result.exit_code == 7


def test_a_broker_is_started_without_click() -> None:
    code = (
        "import sys; sys.argv = ['pessoa', 'broker', '--help']; from pessoa.__main__ import main\n"
        "try: main()\n"
        "finally: print([name for name in ('click', 'difflib', 'msgspec', 'pickle') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("usage: pessoa broker")
    assert run.stdout.splitlines()[-1] == "[]"


def test_a_running_broker_has_imported_only_the_modules_that_it_needs(tmp_path: Path) -> None:
    """A start is as long as what it imports, and the broker keeps the memory."""
    code = (
        "import asyncio, sys\n"
        "from pessoa.broker.assembly import make_broker\n"
        "from pessoa.broker.command_options import read_options\n"
        "async def run():\n"
        f"    broker = make_broker({{'log.dirs': {str(tmp_path / 'data')!r}, 'listeners': 'PLAINTEXT://127.0.0.1:0'}})\n"
        "    await broker.start()\n"
        "    await broker.wait_until_ready()\n"
        "    print([name for name in sys.argv[1:] if name in sys.modules])\n"
        "    await broker.stop()\n"
        "read_options(['--set', 'log.dirs=/tmp'])\n"
        "asyncio.run(run())\n"
    )
    unwanted = (
        *("argparse", "click", "datetime", "difflib", "msgspec", "pathlib", "pickle", "shutil", "urllib.parse"),
        *("pessoa.log.compaction.log_cleaner", "pessoa.security.sasl.jaas", "pessoa.security.tls.settings"),
    )
    run = subprocess.run([sys.executable, "-c", code, *unwanted], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]"]
