"""The topics that a connector has used, as records of the status topic, and the topics that a source creates.

status-topic-<topic>:connector-<connector>  →  {"topic": {"name", "connector", "task", "discoverTimestamp"}}
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from pessoa.connect.clients import Outbox, TopicMaker, client_settings
from pessoa.connect.java_regex import JavaPattern
from pessoa.web.settings import settings_below


def topic_status_key(topic: str, connector: str) -> str:
    return f"status-topic-{topic}:connector-{connector}"


class TopicTracker:
    def __init__(self, worker: Mapping[str, str], connector: str, task: int) -> None:
        self._worker = worker
        self._connector = connector
        self._task = task
        self._seen_topics: set[str] = set()
        self._outbox: Outbox | None = None
        tracks = worker.get("topic.tracking.enable", "true").lower() == "true"
        self._is_on = tracks and "status.storage.topic" in worker

    def track(self, topic: str) -> bool:
        """Write a record for a topic that the task uses for the first time; return whether it does."""
        if topic in self._seen_topics:
            return False
        self._seen_topics.add(topic)
        if self._is_on:
            if self._outbox is None:
                self._outbox = Outbox(client_settings(self._worker, "producer"))
            facts = {
                "name": topic,
                "connector": self._connector,
                "task": self._task,
                "discoverTimestamp": int(time.time() * 1000),
            }
            key = topic_status_key(topic, self._connector).encode()
            self._outbox.send(self._worker["status.storage.topic"], key, json.dumps({"topic": facts}).encode())
            self._outbox.flush()
        return True


class TopicCreation:
    """Creates the topics of a source with the settings of `topic.creation.*` (KIP-158).

    `topic.creation.default.partitions` and `.replication.factor` enable it. A group of `topic.creation.groups` has an
    include list of regular expressions, and settings; settings that it lacks are those of `default`.
    """

    def __init__(self, worker: Mapping[str, str], settings: Mapping[str, str]) -> None:
        self._is_on = (
            worker.get("topic.creation.enable", "true").lower() == "true"
            and "topic.creation.default.partitions" in settings
            and "topic.creation.default.replication.factor" in settings
        )
        self._settings = settings
        self._worker = worker
        self._maker: TopicMaker | None = None

    def ensure(self, topic: str) -> None:
        """Create the topic, if `topic.creation.*` is set and it does not exist."""
        if not self._is_on:
            return
        facts = self._facts(topic)
        partitions = int(facts.pop("partitions"))
        replicas = int(facts.pop("replication.factor"))
        if self._maker is None:
            self._maker = TopicMaker(client_settings(self._worker, "admin", self._settings))
        self._maker.ensure(topic, partitions=partitions, replicas=replicas, config=facts)

    def _facts(self, topic: str) -> dict[str, str]:
        facts = self._group_settings("default")
        for group in filter(None, self._settings.get("topic.creation.groups", "").split(",")):
            own = self._group_settings(group.strip())
            included = _any_matches(own.pop("include", ""), topic)
            if included and not _any_matches(own.pop("exclude", ""), topic):
                facts |= own
                break
        return facts

    def _group_settings(self, group: str) -> dict[str, str]:
        return settings_below(self._settings, f"topic.creation.{group}.")


def _any_matches(patterns: str, topic: str) -> bool:
    return any(JavaPattern(each.strip()).compiled.fullmatch(topic) for each in patterns.split(",") if each.strip())
