"""The records of one partition in a Fetch response that are in the log's file until they are sent.

Until then the log may be truncated, and go on with other batches in the same place: what was found is lost then, for
the fetch was answered for the old ones, and part of them may have been sent.
"""

from __future__ import annotations

from io import UnsupportedOperation
from sys import maxsize
from typing import TYPE_CHECKING

from pessoa.log.files import DiskError
from pessoa.log.segment import FileSlice
from pessoa.net.file_sending import FilePlace, InFile, RangeLost

if TYPE_CHECKING:
    from pessoa.replication.partition import Partition


class FileRecords(InFile):
    __slots__ = ("_log", "_partition", "_slice", "_truncations")

    def __init__(self, partition: Partition, data: FileSlice) -> None:
        self._partition = partition
        self._log = partition.log
        self._truncations = self._log.truncations
        self._slice = data

    def __repr__(self) -> str:
        return f"<FileRecords: {self._slice!r} of {self._partition!r}>"

    def __len__(self) -> int:
        return self._slice.size

    def place(self) -> FilePlace | None:
        self._check()
        file, position, size = self._slice
        try:
            descriptor = file.fileno()
        except DiskError as problem:
            raise self._fail_directory(problem) from problem
        except UnsupportedOperation:
            return None
        except ValueError as closed:
            raise RangeLost("its segment was deleted") from closed
        if position + size > file.size:
            raise RangeLost("the file ends before the range does")
        return FilePlace(descriptor, position)

    def read(self, size: int = maxsize) -> bytes:
        self._check()
        file, position, whole = self._slice
        size = min(size, whole)
        try:
            data = file.read(position, size)
        except DiskError as problem:
            raise self._fail_directory(problem) from problem
        except ValueError as closed:
            raise RangeLost("its segment was deleted") from closed
        if len(data) < size:
            raise RangeLost("the file ends before the range does")
        return data

    def behind(self, count: int) -> FileRecords:
        file, position, size = self._slice
        rest = FileRecords(self._partition, FileSlice(file, position + count, size - count))
        rest._log, rest._truncations = self._log, self._truncations
        return rest

    def _check(self) -> None:
        if self._log.truncations != self._truncations:
            raise RangeLost("the log was truncated")

    def _fail_directory(self, problem: DiskError) -> RangeLost:
        self._partition.directory.fail(problem)
        return RangeLost(str(problem))
