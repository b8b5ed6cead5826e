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
data, so that the old data are not taken for the new topic's (KIP-516). It has two lines, and no line end after the
second:

    version: 0
    topic_id: lzMQleMLQUe2inUrZpMDTg

What does not fit raises `CorruptProperties` with a sentence that names the file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.base.properties import MalformedProperties, parse_properties, render_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

META_PROPERTIES_FILE = "meta.properties"
PARTITION_METADATA_FILE = "partition.metadata"

META_VERSION = 1
PARTITION_VERSION = 0
NODE_ID_MAX = (1 << 31) - 1

_NODE_ID = re.compile(r"[0-9]{1,10}")
_PARTITION_LINE = re.compile(r"(\w+):\s+(\S+)")


class CorruptProperties(Exception):
    """The file cannot be parsed; the message says which file and what is wrong."""


class MetaProperties(NamedTuple):
    """The cluster, node and directory id of a log directory."""

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
    try:
        properties = parse_properties(text)
    except MalformedProperties as problem:
        raise CorruptProperties(f"{file_name}: {problem}") from problem
    version = _required_value(properties, "version", file_name)
    if version != str(META_VERSION):
        raise CorruptProperties(f"{file_name}: the version is {version!r}, and only {META_VERSION} is known")
    cluster_id = _required_value(properties, "cluster.id", file_name)
    node_id = _required_value(properties, "node.id", file_name)
    if not _NODE_ID.fullmatch(node_id) or int(node_id) > NODE_ID_MAX:
        raise CorruptProperties(f"{file_name}: node.id is {node_id!r}, which is not the number of a node")
    directory_id = properties.get("directory.id")
    return MetaProperties(
        cluster_id, int(node_id), None if directory_id is None else _uuid(directory_id, "directory.id", file_name)
    )


def render_partition_metadata(topic_id: Uuid) -> str:
    return f"version: {PARTITION_VERSION}\ntopic_id: {topic_id}"


def parse_partition_metadata(text: str, file_name: str = PARTITION_METADATA_FILE) -> Uuid:
    """Return the topic id."""
    lines = text.splitlines()
    fields = [match.groups() for line in lines if (match := _PARTITION_LINE.fullmatch(line))]
    if len(lines) != len(fields) or [name for name, _ in fields] != ["version", "topic_id"]:
        raise CorruptProperties(f"{file_name}: {text!r} is not a version and a topic_id, each on its line")
    (_, version), (_, topic_id) = fields
    if version != str(PARTITION_VERSION):
        raise CorruptProperties(f"{file_name}: the version is {version!r}, and only {PARTITION_VERSION} is known")
    return _uuid(topic_id, "topic_id", file_name)


def _required_value(properties: Mapping[str, str], key: str, file_name: str) -> str:
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
