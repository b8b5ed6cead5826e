"""The checks of what was read, and of the files, after everything is healed.

`check_everything` reads both topics from their beginnings under both isolation levels, checks that with the history,
and then compares the files of the brokers: the bytes of every partition are the same on all three. They may have
different segments, so the concatenation of the segments is compared. The offsets that were committed together with
copies are read in the order in which they were written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import unpack_from

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as RdTopicPartition

from tests.chaos.load import IN, OUT, PARTITIONS, Load, copied_values, place_of
from tests.chaos.processes import IMPATIENT, SETTINGS, TIMEOUT_S, BrokerProcesses, until
from tests.simulation.history import TopicPartition

Records = dict[TopicPartition, dict[int, bytes]]
_METADATA = "__cluster_metadata-0"
_OFFSETS = "__consumer_offsets"
# The key of an offset begins with its version and the group.
_OFFSET_OF_THE_COPIER = b"\x00\x01\x00\x06copier"
_OFFSETS_PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])


def check_everything(brokers: BrokerProcesses, load: Load) -> str:
    """Check everything after `load.finish()`, and return a sentence about what was checked."""
    uncommitted = read_all(brokers, (IN, OUT), "read_uncommitted")
    committed = read_all(brokers, (IN, OUT), "read_committed")
    load.history.check_complete(uncommitted, committed)
    check_copies(committed)
    commits = check_commits(brokers)
    sizes = check_replicas_are_equal(brokers)
    return (
        f"{load!r}; {len(sizes)} partitions with {sum(sizes.values())} bytes are equal on all replicas; "
        f"{commits} commits of the copier never go back"
    )


def read_all(
    brokers: BrokerProcesses, topics: tuple[str, ...], isolation: str, partitions: int = PARTITIONS
) -> Records:
    found: Records = {TopicPartition(topic, number): {} for topic in topics for number in range(partitions)}
    for message in read_messages(brokers, dict.fromkeys(topics, partitions), isolation):
        number, offset, value = place_of(message)
        found[TopicPartition(message.topic() or "", number)][offset] = value
    return found


def read_messages(brokers: BrokerProcesses, topics: Mapping[str, int], isolation: str) -> Iterator[Message]:
    """Yield the messages of every partition from its beginning to its end. `topics`: topic → number of partitions."""
    consumer = Consumer(
        {
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            **IMPATIENT,
            **brokers.client,
        }
    )
    open_ends = {TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)}
    deadline = time.monotonic() + 2 * TIMEOUT_S
    try:
        consumer.assign([RdTopicPartition(*one, 0) for one in open_ends])
        while open_ends:
            assert time.monotonic() < deadline, f"the ends of {open_ends} were not reached"
            for message in consumer.consume(1_000, 0.2):
                topic, number, error = message.topic(), message.partition(), message.error()
                assert topic is not None
                assert number is not None
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(TopicPartition(topic, number))
    finally:
        consumer.close()


def check_copies(committed: Records) -> None:
    """Assert that the copier has made one copy of each record, and no other."""
    originals = Counter(value for one, records in committed.items() if one.topic == IN for value in records.values())
    copies = copied_values(committed)
    missing, superfluous = originals - copies, copies - originals
    assert not missing, f"{missing.total()} of {originals.total()} were never copied: {list(missing)[:5]}"
    assert not superfluous, f"copied more than once, or out of nothing: {superfluous.most_common(5)}"


def check_commits(brokers: BrokerProcesses) -> int:
    """Assert that the copier's committed offsets never go back in the order of the log, and return their number.

    The members' commits are not checked: librdkafka may send a commit again after a later one has been answered.
    """
    count = 0
    reached: dict[bytes, int] = {}
    for message in read_messages(brokers, {_OFFSETS: _OFFSETS_PARTITIONS}, "read_committed"):
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        if not key.startswith(_OFFSET_OF_THE_COPIER) or not isinstance(value, bytes):
            continue
        [offset] = unpack_from(">q", value, 2)
        assert offset >= reached.get(key, 0), f"{key!r} was committed up to {reached[key]}, and then up to {offset}"
        reached[key] = offset
        count += 1
    assert count, "the copier has committed nothing"
    return count


def check_replicas_are_equal(brokers: BrokerProcesses) -> dict[str, int]:
    """Assert that each partition has the same bytes on every broker; return partition → size."""
    brokers.wait_until_in_sync()
    first, *others = brokers
    names = {one: partition_names(brokers.data(one)) for one in brokers}
    assert all(names[one] == names[first] for one in others), names
    # In sync is not the same as equal: a follower may lack a record for the time of a fetch.
    until(
        lambda: all(sizes(brokers.data(one)) == sizes(brokers.data(first)) for one in others),
        "all replicas of one size",
    )
    for name in names[first]:
        expected = log_bytes(brokers.data(first) / name)
        for one in others:
            found = log_bytes(brokers.data(one) / name)
            if found != expected:
                position = next(at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1])
                raise AssertionError(f"{name} differs between brokers {first} and {one} from byte {position} on")
    return sizes(brokers.data(first))


def partition_names(data: Path) -> list[str]:
    """Return the names of partitions with a log, except deleted ones and logs of no topic (`-delete`, `-stray`)."""
    folders = (path for path in data.iterdir() if path.is_dir() and any(path.glob("*.log")))
    return sorted(one.name for one in folders if one.name != _METADATA and not one.name.endswith(("-delete", "-stray")))


def sizes(data: Path) -> dict[str, int]:
    return {name: sum(one.stat().st_size for one in (data / name).glob("*.log")) for name in partition_names(data)}


def log_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
