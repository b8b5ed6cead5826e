"""What must be true when everything is healed: of what was read, and of the files.

`check_everything` reads both topics from their beginnings, as a reader of each kind, hands that to the history, and
then compares the files of the brokers: the bytes of every partition are the same on all three. They may be cut into
segments differently, so it is the concatenation that is compared.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as RdTopicPartition

from tests.chaos.load import IN, OUT, PARTITIONS, Load, copied_values, place_of
from tests.chaos.processes import IMPATIENT, TIMEOUT_S, BrokerProcesses, until
from tests.simulation.history import TopicPartition

Records = dict[TopicPartition, dict[int, bytes]]
_METADATA = "__cluster_metadata-0"


def check_everything(brokers: BrokerProcesses, load: Load) -> str:
    """After `load.finish()`. A sentence about what was checked."""
    uncommitted = read_all(brokers, (IN, OUT), "read_uncommitted")
    committed = read_all(brokers, (IN, OUT), "read_committed")
    load.history.check_complete(uncommitted, committed)
    check_copies(committed)
    sizes = check_replicas_are_equal(brokers)
    return f"{load!r}; {len(sizes)} partitions with {sum(sizes.values())} bytes are equal on all replicas"


def read_all(
    brokers: BrokerProcesses, topics: tuple[str, ...], isolation: str, partitions: int = PARTITIONS
) -> Records:
    consumer = Consumer(
        {
            "bootstrap.servers": brokers.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            **IMPATIENT,
        }
    )
    found: Records = {TopicPartition(topic, number): {} for topic in topics for number in range(partitions)}
    ended: set[TopicPartition] = set()
    deadline = time.monotonic() + 2 * TIMEOUT_S
    try:
        consumer.assign([RdTopicPartition(*one, 0) for one in found])
        while len(ended) < len(found):
            assert time.monotonic() < deadline, f"the ends of {found.keys() - ended} were not reached"
            for message in consumer.consume(1_000, 0.2):
                topic, number, error = message.topic(), message.partition(), message.error()
                assert topic is not None
                assert number is not None
                if error is None:
                    _, offset, value = place_of(message)
                    found[TopicPartition(topic, number)][offset] = value
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(TopicPartition(topic, number))
    finally:
        consumer.close()
    return found


def check_copies(committed: Records) -> None:
    """The copier has made one copy of each record, and no other."""
    originals = Counter(value for one, records in committed.items() if one.topic == IN for value in records.values())
    copies = copied_values(committed)
    missing, superfluous = originals - copies, copies - originals
    assert not missing, f"{missing.total()} of {originals.total()} were never copied: {list(missing)[:5]}"
    assert not superfluous, f"copied more than once, or out of nothing: {superfluous.most_common(5)}"


def check_replicas_are_equal(brokers: BrokerProcesses) -> dict[str, int]:
    """The bytes of each partition, on every broker; partition → how many there are."""
    brokers.wait_until_in_sync()
    first, *others = brokers
    names = {one: partition_names(brokers.data(one)) for one in brokers}
    assert all(names[one] == names[first] for one in others), names
    # In sync is not the same as equal: a follower may have a record less for as long as a fetch takes.
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
    """What is deleted goes away some time later, under a name of its own."""
    folders = (path for path in data.iterdir() if path.is_dir() and any(path.glob("*.log")))
    return sorted(one.name for one in folders if one.name != _METADATA and not one.name.endswith("-delete"))


def sizes(data: Path) -> dict[str, int]:
    return {name: sum(one.stat().st_size for one in (data / name).glob("*.log")) for name in partition_names(data)}


def log_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
