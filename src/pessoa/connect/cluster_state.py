"""The state of a Connect cluster, replayed from its internal topics: connectors, their targets, statuses and offsets.

    config topic    connector-<c> {"properties"}     task-<c>-<n> {"properties"}     commit-<c> {"tasks": count}
                    target-state-<c> {"state", "state.v2"}    logger-cluster-<l> {"level"}
    status topic    status-connector-<c>, status-task-<c>-<n> {"state", "trace", "worker_id", "generation", "version"}
                    status-topic-<t>:connector-<c> {"topic"}
    offset topic    ["<c>",{partition}] {offset}

A record without a value deletes. Tasks count from the moment of their commit record, so that a reader never sees half
of a new set. Keys and JSON are Kafka's; a record of another kind is passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pessoa.base.json_value import JsonObject, JsonValue

K = TypeVar("K")

CONNECTOR = "connector-"
TASK = "task-"
COMMIT = "commit-"
TARGET = "target-state-"
LOGGER = "logger-cluster-"
STATUS_CONNECTOR = "status-connector-"
STATUS_TASK = "status-task-"
STATUS_TOPIC = "status-topic-"
# Ours: the address of the leader, which runs the connectors.
LEADER = "pessoa-leader"

STARTED, PAUSED, STOPPED = "STARTED", "PAUSED", "STOPPED"
_TASK_NAME = re.compile(r"(.+)-(\d+)")
_TOPIC_NAME = re.compile(r"(.+):connector-(.+)")


@dataclass(frozen=True, slots=True)
class Status:
    state: str
    worker_id: str
    trace: str | None = None
    generation: int = 0
    version: str | None = None

    def to_json(self) -> JsonObject:
        return {
            "state": self.state,
            "trace": self.trace,
            "worker_id": self.worker_id,
            "generation": self.generation,
            "version": self.version,
        }


@dataclass(slots=True)
class ClusterState:
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    # Tasks by connector, as of the last commit.
    tasks: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    connector_status: dict[str, Status] = field(default_factory=dict)
    task_status: dict[tuple[str, int], Status] = field(default_factory=dict)
    # When each topic of a connector was first seen.
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    # Offsets by connector and, as JSON, by partition.
    offsets: dict[str, dict[str, JsonObject]] = field(default_factory=dict)
    leader: str | None = None
    # How many records have named a leader.
    leader_count: int = 0
    _written_tasks: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)

    def target(self, name: str) -> str:
        return self.targets.get(name, STARTED)

    # Config.

    def replay_config(self, key: str, value: JsonValue) -> None:
        if key.startswith(TARGET):
            self._replay_target(key.removeprefix(TARGET), value)
        elif key.startswith(CONNECTOR):
            name, properties = key.removeprefix(CONNECTOR), _properties(value)
            if properties is not None:
                self.configs[name] = properties
            else:
                self.configs.pop(name, None)
                self.targets.pop(name, None)
                self.tasks.pop(name, None)
        elif key.startswith(TASK):
            match, properties = _TASK_NAME.fullmatch(key.removeprefix(TASK)), _properties(value)
            if match and properties is not None:
                self._written_tasks[match[1], int(match[2])] = properties
        elif key.startswith(COMMIT):
            self._commit(key.removeprefix(COMMIT), value)
        elif key.startswith(LOGGER) and isinstance(value, dict) and "level" in value:
            self.levels[key.removeprefix(LOGGER)] = str(value["level"])

    def _replay_target(self, name: str, value: JsonValue) -> None:
        if not isinstance(value, dict):
            self.targets.pop(name, None)
            return
        # `state` is for workers that know no STOPPED.
        state = value.get("state.v2") or value.get("state")
        if state in (STARTED, PAUSED, STOPPED):
            self.targets[name] = str(state)

    def _commit(self, name: str, value: JsonValue) -> None:
        count = value.get("tasks") if isinstance(value, dict) else None
        if not isinstance(count, int):
            self.tasks.pop(name, None)
            return
        numbered = [self._written_tasks.get((name, number)) for number in range(count)]
        whole = [each for each in numbered if each is not None]
        # Compaction may have removed part of an old set; then the records of the new set follow.
        if len(whole) == count:
            self.tasks[name] = whole

    # Status.

    def replay_status(self, key: str, value: JsonValue) -> None:
        if key == LEADER:
            self.leader = _text(value, "url")
            self.leader_count += 1
        elif key.startswith(STATUS_TOPIC):
            match = _TOPIC_NAME.fullmatch(key.removeprefix(STATUS_TOPIC))
            if match is None:
                return
            known = self.topics.setdefault(match[2], {})
            if isinstance(value, dict):
                known[match[1]] = _number(value.get("topic"), "discoverTimestamp")
            else:
                known.pop(match[1], None)
        elif key.startswith(STATUS_CONNECTOR):
            _put(self.connector_status, key.removeprefix(STATUS_CONNECTOR), _status(value))
        elif key.startswith(STATUS_TASK):
            match = _TASK_NAME.fullmatch(key.removeprefix(STATUS_TASK))
            if match:
                _put(self.task_status, (match[1], int(match[2])), _status(value))

    # Offsets.

    def replay_offset(self, key: str, value: JsonValue) -> None:
        try:
            name, partition = json.loads(key)
        except (ValueError, TypeError):
            return
        known = self.offsets.setdefault(name, {})
        place = json.dumps(partition, sort_keys=True, separators=(",", ":"))
        if isinstance(value, dict):
            known[place] = value
        else:
            known.pop(place, None)


def _properties(value: JsonValue) -> dict[str, str] | None:
    properties = value.get("properties") if isinstance(value, dict) else None
    return {name: str(text) for name, text in properties.items()} if isinstance(properties, dict) else None


def _text(value: JsonValue, name: str) -> str | None:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def _number(value: JsonValue, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    return int(found) if isinstance(found, int | float) else 0


def _put(table: dict[K, Status], key: K, status: Status | None) -> None:
    if status is None:
        table.pop(key, None)
    else:
        table[key] = status


def _status(value: JsonValue) -> Status | None:
    if not isinstance(value, dict) or "state" not in value:
        return None
    return Status(
        str(value["state"]),
        str(value.get("worker_id", "")),
        _text(value, "trace"),
        _number(value, "generation"),
        _text(value, "version"),
    )


def offset_key(connector: str, partition: Mapping[str, JsonValue]) -> str:
    """Return the key of a source's offset as Kafka writes it: an array of the name and the partition."""
    return json.dumps([connector, partition], separators=(",", ":"))


def target_value(state: str) -> JsonObject:
    return {"state": STARTED if state == STARTED else PAUSED, "state.v2": state}
