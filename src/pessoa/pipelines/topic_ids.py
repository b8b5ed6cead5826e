"""The ids of the topics that a query reads, in its folder: a topic that was deleted and made again is another topic.

Offsets of the old topic mean nothing in the new one. Spark notices when the new one is shorter than what it has read;
once it has grown past that, Spark would go on in its middle and pass its first records over. The id of a topic
(KIP-516) tells the two apart:

    before a query starts    the ids that it began with are compared with those of today (`KeptTopics.note`)
    while it runs            the same, every LOOK_INTERVAL_S (`TopicLook`), without waiting for the cluster

A query whose topic was made again ends with TopicRecreated's sentence. What it has read of the new topic within the
interval stays written; nothing is read twice. A topic that a query reads for the first time is noted as it is found.
Brokers without ids (Kafka before 2.8) leave it to Spark.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pessoa.pipelines.failures import made_again
from pessoa.pipelines.plan import Node, PlanRefused, Source, every
from pessoa.pipelines.slots import write_whole

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._topic import TopicDescription

LOOK_INTERVAL_S = 2.0
# A cluster that does not answer is asked again later.
ANSWER_TIMEOUT_S = 5.0
SILENCE_S = 30.0
_NO_ID = ("", "AAAAAAAAAAAAAAAAAAAAAA")
_PAUSE_S = 0.005
Ids = Mapping[str, str]


class TopicRecreated(PlanRefused):
    """The topic was deleted and created again since the query began to read it."""


class TopicIdsUnreadable(Exception):
    """The file exists and holds no ids."""


def topics_read(plan: Node | None) -> set[str]:
    return {node.topic for node in every(plan) if isinstance(node, Source)} if plan is not None else set()


class KeptTopics:
    """The file `topics` in the folder of a query: a JSON object, topic → id."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "topics"

    def __repr__(self) -> str:
        return f"<KeptTopics {self._path}>"

    def note(self, seen: Ids) -> None:
        """Store the ids of topics that are new here; raise TopicRecreated if a topic has another id than before."""
        kept = self._read()
        for topic, topic_id in sorted(seen.items()):
            if kept.get(topic, topic_id) != topic_id:
                raise TopicRecreated(made_again(topic))
        if not seen.keys() <= kept.keys():
            write_whole(self._path, msgspec.json.encode({**kept, **seen}).decode())

    def _read(self) -> dict[str, str]:
        if not self._path.exists():
            return {}
        text = self._path.read_bytes()
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except msgspec.MsgspecError:
            raise TopicIdsUnreadable(
                f"{self._path} should hold the ids of the topics that the query reads, and holds {text[:100]!r}"
            ) from None


class TopicLook:
    """Requests the ids of topics from a cluster. A request that no caller waits for is sent every LOOK_INTERVAL_S."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Make a client that connects with its first request; `settings` are librdkafka's."""
        self._settings = settings
        self._admin: AdminClient | None = None
        self._requests: dict[str, Future[TopicDescription]] = {}
        self._next_s = 0.0
        self._silent_until_s = 0.0

    def __repr__(self) -> str:
        return f"<TopicLook, asked for {sorted(self._requests)}>"

    def ask(self, topics: Collection[str]) -> Ids:
        """Return the ids of the topics for which the cluster answers in time."""
        if time.monotonic() < self._silent_until_s:
            return {}
        asked = self._request_ids(topics)
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S + 1
        while not all(each.done() for each in asked.values()):
            if time.monotonic() > deadline_s:
                # Other queries must not wait as long, one after the other.
                self._silent_until_s = time.monotonic() + SILENCE_S
                break
            time.sleep(_PAUSE_S)
        return _ids(asked)

    def answer(self, topics: Collection[str]) -> Ids:
        """Return the answer to an earlier request if it has arrived; never waits."""
        if self._requests:
            if not all(each.done() for each in self._requests.values()):
                return {}
            asked, self._requests = self._requests, {}
            return _ids(asked)
        if topics and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LOOK_INTERVAL_S
            self._requests = self._request_ids(topics)
        return {}

    def _request_ids(self, topics: Collection[str]) -> dict[str, Future[TopicDescription]]:
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AdminClient

        if not topics:
            return {}
        if self._admin is None:
            # The client lives as long as the engine; its messages about an unreachable broker are kept out of standard
            # error.
            self._admin = AdminClient({**self._settings, "log_level": "2"})
        asked: dict[str, Future[TopicDescription]] = self._admin.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=ANSWER_TIMEOUT_S
        )
        return asked


def _ids(asked: Mapping[str, Future[TopicDescription]]) -> Ids:
    """Return the topic ids in the response, without topics that are deleted or unknown, which Spark notices itself."""
    found = {
        topic: str(each.result().topic_id) for topic, each in asked.items() if each.done() and not each.exception()
    }
    return {topic: topic_id for topic, topic_id in found.items() if topic_id not in _NO_ID}
