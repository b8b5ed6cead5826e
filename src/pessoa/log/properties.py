"""`meta.properties` says whose a log directory is; `partition.metadata` says which topic a partition belongs to.

A log directory is formatted once, and then belongs to one node of one cluster. Its `meta.properties` is a file of
java.util.Properties, in the order in which Java's hash table puts the keys:

    #
    #Sun Nov 15 21:20:15 UTC 2026         when it was written
    node.id=1
    directory.id=Y4uYWJg-OmDmuyA56S4T5A   of this directory: a node may have several (KIP-858)
    version=1
    cluster.id=YAC4HBsdSRSemiQUFCHu0g

`directory.id` is missing where a Kafka older than 3.7 has formatted the directory. Version 0 is from the days of
ZooKeeper; like Apache Kafka 4 we have nothing to do with it.

A topic that is deleted and created anew has the same name and another id. `partition.metadata` keeps the id beside the
data, so that nobody takes the old data for the new topic's (KIP-516). It has two lines, and no line end after the
second:

    version: 0
    topic_id: lzMQleMLQUe2inUrZpMDTg

What does not fit raises `CorruptProperties` with a sentence that names the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

META_PROPERTIES_FILE = "meta.properties"
PARTITION_METADATA_FILE = "partition.metadata"

META_VERSION = 1
PARTITION_VERSION = 0
NODE_ID_MAX = (1 << 31) - 1

# Java prints dates in the words of its locale, and Kafka's is English wherever anybody has looked.
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_NODE_ID = re.compile(r"[0-9]{1,10}")
_PARTITION_LINE = re.compile(r"(\w+):\s+(\S+)")

_WHITE = " \t\f"
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {character: f"\\{letter}" for letter, character in _ESCAPED.items()} | {
    character: f"\\{character}" for character in "\\=:#!"
}
_UNICODE_DIGITS = 4


class CorruptProperties(Exception):
    """The text is not what its file should hold; the message says which file and what is wrong."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose a log directory is."""

    cluster_id: str
    node_id: int
    directory_id: Uuid | None = None


def render_meta_properties(meta: MetaProperties, now_ms: int) -> str:
    properties = {"node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        properties["directory.id"] = str(meta.directory_id)
    properties["version"] = str(META_VERSION)
    properties["cluster.id"] = meta.cluster_id
    return render_properties(properties, now_ms)


def parse_meta_properties(text: str, file_name: str = META_PROPERTIES_FILE) -> MetaProperties:
    properties = parse_properties(text, file_name)
    version = _required(properties, "version", file_name)
    if version != str(META_VERSION):
        raise CorruptProperties(f"{file_name}: the version is {version!r}, and only {META_VERSION} is known")
    cluster_id = _required(properties, "cluster.id", file_name)
    node_id = _required(properties, "node.id", file_name)
    if not _NODE_ID.fullmatch(node_id) or int(node_id) > NODE_ID_MAX:
        raise CorruptProperties(f"{file_name}: node.id is {node_id!r}, which is not the number of a node")
    directory_id = properties.get("directory.id")
    return MetaProperties(
        cluster_id, int(node_id), None if directory_id is None else _uuid(directory_id, "directory.id", file_name)
    )


def render_partition_metadata(topic_id: Uuid) -> str:
    return f"version: {PARTITION_VERSION}\ntopic_id: {topic_id}"


def parse_partition_metadata(text: str, file_name: str = PARTITION_METADATA_FILE) -> Uuid:
    """The topic's id."""
    lines = text.splitlines()
    fields = [match.groups() for line in lines if (match := _PARTITION_LINE.fullmatch(line))]
    if len(lines) != len(fields) or [name for name, _ in fields] != ["version", "topic_id"]:
        raise CorruptProperties(f"{file_name}: {text!r} is not a version and a topic_id, each on its line")
    (_, version), (_, topic_id) = fields
    if version != str(PARTITION_VERSION):
        raise CorruptProperties(f"{file_name}: the version is {version!r}, and only {PARTITION_VERSION} is known")
    return _uuid(topic_id, "topic_id", file_name)


def _required(properties: Mapping[str, str], key: str, file_name: str) -> str:
    value = properties.get(key)
    if not value:
        raise CorruptProperties(f"{file_name}: {key} is missing")
    return value


def _uuid(text: str, key: str, file_name: str) -> Uuid:
    try:
        uuid = Uuid.parse(text)
    except ValueError as error:
        raise CorruptProperties(f"{file_name}: {key} is {text!r}, which is not a UUID") from error
    if uuid == ZERO_UUID:
        raise CorruptProperties(f"{file_name}: {key} is the zero UUID, which stands for none")
    return uuid


# ---- java.util.Properties ----


def render_properties(properties: Mapping[str, str], now_ms: int) -> str:
    """As Java's `store` with an empty comment: a line for the comment, one for the date, one for each property."""
    lines = ["#", f"#{java_date(now_ms)}", *(f"{_escape_key(key)}={_escape(properties[key])}" for key in properties)]
    return "".join(f"{line}\n" for line in lines)


def java_date(now_ms: int) -> str:
    """java.util.Date in words, in UTC."""
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{_DAYS[now.weekday()]} {_MONTHS[now.month - 1]} {now.day:02} {now:%H:%M:%S} UTC {now.year}"


def _escape(text: str) -> str:
    escaped = "".join(
        _ESCAPES.get(character) or (character if " " <= character <= "~" else _unicode_escape(character))
        for character in text
    )
    # A leading space would be taken for a part of the separator.
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escape_key(key: str) -> str:
    # In a key every space has to be told from the separator, in a value only the first.
    return "\\ ".join(map(_escape, key.split(" ")))


def _unicode_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))


def parse_properties(text: str, file_name: str) -> dict[str, str]:
    """As Java's `load`; a key that comes twice has its last value."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _key_end(line)
        value_start = end
        while value_start < len(line) and line[value_start] in _WHITE:
            value_start += 1
        if value_start < len(line) and line[value_start] in "=:":
            value_start += 1
        properties[_unescape(line[:end], file_name)] = _unescape(line[value_start:].lstrip(_WHITE), file_name)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; one that ends in an odd number of backslashes goes on in the next."""
    logical = ""
    continues = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_WHITE)
        if not continues and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        logical += line[:-1] if continues else line
        if not continues:
            yield logical
            logical = ""
    if logical:
        yield logical


def _key_end(line: str) -> int:
    """Where the key ends: at the first separator that no backslash stands before."""
    position = 0
    while position < len(line) and line[position] not in _WHITE + "=:":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str, file_name: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            if character != "\\":
                parts.append(character)
            continue
        letter = text[position]
        position += 1
        if letter != "u":
            parts.append(_ESCAPED.get(letter, letter))
            continue
        digits = text[position : position + _UNICODE_DIGITS]
        position += _UNICODE_DIGITS
        if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            raise CorruptProperties(f"{file_name}: \\u{digits} is not a character")
        parts.append(chr(int(digits, 16)))
    # Characters beyond the first plane come as two halves.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
