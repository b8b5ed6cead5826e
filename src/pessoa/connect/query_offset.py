"""The offset of a source's query: the offset of each partition of the source, and a count of records.

    {"parts": {"{\"filename\":\"/var/log/x\"}": {"position": 6}}, "count": 1}

The count makes the offset of a source that knows no offsets (a whole table, again and again) move on as well. Spark
keeps it as JSON in the query's checkpoint; a standalone worker, which has no offset topic, reads it from a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from pessoa.base.json_value import JsonObject
from pessoa.connect.connector import Offset, Offsets
from pessoa.connect.data import Record

QueryOffset: TypeAlias = JsonObject


def query_offset_of(parts: Mapping[str, Offset], count: int = 0) -> QueryOffset:
    return {"parts": {name: dict(offset) for name, offset in parts.items()}, "count": count}


def parts_of(offset: QueryOffset) -> dict[str, Offset]:
    """Return the source offsets in a query offset, by source partition as JSON."""
    parts = offset["parts"]
    assert isinstance(parts, dict)
    return {name: offset for name, offset in parts.items() if isinstance(offset, dict)}


def count_of(offset: QueryOffset) -> int:
    count = offset["count"]
    assert isinstance(count, int)
    return count


def partition_of(record: Record) -> str:
    """Return the source partition of a record, as JSON."""
    assert record.source_partition is not None
    return Offsets.name(record.source_partition)


def advance(parts: dict[str, Offset], record: Record) -> None:
    """Set the offset of the record's source partition to the record's source offset."""
    if record.source_partition is not None and record.source_offset is not None:
        parts[partition_of(record)] = dict(record.source_offset)


def _path(worker: Mapping[str, str], connector: str, task: int) -> Path:
    return Path(worker["pessoa.home"]) / "places" / f"{quote(connector, safe='')}-{task}.json"


def write_query_offset(worker: Mapping[str, str], connector: str, task: int, offset: QueryOffset) -> None:
    """Replace the offset file of a task atomically."""
    path = _path(worker, connector, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(offset), encoding="utf-8")
    partial.rename(path)


def read_query_offset(worker: Mapping[str, str], connector: str, task: int) -> QueryOffset | None:
    path = _path(worker, connector, task)
    if not path.exists():
        return None
    offset: QueryOffset = json.loads(path.read_text(encoding="utf-8"))
    return offset
