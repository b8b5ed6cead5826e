"""Records of topics as a query takes and gives them, and the entries of the processing log."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class KafkaRecord(NamedTuple):
    """A record of a source topic, or of an internal topic that an earlier stage wrote."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class OutputRecord(NamedTuple):
    """A record to write. Its partition is that of `partition_key`: a windowed key lies where its inner key does."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()
    # None: any partition.
    partition_key: bytes | None = None


class FailureKind(IntEnum):
    """The types of entries that the processing log has; the numbers are ksqlDB's."""

    DESERIALISATION = 0
    PROCESSING = 1
    PRODUCTION = 2
    SERIALISATION = 3


class ProcessingFailure(NamedTuple):
    """What could not be done with a record; the query goes on without it, or with null in its place."""

    kind: FailureKind
    message: str
    # Where the record was; partition and offset are -1 if the failure is no single record's.
    topic: str = ""
    partition: int = -1
    offset: int = -1


class QueryFailure(Exception):
    """The query cannot go on: an aggregate overflowed, or a setting makes every bad record an error."""
