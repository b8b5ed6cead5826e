"""The follower's side of a fetch session (KIP-227): which partitions a fetch has to name.

The first fetch names all partitions and opens a session; every later one names those whose position is not the one
that was sent last, and those that are to be forgotten. The leader keeps the rest. Session epochs count fetches, so
that both sides notice a lost one; then, or when the leader has thrown the session away, everything begins anew.

    epoch 0 ── answer with an id ──▶ 1 ──▶ 2 ──▶ …        an error or a lost answer: back to 0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.wire.api.fetch import FetchPartition, FetchTopic, ForgottenTopic
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pessoa.base.ids import Uuid

_MAX_EPOCH = (1 << 31) - 1
_NO_SESSION = 0
_INITIAL_EPOCH = 0

Key = tuple["Uuid", int]


class Position(NamedTuple):
    """The offset and epochs that a follower's Fetch names for one partition."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FollowerSession:
    def __init__(self) -> None:
        self.id = _NO_SESSION
        self.epoch = _INITIAL_EPOCH
        # What the leader has in its session when it has received the Fetch in flight.
        self._sent_positions: dict[Key, Position] = {}

    def __repr__(self) -> str:
        return f"<FollowerSession {self.id} in epoch {self.epoch}: {len(self._sent_positions)} partitions>"

    @property
    def is_incremental(self) -> bool:
        return self.epoch != _INITIAL_EPOCH

    def next_fetch_topics(
        self, wanted: Mapping[Key, Position], max_bytes: int
    ) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """Return the topics and the forgotten topics of the next Fetch, after which the session has exactly the
        partitions of `wanted`."""
        sent = self._sent_positions if self.is_incremental else {}
        topics: dict[Uuid, FetchTopic] = {}
        for key, position in wanted.items():
            if sent.get(key) != position:
                topic_id, index = key
                topic = topics.get(topic_id)
                if topic is None:
                    topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
                topic.partitions.append(
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=position.leader_epoch,
                        fetch_offset=position.fetch_offset,
                        last_fetched_epoch=position.last_fetched_epoch,
                        log_start_offset=position.log_start_offset,
                        partition_max_bytes=max_bytes,
                    )
                )
        forgotten = _by_topic(key for key in sent if key not in wanted)
        self._sent_positions = dict(wanted)
        return list(topics.values()), forgotten

    def apply_response(self, error: ErrorCode, session_id: int) -> None:
        """Continue the session with the next epoch, or begin a new one after an error or if the id is another."""
        if error is not ErrorCode.NONE or session_id == _NO_SESSION or (self.is_incremental and session_id != self.id):
            self.reset()
            return
        self.id = session_id
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Begin a new fetch session with the next Fetch: after a lost response it is unknown what the leader has in
        this one."""
        # The id stays: with epoch 0 it tells the leader to throw the old session away.
        self.epoch = _INITIAL_EPOCH
        self._sent_positions = {}


def _by_topic(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
    return list(topics.values())
