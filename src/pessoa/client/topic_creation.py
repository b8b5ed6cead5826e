"""Topics that a service needs: created where they are missing, checked or taken as they are where they exist.

A new topic gets as many replicas as were asked for, or as there are brokers if those are fewer. `ensure_topic` returns
when the brokers tell of the topic, so that the next producer or consumer finds its partitions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from pessoa.client.librdkafka import is_passing

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import TopicMetadata

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
# The longest that one request to a cluster that may not be there takes, so that a stop is noticed.
_ATTEMPT_S = 5.0
_PAUSE_S = 0.05
_COMPACT = "compact"


class TopicUnavailable(RuntimeError):
    """A topic cannot be created, read or written; the message says why, and `may_pass` whether a retry may succeed."""

    def __init__(self, sentence: str, *, may_pass: bool = False) -> None:
        super().__init__(sentence)
        self.may_pass = may_pass


class IfExists(Enum):
    """How an existing topic that differs from its specification is handled."""

    TAKE = "take it as it is"
    GROW = "add the partitions that are missing"
    # A table loses rows unless it is compacted, and the order of its rows if a second partition was added.
    CHECK = "refuse it unless it is compacted and, if one partition was asked for, has one"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The wanted configuration of a topic; -1 leaves a number to the brokers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, str] = field(default_factory=dict)
    if_exists: IfExists = IfExists.TAKE


def table_spec(name: str, *, partitions: int = 1, replication_factor: int = 3) -> TopicSpec:
    """Return the specification of a compacted topic, which keeps the last row of each key."""
    return TopicSpec(name, partitions, replication_factor, {"cleanup.policy": _COMPACT}, IfExists.CHECK)


def ensure_topic(
    admin: AdminClient, wanted: TopicSpec, timeout_s: float = TIMEOUT_S, stop: threading.Event | None = None
) -> list[int]:
    """Create the topic or check that the existing one will do, and return its partitions; TopicUnavailable if
    neither works."""
    from confluent_kafka import KafkaError, KafkaException

    stop = stop or threading.Event()
    deadline_s = time.monotonic() + timeout_s
    is_ensured = False
    while True:
        may_pass, trouble = True, "the brokers do not tell of it"
        try:
            metadata = admin.list_topics(timeout=min(_ATTEMPT_S, timeout_s))
            known = metadata.topics.get(wanted.name)
            if not is_ensured:
                if known is None:
                    _create(admin, wanted, len(metadata.brokers))
                else:
                    _check(admin, wanted, known)
                is_ensured = True
            if known is not None and known.error is None and len(known.partitions) >= _least_partition_count(wanted):
                return sorted(known.partitions)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            # Brokers that are about to register are missing for the replicas.
            may_pass = is_passing(error) or error.code() == KafkaError.INVALID_REPLICATION_FACTOR
            trouble = error.str()
        except NoAnswer:
            trouble = "no broker answered"
        if not may_pass or time.monotonic() > deadline_s or stop.is_set():
            raise TopicUnavailable(f"the topic {wanted.name} could not be created: {trouble}", may_pass=may_pass)
        stop.wait(_PAUSE_S)


def delete_topic(admin: AdminClient, name: str, timeout_s: float = TIMEOUT_S) -> None:
    """Delete a topic; a failure is only logged, since the topic does no harm if it stays."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        admin.delete_topics([name], request_timeout=timeout_s)[name].result(timeout_s)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            log.warning("the topic %s cannot be deleted: %s", name, error.str())
    except NoAnswer:
        log.warning("the topic %s cannot be deleted: no broker answered", name)


def _least_partition_count(wanted: TopicSpec) -> int:
    """Return how many partitions the brokers' metadata must show."""
    return wanted.partitions if wanted.if_exists is IfExists.GROW else 1


def _create(admin: AdminClient, wanted: TopicSpec, broker_count: int) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    replicas = min(wanted.replication_factor, max(broker_count, 1))
    if replicas < wanted.replication_factor:
        log.warning("%s has %d replicas, for want of brokers", wanted.name, replicas)
    topic = NewTopic(wanted.name, wanted.partitions, replicas, config=dict(wanted.config))
    try:
        admin.create_topics([topic], request_timeout=TIMEOUT_S)[wanted.name].result(TIMEOUT_S)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _check(admin: AdminClient, wanted: TopicSpec, known: TopicMetadata) -> None:
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]
    from confluent_kafka.cimpl import NewPartitions

    count = len(known.partitions)
    if wanted.if_exists is IfExists.GROW and count < wanted.partitions:
        more = [NewPartitions(wanted.name, wanted.partitions)]
        admin.create_partitions(more, request_timeout=TIMEOUT_S)[wanted.name].result(TIMEOUT_S)
    if wanted.if_exists is IfExists.CHECK:
        if wanted.partitions == 1 and count > 1:
            raise TopicUnavailable(f"{wanted.name} has {count} partitions; it must have one")
        resource = ConfigResource(ConfigResource.Type.TOPIC, wanted.name)
        (future,) = admin.describe_configs([resource], request_timeout=TIMEOUT_S).values()
        policy = future.result(TIMEOUT_S)["cleanup.policy"].value
        if policy != _COMPACT:
            raise TopicUnavailable(
                f"{wanted.name} has cleanup.policy={policy}, which would forget what it holds; it must be compact"
            )
