"""The metadata hash of a group's topics: the expected values are from XXH3's reference code and from Kafka."""

from __future__ import annotations

import pytest

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.metadata_hash import group_hash, topic_hash, xxh3_64
from tests.unit.coordinator.images import FakeBroker, FakeCluster, FakePartition, FakeTopic

DATA = bytes(range(256)) * 5
TOPIC_ID = Uuid(bytes(range(16)))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 0x2D06800538D394C2),
        (1, 0xC44BDFF4074EECDB),
        (3, 0x5F4299FC161C9CBB),
        (4, 0x60DAB036A58211F2),
        (8, 0x3A1C2D7C85AF88F8),
        (9, 0xE9612598145BB9DC),
        (16, 0x8355E3A6F61770DB),
        (17, 0x9EF341A99DE37328),
        (128, 0x85C6174C7FF4C46B),
        (129, 0xEC7642B431BA3E5A),
        (240, 0x375A384D957FE865),
        (241, 0x2E8CD95421C6D02),
        (1024, 0xA870F92984398D22),
        (1025, 0x78C86E91EE939852),
        (1280, 0x4844B009E164352E),
    ],
)
def test_xxh3_hashes_of_every_length_class_are_correct(size: int, expected: int) -> None:
    assert xxh3_64(DATA[:size]) == expected


def test_the_hash_of_a_topic_covers_its_id_name_partitions_and_the_racks_of_its_replicas() -> None:
    cluster = FakeCluster({1: FakeBroker("r2"), 2: FakeBroker("r1"), 3: FakeBroker("r3"), 4: FakeBroker()})
    topic = FakeTopic("orders", TOPIC_ID, {0: FakePartition((1, 2)), 1: FakePartition((3, 4, 9))})
    assert topic_hash(topic, cluster) == 1537521631049502418


def test_names_are_hashed_as_utf_16() -> None:
    assert topic_hash(FakeTopic("ünï", TOPIC_ID, {}), FakeCluster()) == 7635478676590256058


def test_the_hash_of_a_group_covers_its_topics_in_name_order() -> None:
    hashes = {"b": 7635478676590256058, "a": 1537521631049502418}
    assert group_hash(hashes) == 2020446959564076219


def test_a_group_without_topics_has_hash_zero() -> None:
    assert group_hash({}) == 0
