"""Where the state is kept: in Kafka's internal topics, or (standalone) in memory and one file.

Both replay every record into one `ClusterState`, and when `write` returns, its record was replayed. Readers take
`lock`, and the thread that replays takes it too. Every worker reads all of the topics (client/table_topic.py).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pessoa.base.json_value import JsonValue
from pessoa.client.table_topic import Batch, TableReader, TableWriter
from pessoa.client.topic_creation import table_spec
from pessoa.connect.clients import client_settings
from pessoa.connect.cluster_state import ClusterState, offset_key
from pessoa.connect.worker_config import WorkerConfig

CONFIG, OFFSET, STATUS = "config", "offset", "status"


class Store(Protocol):
    state: ClusterState
    lock: threading.RLock
    # Called after records were replayed, without the lock.
    changed: Callable[[], None]

    def start(self) -> None: ...

    def write(self, kind: str, key: str, value: object) -> None:
        """Write a record of JSON; None for `value` deletes the key."""

    def stop(self) -> None: ...


def _do_nothing() -> None:
    pass


def _replay(state: ClusterState, kind: str, key: str, value: JsonValue) -> None:
    {CONFIG: state.replay_config, OFFSET: state.replay_offset, STATUS: state.replay_status}[kind](key, value)


class TopicStore:
    def __init__(self, config: WorkerConfig) -> None:
        self.state = ClusterState()
        self.lock = threading.RLock()
        self.changed: Callable[[], None] = _do_nothing
        self._topics = {CONFIG: config.config_topic, OFFSET: config.offset_topic, STATUS: config.status_topic}
        self._kinds = {topic: kind for kind, topic in self._topics.items()}
        self._settings = config.settings
        tables = (
            table_spec(config.config_topic, replication_factor=config.config_replicas),
            table_spec(
                config.offset_topic, partitions=config.offset_partitions, replication_factor=config.offset_replicas
            ),
            table_spec(
                config.status_topic, partitions=config.status_partitions, replication_factor=config.status_replicas
            ),
        )
        name = f"{config.group_id}-state"
        consumer, admin = (client_settings(config.settings, kind) for kind in ("consumer", "admin"))
        self._reader = TableReader(name, consumer, tables, self._replay, admin=admin)
        self._writer: TableWriter | None = None

    def __repr__(self) -> str:
        return f"<TopicStore {', '.join(self._kinds)}>"

    def start(self) -> None:
        """Create the topics that are missing, and read all of them to their ends."""
        self._writer = TableWriter(client_settings(self._settings, "producer"))
        self._reader.start()
        self._reader.wait_for_end()

    def stop(self) -> None:
        self._reader.stop()
        self._writer = None

    def _replay(self, batch: Batch) -> None:
        with self.lock:
            for row in batch.rows:
                if row.key is not None:
                    kind = self._kinds[row.partition.topic]
                    _replay(self.state, kind, row.key.decode(errors="replace"), _decode_json(row.value))
        self.changed()

    def write(self, kind: str, key: str, value: object) -> None:
        assert self._writer is not None, "it was not started"
        data = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        self._reader.wait_until(*self._writer.send(self._topics[kind], key.encode(), data)())


def _decode_json(data: bytes | None) -> JsonValue:
    """Return the value of a record; None for a tombstone and for a value that is not JSON."""
    try:
        value: JsonValue = None if data is None else json.loads(data)
    except ValueError:
        return None
    return value


class MemoryStore:
    """The store of a standalone worker. Source offsets are kept in a file, which is replaced whole by every write."""

    def __init__(self, offsets_file: str | None) -> None:
        self.state = ClusterState()
        self.lock = threading.RLock()
        self.changed: Callable[[], None] = _do_nothing
        self._path = Path(offsets_file) if offsets_file else None

    def __repr__(self) -> str:
        return f"<MemoryStore, offsets in {self._path}>"

    def start(self) -> None:
        if self._path is not None and self._path.exists():
            for name, parts in json.loads(self._path.read_text(encoding="utf-8")).items():
                for partition, offset in parts.items():
                    self.state.replay_offset(offset_key(name, json.loads(partition)), offset)

    def stop(self) -> None:
        pass

    def write(self, kind: str, key: str, value: object) -> None:
        with self.lock:
            # Through JSON, as it would go through a topic.
            _replay(self.state, kind, key, json.loads(json.dumps(value)))
            if kind == OFFSET and self._path is not None:
                partial = self._path.with_name(f"{self._path.name}.partial")
                with partial.open("w", encoding="utf-8") as file:
                    json.dump(self.state.offsets, file)
                    file.flush()
                    os.fsync(file.fileno())
                partial.rename(self._path)
        self.changed()
