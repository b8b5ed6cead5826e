"""The records of one partition in a Fetch response that are in the log's file until they are sent."""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING

from pessoa.log.files import DiskError
from pessoa.log.segment import FileSlice
from pessoa.net.file_sending import FilePlace, InFile, RangeLost

if TYPE_CHECKING:
    from pessoa.replication.partition import Partition


class FileRecords(InFile):
    __slots__ = ("_partition", "_slice")

    def __init__(self, partition: Partition, data: FileSlice) -> None:
        self._partition = partition
        self._slice = data

    def __repr__(self) -> str:
        return f"<FileRecords: {self._slice!r} of {self._partition!r}>"

    def __len__(self) -> int:
        return self._slice.size

    def place(self) -> FilePlace:
        file, position, size = self._slice
        try:
            descriptor = file.fileno()
        except DiskError as problem:
            raise self._failed(problem) from problem
        except ValueError as closed:
            raise RangeLost("its segment was deleted") from closed
        if position + size > file.size:
            raise RangeLost("the log was truncated")
        return FilePlace(descriptor, position)

    def read(self, size: int = maxsize) -> bytes:
        file, position, whole = self._slice
        size = min(size, whole)
        try:
            data = file.read(position, size)
        except DiskError as problem:
            raise self._failed(problem) from problem
        except ValueError as closed:
            raise RangeLost("its segment was deleted") from closed
        if len(data) < size:
            raise RangeLost("the log was truncated")
        return data

    def behind(self, count: int) -> FileRecords:
        file, position, size = self._slice
        return FileRecords(self._partition, FileSlice(file, position + count, size - count))

    def _failed(self, problem: DiskError) -> RangeLost:
        self._partition.directory.fail(problem)
        return RangeLost(str(problem))
