from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.cli.options import UsageError
from pessoa.cli.running import read_properties


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# a comment\n! another\n\n  security.protocol = SSL\nsasl.mechanism:PLAIN\nclient.id mine\n"
        "long=one,\\\n     two,\\\n     three\nempty=\npath=C:\\\\data\nlines=a\\nb\\tc\nletter=\\u00e3\nodd\\ key=x\n"
        "two.backslashes=ends here\\\\\nnext=line\n"
    )
    assert read_properties(str(path)) == {
        "security.protocol": "SSL",
        "sasl.mechanism": "PLAIN",
        "client.id": "mine",
        "long": "one,two,three",
        "empty": "",
        "path": "C:\\data",
        "lines": "a\nb\tc",
        "letter": "ã",
        "odd key": "x",
        "two.backslashes": "ends here\\",
        "next": "line",
    }


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_properties(str(tmp_path / "absent"))


def test_a_file_that_is_no_properties_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("password=C:\\users\n")
    with pytest.raises(UsageError, match=r"client\.properties: \\users is not a character"):
        read_properties(str(path))
