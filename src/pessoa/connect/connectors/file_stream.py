"""FileStreamSource and FileStreamSink: lines of a text file, one record each.

The source follows a file as `tail -f` does: a line is a record when its newline is there. Its offset is the position
behind the newline, in bytes. The sink appends what Java's toString says of a value, and a newline. Without a file
they take standard input and output, which is for trying things out only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from pessoa.base.config_values import at_least
from pessoa.connect.connector import (
    Offset,
    OffsetRefused,
    Offsets,
    Partition,
    SinkConnector,
    SourceConnector,
    offset_number,
)
from pessoa.connect.data import STRING as STRING_SCHEMA
from pessoa.connect.data import DataFailure, Record, java_text
from pessoa.connect.definition import HIGH, INT, LOW, REQUIRED, STRING, Config, Table, key

FILENAME, POSITION = "filename", "position"
_READ_BYTES = 1 << 16
# No broker takes a record that is longer; a file without newlines would fill the memory.
LONGEST_LINE = 64 << 20


class FileStreamSourceConnector(SourceConnector):
    NAMES = ("org.apache.kafka.connect.file.FileStreamSourceConnector",)
    CONFIG = Table(
        key("file", STRING, None, HIGH, "The file to read; standard input without one."),
        key("topic", STRING, REQUIRED, HIGH, "The topic that the lines go to."),
        key("batch.size", INT, 2000, at_least(1), LOW, "The most lines that are read at once."),
    )

    @classmethod
    def check_offset(cls, partition: Partition, offset: Offset) -> None:
        if FILENAME not in partition:
            raise OffsetRefused(f"Partition objects should contain the key '{FILENAME}'")
        position = offset.get(POSITION)
        if not isinstance(position, int) or isinstance(position, bool):
            raise OffsetRefused(f"The value for the '{POSITION}' key in the offset is expected to be a Long value")
        if position < 0:
            raise OffsetRefused(f"The value for the '{POSITION}' key in the offset should be a non-negative value")

    @classmethod
    def is_beyond(cls, offset: Offset, end: Offset) -> bool | None:
        return offset_number(offset, POSITION) > offset_number(end, POSITION)

    def start(self, config: Config, offsets: Offsets) -> None:
        self._topic = config.string("topic")
        self._path = config.optional_string("file")
        self._batch = config.integer("batch.size")
        self._partition = {FILENAME: self._path}
        self._position = offset_number(offsets.of(self._partition), POSITION)
        self._file: IO[bytes] | None = None
        # What was read and is no record yet, and how much of it has no newline.
        self._rest = b""
        self._searched_size = 0

    def poll(self) -> list[Record]:
        file = self._open()
        if file is None:
            return []
        records: list[Record] = []
        while len(records) < self._batch:
            newline = self._rest.find(b"\n", self._searched_size)
            if newline < 0:
                self._searched_size = len(self._rest)
                if self._searched_size > LONGEST_LINE:
                    if records:
                        break
                    raise DataFailure(f"{self._path} has a line of more than {LONGEST_LINE >> 20} MB: is it text?")
                data = self._read(file)
                if not data:
                    break
                self._rest += data
                continue
            self._searched_size = 0
            line, self._rest = self._rest[:newline], self._rest[newline + 1 :]
            self._position += newline + 1
            text = line.removesuffix(b"\r").decode(errors="replace")
            records.append(
                Record(
                    self._topic,
                    value_schema=STRING_SCHEMA,
                    value=text,
                    source_partition=self._partition if self._path is not None else None,
                    source_offset={POSITION: self._position} if self._path is not None else None,
                )
            )
        return records

    def _open(self) -> IO[bytes] | None:
        if self._file is None:
            if self._path is None:
                self._file = sys.stdin.buffer
                os.set_blocking(self._file.fileno(), False)
            else:
                try:
                    self._file = Path(self._path).open("rb")  # noqa: SIM115
                except FileNotFoundError:
                    # It may be created later.
                    return None
                self._file.seek(self._position)
        return self._file

    def _read(self, file: IO[bytes]) -> bytes:
        return file.read(_READ_BYTES) or b""

    def stop(self) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()
        self._file = None


class FileStreamSinkConnector(SinkConnector):
    NAMES = ("org.apache.kafka.connect.file.FileStreamSinkConnector",)
    CONFIG = Table(key("file", STRING, None, HIGH, "The file to append to; standard output without one."))

    def start(self, config: Config) -> None:
        path = config.optional_string("file")
        self._file: IO[bytes] = sys.stdout.buffer
        if path is not None:
            self._file = Path(path).open("ab")  # noqa: SIM115
        self._is_own = path is not None

    def put(self, records: Sequence[Record]) -> None:
        # One write: lines of several partitions do not get into each other.
        self._file.write(
            b"".join(java_text(each.value_schema, each.value).encode(errors="replace") + b"\n" for each in records)
        )
        self._file.flush()

    def stop(self) -> None:
        if self._is_own:
            self._file.close()
