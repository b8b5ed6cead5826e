"""When each broker was last heard of. Kept in memory only: a new controller gives everybody a whole session anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pessoa.metadata.image import MetadataImage


class _Session(NamedTuple):
    broker_epoch: int
    last_contact_ms: int
    metadata_offset: int
    # Where the log ended when the broker began to shut down; None if it has not.
    shutdown_offset: int | None


class BrokerSessions:
    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}

    def __repr__(self) -> str:
        return f"<BrokerSessions: {sorted(self._sessions)}>"

    def restart(self, image: MetadataImage, now_ms: int) -> None:
        self._sessions = {
            broker.id: _Session(broker.epoch, now_ms, -1, None)
            for broker in image.cluster.brokers.values()
            if not broker.fenced
        }

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        known = self._sessions.get(broker_id)
        shutdown_offset = known.shutdown_offset if known is not None and known.broker_epoch == broker_epoch else None
        self._sessions[broker_id] = _Session(broker_epoch, now_ms, metadata_offset, shutdown_offset)

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        known = self._sessions.get(broker_id)
        if known is not None and known.shutdown_offset is None:
            self._sessions[broker_id] = known._replace(shutdown_offset=offset)

    def end(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        known = self._sessions.get(broker_id)
        if known is None or known.broker_epoch != broker_epoch:
            return False
        return now_ms - known.last_contact_ms <= self.session_timeout_ms

    def everybody_saw(self, image: MetadataImage, broker_id: int) -> bool:
        """Whether all other live brokers know that this one is shutting down."""
        known = self._sessions.get(broker_id)
        if known is None or known.shutdown_offset is None:
            return False
        return all(
            session.metadata_offset >= known.shutdown_offset
            for other, session in self._sessions.items()
            if other != broker_id and not image.cluster.brokers[other].fenced
        )

    def stale(self, image: MetadataImage, now_ms: int) -> list[int]:
        """Unfenced brokers that have not been heard of for a whole session."""
        return [
            broker.id
            for broker in image.cluster.brokers.values()
            if not broker.fenced and not self.is_alive(broker.id, broker.epoch, now_ms)
        ]

    def next_deadline_ms(self) -> int | None:
        """When, at the earliest, somebody is stale."""
        contacts = [session.last_contact_ms for session in self._sessions.values()]
        return min(contacts) + self.session_timeout_ms + 1 if contacts else None
