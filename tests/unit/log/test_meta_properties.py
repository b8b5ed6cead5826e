"""`meta.properties` and `partition.metadata`: their exact text, and special cases of Java's properties format."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.log.meta_properties import (
    CorruptProperties,
    MetaProperties,
    parse_meta_properties,
    parse_partition_metadata,
    render_meta_properties,
    render_partition_metadata,
)

DIRECTORY_ID = Uuid.parse("Y4uYWJg-OmDmuyA56S4T5A")
META = MetaProperties("YAC4HBsdSRSemiQUFCHu0g", 1, DIRECTORY_ID)
META_TEXT = (
    "#\n"
    "#Sun Nov 15 21:20:15 UTC 2026\n"
    "node.id=1\n"
    "directory.id=Y4uYWJg-OmDmuyA56S4T5A\n"
    "version=1\n"
    "cluster.id=YAC4HBsdSRSemiQUFCHu0g\n"
)


def test_the_text_of_meta_properties() -> None:
    assert render_meta_properties(META, 1_794_777_615_999) == META_TEXT
    assert parse_meta_properties(META_TEXT) == META


def test_a_directory_may_have_no_id() -> None:
    meta = MetaProperties("any name", 2**31 - 1)
    assert "directory.id" not in render_meta_properties(meta, 0)
    assert parse_meta_properties(render_meta_properties(meta, 0)) == meta


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "version is missing"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=c\n", "node.id is missing"),
        ("version=0\ncluster.id=c\nbroker.id=1\n", "the version is '0', and only 1 is known"),
        ("version=1\ncluster.id=c\nnode.id=-1\n", "node.id is '-1', which is not the number of a node"),
        ("version=1\ncluster.id=c\nnode.id=2147483648\n", "node.id is '2147483648', which is not the number of a node"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n", "directory.id is 'x', which is not a UUID"),
        (
            "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n",
            "directory.id is the zero UUID, which stands for none",
        ),
        ("version=1\ncluster.id=\\u12\nnode.id=1\n", "\\u12 is not a character"),
    ],
)
def test_damaged_meta_properties_say_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(CorruptProperties) as corrupt:
        parse_meta_properties(text)
    assert str(corrupt.value) == f"meta.properties: {problem}"


def test_the_text_of_partition_metadata() -> None:
    topic_id = Uuid.parse("lzMQleMLQUe2inUrZpMDTg")
    text = "version: 0\ntopic_id: lzMQleMLQUe2inUrZpMDTg"
    assert render_partition_metadata(topic_id) == text
    assert parse_partition_metadata(text) == parse_partition_metadata(text + "\n") == topic_id


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is not a version and a topic_id, each on its line"),
        ("version: 0\n", "'version: 0\\n' is not a version and a topic_id, each on its line"),
        ("topic_id: lzMQleMLQUe2inUrZpMDTg\nversion: 0", "is not a version and a topic_id, each on its line"),
        ("version:0\ntopic_id: lzMQleMLQUe2inUrZpMDTg", "is not a version and a topic_id, each on its line"),
        ("version: 0\ntopic_id: lzMQleMLQUe2inUrZpMDTg\n\n", "is not a version and a topic_id, each on its line"),
        ("version: 1\ntopic_id: lzMQleMLQUe2inUrZpMDTg", "the version is '1', and only 0 is known"),
        ("version: 0\ntopic_id: lzMQle", "topic_id is 'lzMQle', which is not a UUID"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "topic_id is the zero UUID, which stands for none"),
    ],
)
def test_damaged_partition_metadata_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(CorruptProperties) as corrupt:
        parse_partition_metadata(text)
    assert str(corrupt.value).startswith("partition.metadata: ")
    assert str(corrupt.value).endswith(problem)
