"""Where the state is kept: in Kafka's internal topics, or (standalone) in memory and one file.

Both replay every record into one `ClusterState`, and a write has come back when `write` returns. So whoever writes
and then reads, reads what was written. Readers take `lock`, and the thread that replays takes it too.

Topics are read from their start by a thread with a consumer of its own; there is no group, so every worker reads
everything.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pessoa.connect.clients import TopicMaker, client_settings
from pessoa.connect.state import ClusterState, offset_key
from pessoa.connect.worker_config import WorkerConfig

log = logging.getLogger("pessoa.connect")

_POLL_S = 0.2
_BATCH = 500
_TIMEOUT_S = 60.0
CONFIG, OFFSET, STATUS = "config", "offset", "status"
KINDS = (CONFIG, OFFSET, STATUS)


class StoreFailed(RuntimeError):
    """The internal topics cannot be read or written."""


class Store(Protocol):
    state: ClusterState
    lock: threading.RLock
    # Called after records were replayed, without the lock.
    changed: Callable[[], None]

    def start(self) -> None: ...

    def write(self, kind: str, key: str, value: Any) -> None:
        """None for `value` takes the record away."""

    def stop(self) -> None: ...


def _nothing() -> None:
    pass


def _replay(state: ClusterState, kind: str, key: str, value: Any) -> None:
    {CONFIG: state.replay_config, OFFSET: state.replay_offset, STATUS: state.replay_status}[kind](key, value)


class TopicStore:
    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self.state = ClusterState()
        self.lock = threading.RLock()
        self.changed: Callable[[], None] = _nothing
        self._replayed = threading.Condition(self.lock)
        # The next offset to be replayed of each partition that was read to its end once.
        self._ends: dict[tuple[str, int], int] = {}
        self._kinds = {config[f"{kind}.storage.topic"]: kind for kind in KINDS}
        self._stop = threading.Event()
        self._reader: threading.Thread | None = None
        self._failure: Exception | None = None
        self._producer: Any = None

    def __repr__(self) -> str:
        return f"<TopicStore {', '.join(self._kinds)}>"

    def start(self) -> None:
        """Make the topics if need be, and read them to their ends."""
        from confluent_kafka import Consumer, Producer

        self._make_topics()
        settings = client_settings(self._config.settings, "producer")
        self._producer = Producer({**settings, "acks": "all", "linger.ms": 0, "enable.idempotence": True})
        consumer = Consumer(
            {
                **client_settings(self._config.settings, "consumer"),
                "group.id": f"{self._config['group.id']}-state",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                # The end of a partition is how we know that everything was read.
                "enable.partition.eof": True,
            }
        )
        places = self._assign(consumer)
        self._reader = threading.Thread(target=self._read, args=(consumer,), name="connect-state", daemon=True)
        self._reader.start()
        for place in places:
            self._wait_until(place, 0)

    def stop(self) -> None:
        self._stop.set()
        if self._reader is not None:
            self._reader.join()
        self._producer = None

    def _make_topics(self) -> None:
        maker = TopicMaker(client_settings(self._config.settings, "admin"))
        for topic, kind in self._kinds.items():
            count = 1 if kind == CONFIG else int(self._config[f"{kind}.storage.partitions"])
            replicas = int(self._config[f"{kind}.storage.replication.factor"])
            maker.ensure(topic, partitions=count, replicas=replicas, config={"cleanup.policy": "compact"})

    def _assign(self, consumer: Any) -> list[tuple[str, int]]:
        """Start reading everything from its beginning."""
        from confluent_kafka import TopicPartition

        known = consumer.list_topics(timeout=_TIMEOUT_S).topics
        places = [(topic, number) for topic in self._kinds for number in known[topic].partitions]
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in places])
        return places

    def _read(self, consumer: Any) -> None:
        try:
            while not self._stop.is_set():
                messages = consumer.consume(_BATCH, _POLL_S)
                if messages:
                    self._replay(messages)
                    self.changed()
        except Exception as failure:
            log.exception("the state could not be read any further")
            self._failure = failure
        finally:
            consumer.close()

    def _replay(self, messages: list[Any]) -> None:
        from confluent_kafka import KafkaError

        with self.lock:
            for message in messages:
                place, error = (message.topic(), message.partition()), message.error()
                if error is None:
                    key, value = _decoded(message.key()), _decoded_json(message.value())
                    if key is not None:
                        _replay(self.state, self._kinds[place[0]], key, value)
                    if place in self._ends:
                        self._ends[place] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._ends[place] = message.offset()
                else:
                    log.warning("reading the state: %s", error)
            self._replayed.notify_all()

    def _wait_until(self, place: tuple[str, int], end: int) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        with self._replayed:
            while self._ends.get(place, -1) < end:
                if self._failure is not None or time.monotonic() > deadline:
                    raise StoreFailed(f"{place[0]}-{place[1]} could not be read up to {end}: {self._failure}")
                self._replayed.wait(1.0)

    def write(self, kind: str, key: str, value: Any) -> None:
        topic = self._config[f"{kind}.storage.topic"]
        outcome: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            outcome.append(error if error is not None else (message.partition(), message.offset()))

        data = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        self._producer.produce(topic, data, key.encode(), on_delivery=delivered)
        self._producer.flush(_TIMEOUT_S)
        if not outcome or not isinstance(outcome[0], tuple):
            raise StoreFailed(f"{key} could not be written to {topic}: {outcome[0] if outcome else 'no answer'}")
        partition, offset = outcome[0]
        self._wait_until((topic, partition), offset + 1)


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _decoded_json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return None


class MemoryStore:
    """For one worker alone. The offsets of sources outlive it in a file, whole after every write."""

    def __init__(self, offsets_file: str | None) -> None:
        self.state = ClusterState()
        self.lock = threading.RLock()
        self.changed: Callable[[], None] = _nothing
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

    def write(self, kind: str, key: str, value: Any) -> None:
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
