"""What the engine must remember, in a compacted topic: for each query its specification and the state it should be in.

    key     the query's id
    value   JSON: {"spec": {…}, "target": "RUNNING" | "PAUSED" | "STOPPED"}; null when the query was deleted

An engine that starts reads the topic to its end and goes on with every query whose target is RUNNING. Where a query
is in its input stands in its checkpoint, not here.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any

from pessoa.pipelines.failures import is_passing

STATE_TOPIC = "_pessoa_queries"
ANSWER_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 30.0
POLL_S = 0.1
REPLICATION_FACTOR = 3

log = logging.getLogger(__name__)


class StateUnavailable(Exception):
    """The topic cannot be read or written; the sentence says why, and `may_pass` whether it may in a moment."""

    def __init__(self, sentence: str, *, may_pass: bool = False) -> None:
        super().__init__(sentence)
        self.may_pass = may_pass


def ensure_topic(
    settings: Mapping[str, str],
    name: str,
    partitions: int,
    config: Mapping[str, str],
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> None:
    """A topic of so many partitions or more, on as many brokers as there are, three at most."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewPartitions, NewTopic

    admin = AdminClient({**settings, "log_level": "3"})
    try:
        metadata = admin.list_topics(timeout=timeout_s)
        if name in metadata.topics:
            if len(metadata.topics[name].partitions) < partitions:
                more = [NewPartitions(name, partitions)]
                admin.create_partitions(more, request_timeout=timeout_s)[name].result(timeout_s)
            return
        replicas = min(REPLICATION_FACTOR, len(metadata.brokers))
        wanted = NewTopic(name, partitions, replicas, config=dict(config))
        admin.create_topics([wanted], request_timeout=timeout_s)[name].result(timeout_s)
    except KafkaException as failure:
        error = failure.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            sentence = f"the topic {name} cannot be made: {error.str()}"
            raise StateUnavailable(sentence, may_pass=is_passing(error)) from failure
    except NoAnswer:
        raise StateUnavailable(f"the topic {name} cannot be made: no broker answered", may_pass=True) from None


def remove_topic(settings: Mapping[str, str], name: str) -> None:
    """Delete a topic that does no harm if it stays."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({**settings, "log_level": "3"})
    try:
        admin.delete_topics([name], request_timeout=ANSWER_TIMEOUT_S)[name].result(ANSWER_TIMEOUT_S)
    except KafkaException as failure:
        error = failure.args[0]
        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            log.warning("the topic %s cannot be deleted: %s", name, error.str())
    except NoAnswer:
        log.warning("the topic %s cannot be deleted: no broker answered", name)


class StateTopic:
    def __init__(self, settings: Mapping[str, str], name: str = STATE_TOPIC) -> None:
        from confluent_kafka import Producer

        self.name = name
        self._settings = {**settings, "log_level": "3"}
        ensure_topic(settings, name, 1, {"cleanup.policy": "compact"})
        self._producer = Producer({**self._settings, "acks": "all", "enable.idempotence": "true"})

    def load(self) -> dict[str, dict[str, Any]]:
        """The last value of each query that was not deleted."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                **self._settings,
                "group.id": "pessoa-engine",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
            }
        )
        found: dict[str, dict[str, Any]] = {}
        try:
            consumer.assign([TopicPartition(self.name, 0, 0)])
            deadline = time.monotonic() + ANSWER_TIMEOUT_S
            while True:
                if time.monotonic() > deadline:
                    raise StateUnavailable(f"the topic {self.name} could not be read to its end")
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return found
                    continue
                query_id, value = (message.key() or b"").decode(), message.value()
                if value is None:
                    found.pop(query_id, None)
                else:
                    found[query_id] = json.loads(value)
        finally:
            consumer.close()

    def put(self, query_id: str, value: Mapping[str, Any] | None) -> Callable[[], None]:
        """Remember, or forget, in the order of the calls. What is given back returns when it is written."""
        outcome: list[Any] = []
        payload = None if value is None else json.dumps(value).encode()
        self._producer.produce(
            self.name, payload, query_id.encode(), on_delivery=lambda error, _: outcome.append(error)
        )

        def wait() -> None:
            deadline = time.monotonic() + WRITE_TIMEOUT_S
            while not outcome and time.monotonic() < deadline:
                self._producer.poll(POLL_S)
            if not outcome or outcome[0] is not None:
                why = outcome[0] if outcome else "no broker answered"
                raise StateUnavailable(f"the topic {self.name} cannot be written: {why}")

        return wait
