"""A cache of the existing topics and their partitions, so that a produce needs no Metadata request.

librdkafka takes a record for a topic that does not exist and tries for half a minute. A caller over HTTP should get the
error at once, and before any record of the body is written. So a topic is looked up when it is first produced to. The
look-up is a producer's, which lets a broker that creates topics by itself do so; a topic that is being created is
waited for.

The cache may lack partitions but never has too many: partitions are not removed from a topic, and for an unknown
partition the topic is looked up again. A deleted topic is noticed when a record fails, and removed (`forget`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from pessoa.rest_proxy.proxy_problems import from_kafka, kafka_error, partition_not_found, topic_not_found

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

LOOK_UP_TIMEOUT_S = 10.0
# A broker that creates a topic answers before its partitions have leaders.
CREATION_TIMEOUT_S = 10.0
# Doubled with each response in which the topic is unknown.
RETRY_S = 0.05
# Brokers learn of a new topic one after the other, so one that does not know it may not have learnt of it yet; and
# Apache's brokers do not know a topic until the controller has created it for them. After so many responses, within
# three quarters of a second, the topic does not exist.
UNKNOWN_ANSWERS = 5


class KnownTopics:
    """A cache of the partition counts of topics. `list_topics` is that of a confluent-kafka producer: it blocks, and
    runs in a worker thread."""

    def __init__(self, list_topics: Callable[..., ClusterMetadata]) -> None:
        self._list_topics = list_topics
        self._partition_counts: dict[str, int] = {}
        self._lookups: dict[str, asyncio.Task[int]] = {}

    def __repr__(self) -> str:
        return f"<KnownTopics {len(self._partition_counts)} remembered>"

    def is_known(self, topic: str, partition: int) -> bool:
        """Whether the partition is known to exist, so that a record can be produced at once; -1 stands for any
        partition."""
        return partition < self._partition_counts.get(topic, -1)

    def forget(self, topic: str) -> None:
        self._partition_counts.pop(topic, None)

    async def check(self, topic: str, partition: int) -> None:
        """Return if the partition exists. Raises the problem 40401 for a missing topic, 40402 for a missing
        partition."""
        if not self.is_known(topic, partition):
            task = self._lookups.get(topic)
            if task is None:
                task = self._lookups[topic] = asyncio.create_task(self._look_up(topic))
                task.add_done_callback(lambda _: self._lookups.pop(topic, None))
            count = await asyncio.shield(task)
            if partition >= count:
                raise partition_not_found()

    async def _look_up(self, topic: str) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CREATION_TIMEOUT_S
        unknown = 0
        while True:
            try:
                found = await loop.run_in_executor(None, lambda: self._list_topics(topic, timeout=LOOK_UP_TIMEOUT_S))
            except KafkaException as failure:
                raise from_kafka(kafka_error(failure)) from None
            metadata = found.topics[topic]
            if metadata.error is None:
                count = self._partition_counts[topic] = len(metadata.partitions)
                return count
            code = metadata.error.code()
            unknown += code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
            if unknown == UNKNOWN_ANSWERS or loop.time() > deadline:
                raise topic_not_found()
            if code not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE):
                raise from_kafka(metadata.error)
            await asyncio.sleep(RETRY_S * 2 ** max(0, unknown - 1))
