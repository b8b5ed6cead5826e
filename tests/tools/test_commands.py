from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pessoa.base.java_order import hash_order, partition_hash, string_hash
from pessoa.cli.tools import TOOLS, load
from pessoa.testing import Broker
from tests.tools.stage import run_ours

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_every_tool_is_installed_under_its_name_with_and_without_sh() -> None:
    scripts = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
    for tool, place in TOOLS.items():
        module, _, name = place.partition(":")
        assert scripts[tool] == scripts[f"{tool}.sh"] == f"pessoa.cli.{module}:{name or 'main'}"
        assert callable(load(tool))


@pytest.mark.parametrize("tool", TOOLS)
def test_help_lists_options_and_imports_neither_an_event_loop_nor_a_client(tool: str) -> None:
    code = (
        f"import sys; from pessoa.cli.tools import load\n"
        f"try: load({tool!r})(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('asyncio', 'uvloop', 'confluent_kafka', 'rich', 'click')\n"
        "print(sorted(name for name in sys.modules if name in heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--" in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("topics", ("--list",)),
        ("topics", ("--describe",)),
        ("consumer_groups", ("--list",)),
        ("consumer_groups", ("--describe", "--all-groups")),
    ],
)
def test_listing_and_describing_import_no_modules_that_are_slow_to_import(tool: str, words: tuple[str, ...]) -> None:
    # Importing each of these takes milliseconds, and such a tool spends most of its time on imports.
    heavy = ("asyncio", "dataclasses", "encodings.idna", "inspect", "json", "pathlib", "ssl", "textwrap", "threading")
    with Broker() as broker:
        code = (
            f"import sys; from pessoa.cli.{tool} import main\n"
            f"assert main([*{words}, '--bootstrap-server', '{broker.bootstrap_servers}']) == 0\n"
            f"print(sorted(name for name in sys.modules if name in {heavy}))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_tool_process_prints_its_whole_output_before_it_exits() -> None:
    with Broker() as broker:
        names = [f"t{number:03}-{'x' * 200}" for number in range(60)]
        for name in names:
            run_ours("kafka-topics", "--bootstrap-server", broker.bootstrap_servers, "--create", "--topic", name)
        command = [
            sys.executable,
            "-m",
            "pessoa.cli.tools",
            "kafka-topics",
            "--list",
            "--bootstrap-server",
            broker.bootstrap_servers,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == names


@pytest.mark.parametrize("tool", TOOLS)
def test_an_unknown_option_ends_with_code_1(tool: str) -> None:
    assert run_ours(tool, "--levitate").code == 1


def test_names_that_differ_only_in_aa_and_bb_have_the_same_java_hash() -> None:
    # The comparison with Apache's tools in tests/tools/stage.py relies on it.
    assert string_hash("Aa-orders") == string_hash("BB-orders")
    assert partition_hash(("Aa-orders", 3)) == partition_hash(("BB-orders", 3))


def test_hash_order_sorts_keys_as_a_java_hash_map_does() -> None:
    assert string_hash("hello") == 99162322
    assert hash_order([("g1", 0), ("g1", 1), ("g1", 2)], partition_hash) == [("g1", 2), ("g1", 1), ("g1", 0)]
