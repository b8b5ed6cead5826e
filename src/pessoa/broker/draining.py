"""How clients leave a broker that stops, before it closes its ports.

    other brokers lead what it led (`Registration.leave`)
    ──▶ `wait_until_unlisted`      no other broker names it in Metadata: no client is sent here any more
    ──▶ `wait_until_clients_left`  it still answers: NOT_LEADER_OR_FOLLOWER and the leader, NOT_COORDINATOR, Metadata
    ──▶ `end_connections`          those that are left are ended, and new ones still served
    ──▶ the ports are closed

A client learns from the response to its next request that it has to go to another broker. If the ports were closed as
soon as others lead, that request would find a closed connection or a port that refuses it. So a broker serves on until
its clients have turned silent: a busy client sends a request every few milliseconds, and does not come back once it has
been sent to another broker. That costs a stop about a second, and Apache Kafka does not do it.

A client that is silent for long, and then sends again, finds a closed connection, as in Kafka; and asks for metadata.
librdkafka asks another broker for it in the moment in which its connection ends, and connects again in the same moment;
with the answer it forgets the broker. So the ports outlive the connections by a moment, or it would be refused.

All waits are bounded: a client that asks for ever, or a broker that is stuck, does not keep it from stopping.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed
from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.base.clock import Clock
    from pessoa.broker.held_listener import HeldListener
    from pessoa.broker.peers import Peers
    from pessoa.broker.services import BrokerServices
    from pessoa.net.listener import Listener

# The newest record of the metadata log reaches all brokers within milliseconds, or, on a machine that is busy, later.
_UNLISTED_MS = 3_000
# Longer than the pause that clients make before they try again (`retry.backoff.ms`: 100 ms in Java and in librdkafka).
_SILENCE_MS = 300
# For one that has asked nothing since the stop began: it may wait for the new leader of another partition.
_UNTOLD_SILENCE_MS = 1_000
# For clients that do not leave, because they ask this very broker again and again, or because the machine is busy.
_CLIENTS_LEAVE_MS = 5_000
# For those that come back before they have heard that this broker is not in the metadata any more.
_RETURN_MS = 300
_RETURNING_MS = 1_000
_LOOK_MS = 20
_PURPOSE = "farewell"


def active_others(broker: BrokerServices) -> list[int]:
    """Return the other brokers that are neither fenced nor shutting down: those that can take over."""
    return [
        one.id
        for one in broker.image.cluster.brokers.values()
        if one.id != broker.node_id and not one.fenced and not one.in_controlled_shutdown
    ]


async def wait_until_unlisted(broker: BrokerServices, peers: Peers) -> None:
    """Return when no broker that answers, this one included, lists this broker in Metadata any more, or when the time
    is over."""
    await asyncio.gather(
        broker.progress.wait_until(lambda: _is_fenced(broker), _UNLISTED_MS),
        *(_wait_for(broker, peers, other) for other in active_others(broker)),
    )


def _is_fenced(broker: BrokerServices) -> bool:
    own = broker.image.cluster.brokers.get(broker.node_id)
    return own is None or own.fenced


async def _wait_for(broker: BrokerServices, peers: Peers, other: int) -> None:
    deadline_ms = broker.clock.monotonic_ms() + _UNLISTED_MS
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    while (left_ms := deadline_ms - broker.clock.monotonic_ms()) > 0:
        channel = peers.channel_to(other, _PURPOSE)
        if channel is None:
            return
        try:
            response = await channel.send(request, request.versions.last, left_ms)
        except ChannelFailed:
            # It has stopped as well, or cannot be reached; nor can those whom it would send here.
            return
        assert isinstance(response, MetadataResponse)
        if all(one.node_id != broker.node_id for one in response.brokers):
            return
        await broker.clock.wait_ms(_LOOK_MS)


async def wait_until_clients_left(
    broker: BrokerServices, listeners: Sequence[HeldListener], clock: Clock, began_ms: int
) -> None:
    """Return when no connection waits for a response and none has sent a request for a moment; at once if no other
    broker can take the clients over. `began_ms` is when the stop began, on the monotonic clock."""
    deadline_ms = clock.monotonic_ms() + _CLIENTS_LEAVE_MS
    while active_others(broker) and clock.monotonic_ms() < deadline_ms:
        if all(_have_left(held, began_ms) for held in listeners):
            return
        await clock.wait_ms(_LOOK_MS)


def _have_left(held: HeldListener, began_ms: int) -> bool:
    return all(
        silence_ms >= (_SILENCE_MS if active_at_ms >= began_ms else _UNTOLD_SILENCE_MS)
        for active_at_ms, silence_ms in held.listener.silences_ms()
    )


async def end_connections(broker: BrokerServices, listeners: Sequence[HeldListener], clock: Clock) -> None:
    """Close the connections, and return when their clients have noticed it and no new connection sends anything; at
    once if no other broker can take the clients over."""
    if not active_others(broker):
        return
    listening = [held.listener for held in listeners]
    ended = {one for listener in listening for one in listener.connections}
    for listener in listening:
        listener.end_connections()
    began_ms = seen_ms = clock.monotonic_ms()
    while (now_ms := clock.monotonic_ms()) - began_ms < _RETURNING_MS:
        if any(ended & listener.connections for listener in listening):
            seen_ms = now_ms
        elif now_ms - seen_ms >= _RETURN_MS and all(map(_are_silent, listening)):
            return
        await clock.wait_ms(_LOOK_MS)


def _are_silent(listener: Listener) -> bool:
    return all(silence_ms >= _RETURN_MS for _, silence_ms in listener.silences_ms())
