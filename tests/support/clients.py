"""What tests with any Kafka client need: topics, names, deadlines.

Nothing here sleeps. `until` repeats a call that waits by itself (a poll with a timeout) until it returns the wanted
result, and fails with a message at its deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar
from uuid import uuid4

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

# Only failures take this long: a call that succeeds needs a fraction of it, even on a busy machine.
TIMEOUT_S = 60.0
POLL_S = 0.1

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Answer = TypeVar("Answer")


class Reachable(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...


def unique(stem: str) -> str:
    """Return a name that no other test uses."""
    return f"{stem}-{uuid4().hex[:10]}"


def create_topic(
    broker: Reachable, partitions: int = 1, config: Mapping[str, str] | None = None, *, stem: str = "topic"
) -> str:
    name = unique(stem)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))]).values():
        future.result(TIMEOUT_S)
    return name


def until(ask: Callable[[], Answer], is_right: Callable[[Answer], object], what: str) -> Answer:
    """Return the first result of `ask` that is right. `ask` has to wait by itself."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = ask()
        if is_right(answer):
            return answer
        assert time.monotonic() < deadline, f"{what} did not come about in {TIMEOUT_S:.0f} s; the last answer: {answer}"
