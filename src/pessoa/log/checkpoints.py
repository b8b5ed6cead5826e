"""Checkpoint files: small text files in which a log directory keeps offsets.

    0                    the version
    2                    how many entries follow
    orders 0 1723        one entry a line: topic, partition, offset
    orders 1 1698

Four files of a log directory have this form, one entry for each of its partitions:

    recovery-point-offset-checkpoint   below it everything is on the disk for certain: recovery starts here
    replication-offset-checkpoint      the high watermark
    log-start-offset-checkpoint        the first offset that may be read, where deleting records has moved it
    cleaner-offset-checkpoint          up to where compaction has come

`leader-epoch-checkpoint` in a partition's own directory has the same frame around other entries, so `render_lines` and
`parse_lines` are here for both (see `leader_epoch_cache`).

A file is written whole, beside the old one, and renamed. So a file that makes no sense was damaged by something else
than a crash, and reading it raises `CorruptCheckpoint` with a sentence that names file and line. An empty file is no
damage: Kafka creates its checkpoints empty.

Reading is as strict as Apache Kafka's, and then some: a partition that comes twice, a name that no topic can have, and
numbers out of range are refused here rather than used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_FILE = "replication-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"

VERSION = 0
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

# The frame: the version and the count stand before the first entry, which is thus on the third line.
_FIRST_ENTRY_LINE = 3

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

TopicPartition = tuple[str, int]


class CorruptCheckpoint(Exception):
    """The text is no checkpoint; the message says in which file, on which line, and what is wrong there."""


def render_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    return render_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def parse_offsets(text: str, file_name: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line_number, words in parse_lines(text, file_name, ("topic", "partition", "offset")):
        topic = words[0]
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise _corrupt(file_name, line_number, f"{topic!r} cannot be the name of a topic")
        partition = parse_number(words[1], INT32_MAX, file_name, line_number)
        offset = parse_number(words[2], INT64_MAX, file_name, line_number)
        if (topic, partition) in offsets:
            raise _corrupt(file_name, line_number, f"partition {partition} of {topic} comes a second time")
        offsets[topic, partition] = offset
    return offsets


def render_lines(entries: Iterable[str]) -> str:
    lines = list(entries)
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines))


def parse_lines(text: str, file_name: str, fields: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Return the entries of a checkpoint, each as its line number and its fields, of which there are as many as
    `fields`."""
    lines = text.splitlines()
    if not lines:
        return []
    version = parse_number(lines[0], INT32_MAX, file_name, 1)
    if version != VERSION:
        raise _corrupt(file_name, 1, f"the version is {version}, and only {VERSION} is known")
    if len(lines) == 1:
        return []
    count = parse_number(lines[1], INT32_MAX, file_name, 2)
    entries: list[tuple[int, list[str]]] = []
    for line_number, line in enumerate(lines[2:], _FIRST_ENTRY_LINE):
        words = line.split()
        if len(words) != len(fields):
            raise _corrupt(file_name, line_number, f"{line!r} is not {', '.join(fields)}")
        entries.append((line_number, words))
    if len(entries) != count:
        raise _corrupt(file_name, 2, f"{count} entries are promised, and {len(entries)} follow")
    return entries


def parse_number(text: str, largest: int, file_name: str, line_number: int) -> int:
    """Return the number that `text` has in decimal digits, from 0 to `largest`. Raises `CorruptCheckpoint`."""
    if not _NUMBER.fullmatch(text):
        raise _corrupt(file_name, line_number, f"{text!r} is not a number")
    number = int(text)
    if not 0 <= number <= largest:
        raise _corrupt(file_name, line_number, f"{number} is not between 0 and {largest}")
    return number


def _corrupt(file_name: str, line_number: int, problem: str) -> CorruptCheckpoint:
    return CorruptCheckpoint(f"{file_name}, line {line_number}: {problem}")
