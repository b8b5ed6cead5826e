"""What the commands of all services have in common: PROPERTIES, --override, options that win over both, and errors."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pessoa.base.config_values import ConfigProblem
from pessoa.cli.connect import connect
from pessoa.cli.ksql_server import ksql_server
from pessoa.cli.pipelines import pipelines
from pessoa.cli.rest_proxy import rest_proxy
from pessoa.cli.schema_registry import schema_registry
from pessoa.cli.service_settings import config_of, settings_of

COMMANDS = [connect, ksql_server, rest_proxy, schema_registry, pipelines.commands["serve"]]


def test_an_option_wins_over_an_override_and_that_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "service.properties"
    path.write_text("a=file\nb=file\nc=file\nd=file\n")
    found = settings_of(path, ["b=override", "c=override"], {"c": "option", "d": None})
    assert found == {"a": "file", "b": "override", "c": "option", "d": "file"}


def test_a_wrong_setting_is_told_as_the_error_of_a_command() -> None:
    def refuse(settings: object) -> None:
        raise ConfigProblem("port", "x", "it must be a number")

    with pytest.raises(click.ClickException, match="port"):
        config_of(refuse, {})


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: str(one.name))
def test_every_service_takes_settings_in_the_same_ways(command: click.Command, tmp_path: Path) -> None:
    path = tmp_path / "service.properties"
    path.write_text("listeners=ftp://here:1\n")
    for words, told in (
        ([str(path)], "ftp://here:1"),
        ([str(path), "--override", "listeners=ftp://there:2"], "ftp://there:2"),
        (["--override", "listeners"], "--override listeners: write KEY=VALUE"),
        ([str(tmp_path / "none")], "does not exist"),
    ):
        refused = CliRunner().invoke(command, words)
        assert refused.exit_code in (1, 2), refused.output
        assert told in refused.output
