"""Records with values that a sink does not expect: each is delivered or reported, and the next valid one arrives."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pessoa.connect.connectors import file_stream
from pessoa.connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSourceConnector
from pessoa.connect.connectors.http_sink import HttpSinkConnector
from pessoa.connect.connectors.jdbc_sink import JdbcSinkConnector
from pessoa.connect.connectors.object_sink import FileSystemSinkConnector
from pessoa.connect.connectors.search_documents import DocumentRules, lines_of
from pessoa.connect.data import INT64, MISFITS, STRING, DataFailure, Record, struct
from tests.connect.receivers import receiver
from tests.unit.connect.test_connectors import opened, started

ITEM = struct({"id": INT64, "name": STRING.as_optional})
HOSTILE: dict[str, Any] = {
    "nothing": None,
    "plain text": "texto",
    "bytes": b"\x00\xff",
    "a list": [1, [2, [3]]],
    "no fields": {},
    "a number beyond 64 bits": {"id": 2**70, "name": "x"},
    "a text where a number is": {"id": "muito", "name": "x"},
    "half a character": {"id": 1, "name": "\ud800"},
    "a zero character": {"id": 1, "name": "a\0b"},
    "not a number": {"id": float("nan"), "name": "x"},
    "infinity": {"id": float("inf"), "name": "x"},
    "deep": {"id": 1, "name": {"a": {"b": [{"c": 1}] * 3}}},
    "a name that ends the statement": {"id": 1, 'name"; DROP TABLE items; --': "x"},
    "a name with a placeholder": {"id": 1, "name%s": "x", "100%": "y", "?": "z", ":a": "w"},
    "a name with a zero character": {"id": 1, "na\0me": "x"},
    "a name of half a character": {"id": 1, "\ud800": "x"},
    "an empty name": {"id": 1, "": "x"},
    "a way out of the folder": {"id": 1, "name": "../../../../tmp/pessoa-escaped"},
    "a name longer than a file's": {"id": 1, "name": "x" * 5000},
    "a decimal without end": {"id": Decimal("1e400"), "name": "x"},
    "a time before all times": {"id": 1, "name": datetime(1, 1, 1, tzinfo=UTC)},
    "a set, which no converter makes": {"id": 1, "name": frozenset({1})},
}
GOOD: dict[str, Any] = {"id": 7, "name": "good"}


def records(hostile: Any) -> list[Record]:
    """Return records with the hostile value, without a schema and with a schema that may not match, between valid
    ones."""
    return [
        Record("items", 0, INT64, 6, ITEM, {"id": 6, "name": "first"}, offset=0),
        Record("items", 0, value=hostile, offset=1),
        Record("items", 0, None, None, ITEM, hostile, offset=2),
        Record("items", 0, INT64, 7, ITEM, GOOD, offset=3),
    ]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("keys", ["none", "record_value"])
def test_a_jdbc_sink_writes_the_good_records_among_hostile_ones(tmp_path: Path, name: str, keys: str) -> None:
    path = tmp_path / "out.db"
    settings = {"connection.url": f"jdbc:sqlite:{path}", "auto.create": "true", "auto.evolve": "true",
                "max.retries": "0", "pk.mode": keys, "pk.fields": "id" if keys == "record_value" else ""}  # fmt: skip
    sink = opened(JdbcSinkConnector, settings)
    sink.put(records(HOSTILE[name]))
    sink.stop()
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    good = connection.execute("SELECT id, name FROM items WHERE id IN (6, 7) ORDER BY id").fetchall()
    count = connection.execute("SELECT count(*) FROM items").fetchone()[0]
    connection.close()
    assert good == [(6, b"first"), (7, b"good")]
    assert count + len(sink.refused) == 4


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    ("kind", "read"),
    [("JsonFormat", lambda data: b'"good"' in data), ("AvroFormat", lambda data: b"good" in data),
     ("ParquetFormat", lambda data: b"good" in data), ("ByteArrayFormat", lambda data: b"good" in data)],
)  # fmt: skip
def test_a_file_system_sink_writes_the_good_records_among_hostile_ones_within_its_directory(
    tmp_path: Path, name: str, kind: str, read: Callable[[bytes], bool]
) -> None:
    settings = {"store.url": str(tmp_path / "out"), "flush.size": "10", "format.class": kind,
                "partitioner.class": "FieldPartitioner", "partition.field.name": "name"}  # fmt: skip
    sink = opened(FileSystemSinkConnector, settings)
    sink.put(records(HOSTILE[name]))
    sink.stop()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(read(path.read_bytes()) for path in files)
    assert all(path.is_relative_to(tmp_path / "out" / "topics" / "items") for path in files), files
    assert not Path("/tmp/pessoa-escaped").exists()
    assert len(sink.refused) <= 2


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_sink_writes_a_line_for_each_good_record_among_hostile_ones(tmp_path: Path, name: str) -> None:
    sink = opened(FileStreamSinkConnector, {"file": str(tmp_path / "out")})
    sink.put(records(HOSTILE[name]))
    sink.stop()
    lines = (tmp_path / "out").read_bytes().splitlines()
    assert lines[0] == b"Struct{id=6,name=first}"
    assert lines[-1] == b"Struct{id=7,name=good}"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_search_sink_writes_hostile_records_as_whole_lines_or_refuses_them(name: str) -> None:
    for record in records(HOSTILE[name]):
        try:
            lines = lines_of(record, "items", DocumentRules(ignores_keys=True))
        except MISFITS:
            continue
        # One line for the action, and one for the document if there is any.
        assert [isinstance(json.loads(line), dict) for line in lines.splitlines()] == [True] * lines.count(b"\n")


def test_an_http_sink_sends_or_reports_each_of_the_hostile_records(tmp_path: Path) -> None:
    with receiver() as server:
        for name, hostile in HOSTILE.items():
            sink = opened(HttpSinkConnector, {"http.url": server.url + "/${topic}/${key}", "max.retries": "0"})
            before = len(server.bodies)
            sink.put(records(hostile))
            sink.stop()
            assert len(server.bodies) - before + len(sink.refused) == 4, name
            assert json.loads(server.bodies[-1]) == GOOD, name


def test_a_file_source_fails_on_a_huge_file_without_newlines_before_it_exhausts_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_stream, "LONGEST_LINE", 2 << 20)
    path = tmp_path / "in"
    path.write_bytes(b"a\n" + b"x" * (1 << 20) + b"\n" + b"\0" * (5 << 20))
    source = started(FileStreamSourceConnector, {"file": str(path), "topic": "lines"})
    assert [len(record.value) for record in source.poll()] == [1, 1 << 20]
    with pytest.raises(DataFailure, match="a line of more than 2 MB: is it text"):
        source.poll()
    source.stop()
    assert len(source._rest) < 3 << 20
