"""A query's offsets as a consumer group, for the tools that show lag.

Spark keeps offsets in its checkpoint and commits none to Kafka. After a batch the engine commits them to the group
`pessoa-<query>`, which has no members: kafka-consumer-groups, the control centre and every exporter show the pipeline
and how far behind it is. Nobody starts from these offsets; where to go on stands in the checkpoint alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as NoAnswer

ANSWER_TIMEOUT_S = 15.0


class GroupOffsets:
    def __init__(self, settings: Mapping[str, str]) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({**settings, "log_level": "3"})
        self._committed: dict[str, tuple[tuple[str, int, int], ...]] = {}

    def commit(self, group_id: str, offsets: Iterable[tuple[str, int, int]]) -> None:
        """Commit what is new. A cluster that does not answer is asked again with the next batch."""
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

        wanted = tuple(offsets)
        if not wanted or self._committed.get(group_id) == wanted:
            return
        places = [TopicPartition(topic, partition, offset) for topic, partition, offset in wanted]
        request = ConsumerGroupTopicPartitions(group_id, places)
        try:
            self._admin.alter_consumer_group_offsets([request], request_timeout=ANSWER_TIMEOUT_S)[group_id].result(
                ANSWER_TIMEOUT_S
            )
        except (KafkaException, NoAnswer):
            return
        self._committed[group_id] = wanted

    def forget(self, group_id: str) -> None:
        self._committed.pop(group_id, None)

    def delete(self, names: Iterable[str]) -> None:
        """Delete groups; what cannot be deleted expires by itself."""
        from confluent_kafka import KafkaException

        doomed = list(names)
        try:
            for future in self._admin.delete_consumer_groups(doomed).values() if doomed else ():
                future.result(ANSWER_TIMEOUT_S)
        except (KafkaException, NoAnswer):
            return
