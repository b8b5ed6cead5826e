"""The exception with which the bytes of a batch are refused.

Every fault of a batch is raised as `InvalidBatch`: the `ErrorCode` that Apache Kafka gives a
producer for it, a sentence for people, and, when single records are at fault, which ones. It is an expected failure of
one partition: the connection goes on.

The codes that are used, and what a producer does on each:

    CORRUPT_MESSAGE                 the bytes were damaged on their way (size, CRC): retriable, the producer sends again
    INVALID_RECORD                  whole bytes that say something impossible: sending them again would not help
    INVALID_TIMESTAMP               a timestamp outside the topic's bounds
    MESSAGE_TOO_LARGE               larger than the topic accepts, packed or unpacked: the producer splits the batch
    UNSUPPORTED_COMPRESSION_TYPE    a codec that does not exist, or is too new for this version of Produce
    UNSUPPORTED_FOR_MESSAGE_FORMAT  a message of the formats before 2, which are not read
"""

from __future__ import annotations

from typing import NamedTuple

from pessoa.wire.errors import ErrorCode


class RecordError(NamedTuple):
    """One record that was refused: its place in the batch, counted from 0, and why."""

    batch_index: int
    message: str


class InvalidBatch(Exception):
    """These bytes are not a batch that may be appended or read."""

    def __init__(self, error: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(error, message, record_errors)
        self.error = error
        self.message = message
        self.record_errors = record_errors

    def __str__(self) -> str:
        return f"{self.error.name}: {self.message}"
