"""Until when each broker counts as alive, and how far it knows the metadata.

A heartbeat begins a session anew; a session that is over means that the broker is gone, and the controller fences it.
A connection that breaks is a hint: the process may have died (its kernel closes what it had open), so such a broker has
only a moment to send a heartbeat again (`suspect`). Fencing one that is alive costs it its leaderships, and no more.

Kept in memory only: a new controller gives every broker a whole session anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pessoa.metadata.image import BrokerImage, MetadataImage

# Time to connect and send a heartbeat, for a broker that is alive and has lost its connection. Short because clients
# wait at least as long again: they back off while a partition has no leader.
SUSPICION_MS = 500
_NEVER_HEARD = -1


class _Session(NamedTuple):
    broker_epoch: int
    # The last moment at which it is alive.
    expires_ms: int
    metadata_offset: int
    # Where the log ended when the broker began to shut down; None if it has not.
    shutdown_offset: int | None


class BrokerSessions:
    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}

    def __repr__(self) -> str:
        return f"<BrokerSessions: {sorted(self._sessions)}>"

    # What happens to sessions.

    def restart(self, image: MetadataImage, now_ms: int) -> None:
        self._sessions = {
            broker.id: _Session(broker.epoch, now_ms + self.session_timeout_ms, _NEVER_HEARD, None)
            for broker in image.cluster.brokers.values()
            if not broker.fenced
        }

    def clear(self) -> None:
        self._sessions = {}

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        known = self._of(broker_id, broker_epoch)
        shutdown_offset = known.shutdown_offset if known is not None else None
        expires_ms = now_ms + self.session_timeout_ms
        self._sessions[broker_id] = _Session(broker_epoch, expires_ms, metadata_offset, shutdown_offset)

    def suspect(self, broker_id: int, now_ms: int) -> None:
        known = self._sessions.get(broker_id)
        if known is not None:
            self._sessions[broker_id] = known._replace(expires_ms=min(known.expires_ms, now_ms + SUSPICION_MS))

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        known = self._sessions.get(broker_id)
        if known is not None and known.shutdown_offset is None:
            self._sessions[broker_id] = known._replace(shutdown_offset=offset)

    def end(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    # What they say.

    def is_alive(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        known = self._of(broker_id, broker_epoch)
        return known is not None and now_ms <= known.expires_ms

    def all_know_of_shutdown(self, image: MetadataImage, broker_id: int) -> bool:
        """Return whether all other unfenced brokers have replayed the record that this one is shutting down."""
        known = self._sessions.get(broker_id)
        if known is None or known.shutdown_offset is None:
            return False
        return all(
            self._metadata_offset(other) >= known.shutdown_offset
            for other in image.cluster.brokers.values()
            if other.id != broker_id and not other.fenced and not other.in_controlled_shutdown
        )

    def stale(self, image: MetadataImage, now_ms: int) -> list[int]:
        """Return the unfenced brokers without a heartbeat for a whole session timeout."""
        return [
            broker.id
            for broker in image.cluster.brokers.values()
            if not broker.fenced and not self.is_alive(broker.id, broker.epoch, now_ms)
        ]

    def next_deadline_ms(self, image: MetadataImage) -> int | None:
        """Return the earliest time at which an unfenced broker becomes stale; None if there is none."""
        deadlines = [
            session.expires_ms + 1
            for broker in image.cluster.brokers.values()
            if not broker.fenced and (session := self._of(broker.id, broker.epoch)) is not None
        ]
        return min(deadlines, default=None)

    def _metadata_offset(self, broker: BrokerImage) -> int:
        known = self._of(broker.id, broker.epoch)
        return known.metadata_offset if known is not None else _NEVER_HEARD

    def _of(self, broker_id: int, broker_epoch: int) -> _Session | None:
        """Return the session of this broker epoch; None if there is none."""
        known = self._sessions.get(broker_id)
        return known if known is not None and known.broker_epoch == broker_epoch else None
