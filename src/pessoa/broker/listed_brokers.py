"""The brokers that Metadata lists: those that serve, and those that were fenced less than a session ago.

A broker that dies is fenced half a second later, and others lead at once. Apache Kafka would not notice before the end
of its session, and until then would go on to name it in Metadata. Clients count on that, for a broker that dies often
is back within seconds: librdkafka tears down what it has for a broker that an answer no longer names, and with it
requests that wait to be sent again; some of those are never asked anew, so that a consumer that was about to join waits
until its next regular metadata refresh, five minutes later.

So a broker that was fenced stays listed for a session. No client is sent to it: it leads and coordinates nothing. A
broker after a controlled shutdown is left out as soon as it is fenced, as in Kafka. A broker that starts
lists itself from its first answer on, since a client that asks it has its address already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.metadata.cluster_image import ClusterDelta


class ListedBrokers:
    def __init__(self, node_id: int, session_timeout_ms: int, now_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        # Fenced brokers that are listed all the same → until when, on the monotonic clock.
        self._until_ms: dict[int, int] = {node_id: now_ms + session_timeout_ms}

    def __repr__(self) -> str:
        return f"<ListedBrokers: {sorted(self._until_ms)} also while fenced>"

    def follow(self, delta: ClusterDelta, now_ms: int) -> None:
        for broker_id, broker in delta.changed_brokers.items():
            before = delta.image.brokers.get(broker_id)
            if broker is None or broker.in_controlled_shutdown:
                self._until_ms.pop(broker_id, None)
            elif broker.fenced and before is not None and not before.fenced:
                self._until_ms[broker_id] = now_ms + self._session_timeout_ms

    def is_listed(self, broker_id: int, *, is_fenced: bool, now_ms: int) -> bool:
        return not is_fenced or now_ms < self._until_ms.get(broker_id, now_ms)
