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
    """A record to write. Its partition is computed from `partition_key`: a windowed key goes to the partition of its
    inner key."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()
    # None: any partition.
    partition_key: bytes | None = None


class FailureKind(IntEnum):
    """The types of entries in the processing log; the numbers are ksqlDB's."""

    DESERIALISATION = 0
    PROCESSING = 1
    PRODUCTION = 2
    SERIALISATION = 3


class ProcessingFailure(NamedTuple):
    """An error with one record, for the processing log; the query continues without the record, or with null in its
    place."""

    kind: FailureKind
    message: str
    # Where the record was; partition and offset are -1 if the failure is no single record's.
    topic: str = ""
    partition: int = -1
    offset: int = -1


class QueryFailure(Exception):
    """The query cannot continue: an aggregate overflowed, or a setting makes every bad record an error."""
