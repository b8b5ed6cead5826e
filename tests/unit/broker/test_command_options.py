"""`pessoa broker` parses its options without argparse where that is possible, with the same result."""

from __future__ import annotations

import pytest

from pessoa.broker.command_options import CommandOptions, _parser, read_options, read_plainly

PLAIN = [
    [],
    ["--set", "node.id=1"],
    ["--set", "a=b", "--config", "one.properties", "--set", "c=d=e", "--config", "two.properties"],
    ["--cluster-id", "abc", "--add-scram", "SCRAM-SHA-512=[name=a,password=b]"],
    ["--set", ""],
]


@pytest.mark.parametrize("argv", PLAIN)
def test_simple_options_are_parsed_without_argparse_to_the_same_result(argv: list[str]) -> None:
    read = _parser().parse_args(argv)
    assert read_plainly(argv) == CommandOptions(read.config, read.set, read.cluster_id, read.add_scram)


@pytest.mark.parametrize(
    "argv", [["--help"], ["--set"], ["--set=a=b"], ["--conf", "x"], ["--set", "--config"], ["--set", "-1"], ["a", "b"]]
)
def test_other_options_are_left_to_argparse(argv: list[str]) -> None:
    assert read_plainly(argv) is None


def test_argparse_parses_options_that_are_not_simple() -> None:
    assert read_options(["--set=a=b", "--conf", "x"]) == CommandOptions("x", ["a=b"], None, [])


def test_a_wrong_option_ends_the_command_with_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(["--sett", "a=b"])
    assert "usage: pessoa broker" in capsys.readouterr().err
