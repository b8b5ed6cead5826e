"""The same quotas and requests on Apache Kafka and here: the same requests are throttled, with the same errors.

Every request has a connection of its own, because a muted connection would make the script wait. The throttle time
depends on when requests arrive, so it is not compared. Sizes are far from the limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from pessoa.testing import Broker
from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse
from tests.apache.broker import ApacheKafka
from tests.cluster.conftest import until
from tests.support.crash_wire import Closed
from tests.support.quota_clients import TOPIC, NamedWire, records_in

pytestmark = pytest.mark.apache

PRODUCE, FETCH, REQUEST, MUTATIONS, CONNECTIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
USER = "ANONYMOUS"
LEVELS: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("user", USER), ("client-id", "c")),
    (("user", USER), ("client-id", None)),
    (("user", USER),),
    (("user", None), ("client-id", "c")),
    (("user", None), ("client-id", None)),
    (("user", None),),
    (("client-id", "c"),),
    (("client-id", None),),
)
TIGHT, LOOSE = 1_000.0, 1e9


class Side:
    """A broker, to which every request is sent on a new connection."""

    def __init__(self, port: int) -> None:
        self.port = port

    def wire(self, client_id: str) -> NamedWire:
        return NamedWire(self.port, client_id)

    def alter(self, values: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float | None]]) -> None:
        with self.wire("admin") as wire:
            wire.alter_quotas(values)

    def limit(self, client_id: str, key: str, value: float | None) -> None:
        self.alter({(("client-id", client_id),): {key: value}})

    def is_throttled(self, client_id: str, size: int) -> bool:
        with self.wire(client_id) as wire:
            return wire.produce(size) > 0


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    with ApacheKafka() as apache, Broker() as ours:
        both = [Side(apache.port), Side(ours.port)]
        for side in both:
            with side.wire("admin") as wire:
                assert wire.create_topics({TOPIC: 1}).topics[0].error_code == 0
            until(partial(_has_leader, side), "a leader of the topic")
        yield both


def _has_leader(side: Side) -> bool:
    try:
        return not side.is_throttled("admin", 100)
    except AssertionError:
        return False


def _is_seen(side: Side, is_throttled: bool) -> bool:
    return side.is_throttled("c", 100_000) is is_throttled


def test_clients_share_a_user_quota_and_not_a_quota_of_user_and_client_id(sides: list[Side]) -> None:
    # Runs before the tests in which clients of this user send much more: Apache remembers what a user has sent.
    def script(side: Side) -> list[bool]:
        found = []
        side.alter({(("user", USER),): {PRODUCE: 100_000.0}})
        time_to_learn(side)
        found += [side.is_throttled(client, 400_000) for client in ("a", "b", "c2", "d")]
        side.alter({(("user", USER),): {PRODUCE: None}, (("user", USER), ("client-id", None)): {PRODUCE: 100_000.0}})
        time_to_learn(side)
        found += [side.is_throttled(client, 800_000) for client in ("e", "f", "e", "g")]
        side.alter({(("user", USER), ("client-id", None)): {PRODUCE: None}})
        return found

    expected = [False, False, True, True, False, False, True, False]
    assert [script(side) for side in sides] == [expected] * 2


def test_a_quota_of_each_level_takes_precedence_over_those_of_lower_levels(sides: list[Side]) -> None:
    """Set a limit at one level and the opposite limit at all levels below: the throttling shows which one applies."""
    seen: list[list[tuple[int, bool]]] = []
    for side in sides:
        found: list[tuple[int, bool]] = []
        for level in range(len(LEVELS)):
            for is_tight in (True, False):
                here, below = (TIGHT, LOOSE) if is_tight else (LOOSE, TIGHT)
                above = {entity: {PRODUCE: None} for entity in LEVELS[:level]}
                side.alter(
                    {**above, LEVELS[level]: {PRODUCE: here}, **{one: {PRODUCE: below} for one in LEVELS[level + 1 :]}}
                )
                # The broker applies the change a moment later.
                until(partial(_is_seen, side, is_tight), f"level {level}")
                found.append((level, side.is_throttled("c", 100_000)))
        side.alter({entity: {PRODUCE: None} for entity in LEVELS})
        until(partial(_is_seen, side, False), "no quota")
        seen.append(found)
    assert seen[0] == seen[1] == [(level, is_tight) for level in range(8) for is_tight in (True, False)]


def time_to_learn(side: Side) -> None:
    """Wait until the broker has applied a later quota, one of the highest precedence, and so all quotas before it."""
    canary = (("user", USER), ("client-id", "canary"))
    side.alter({canary: {PRODUCE: 1.0}})
    until(lambda: side.is_throttled("canary", 1_000), "the quota of the canary")
    side.alter({canary: {PRODUCE: None}})


@pytest.mark.parametrize("version", [4, 12])
def test_the_same_fetches_as_on_apache_are_throttled_and_empty(sides: list[Side], version: int) -> None:
    def script(side: Side) -> list[tuple[bool, int]]:
        client = f"reader-{version}"
        with side.wire("writer") as wire:
            for _ in range(12):
                wire.produce(100_000)
        side.limit(client, FETCH, 100_000.0)
        time_to_learn(side)
        found = []
        with side.wire("writer") as wire:
            end = wire.fetch(0, version).responses[0].partitions[0].high_watermark
        for size in (400_000, 400_000, 400_000, 100_000):
            with side.wire(client) as wire:
                response = wire.fetch(end - 12, version, max_bytes=size)
                found.append((response.throttle_time_ms > 0, records_in(response)))
        side.limit(client, FETCH, None)
        return found

    apaches, ours = (script(side) for side in sides)
    assert apaches == ours
    assert [throttled for throttled, _ in ours] == [False, False, True, False]


def test_a_request_time_quota_throttles_by_at_most_one_second(sides: list[Side]) -> None:
    for side in sides:
        side.limit("busy", REQUEST, 0.01)
        time_to_learn(side)
        # The number of requests until throttling depends on the machine.
        throttled_ms = [0]
        while throttled_ms[-1] == 0 and len(throttled_ms) < 1_000:
            with side.wire("busy") as wire:
                throttled_ms.append(wire.ask(MetadataRequest(topics=None), MetadataResponse, 12).throttle_time_ms)
        assert 0 < throttled_ms[-1] <= 1_000
        side.limit("busy", REQUEST, None)


def mutate(side: Side) -> list[tuple[str, list[int], bool]]:
    """Send mutations above their quota and return their results; 200 partitions overdraw the bucket for minutes."""
    done: list[tuple[str, list[int], bool]] = []

    def note(what: str, client: str, response: Any) -> None:
        results = getattr(response, "topics", None) or getattr(response, "results", None) or response.responses
        done.append((f"{client}: {what}", [one.error_code for one in results], response.throttle_time_ms > 0))

    for client in ("strict", "older", "asking", "deleting", "growing", "growing-older", "deleting-older", "wrong"):
        side.limit(client, MUTATIONS, 1.0)
    time_to_learn(side)
    with side.wire("free") as wire:
        names = {f"free-{number}": 1 for number in range(8)}
        note("create", "free", wire.create_topics({**names, "large-1": 200, "large-2": 200}))
    for client, what, arguments, version in (
        ("strict", "create", {"s1": 5, "s2": 200, "s3": 1}, 7),
        ("strict", "create", {"s4": 1}, 6),
        ("strict", "create", {"s5": 1}, 5),
        ("strict", "delete", ["free-0"], 6),
        ("strict", "grow", {"free-1": 3}, 3),
        ("strict", "delete", ["free-2"], 4),
        ("strict", "grow", {"free-1": 3}, 2),
        ("older", "create", {"o1": 5}, 5),
        ("older", "create", {"o2": 200, "o3": 1}, 5),
        ("older", "create", {"o4": 1}, 7),
        # One topic per request: Apache deletes the topics of a request in the order of their ids' hashes.
        ("deleting", "delete", ["large-1"], 6),
        ("deleting", "delete", ["free-3"], 6),
        ("deleting", "delete", ["free-4"], 5),
        ("deleting-older", "delete", ["large-2", "free-5"], 4),
        ("growing", "grow", {"free-6": 200, "free-7": 2}, 3),
        ("growing-older", "grow", {"free-6": 400, "free-7": 2}, 2),
        ("wrong", "create", {"s1": 300}, 7),
        ("wrong", "grow", {"free-6": 1}, 3),
        ("wrong", "create", {"w1": 1}, 7),
    ):
        with side.wire(client) as wire:
            acts: dict[str, Callable[..., Any]] = {
                "create": wire.create_topics,
                "delete": wire.delete_topics,
                "grow": wire.create_partitions,
            }
            note(f"{what} v{version}", client, acts[what](arguments, version))
    with side.wire("asking") as wire:
        note("validate", "asking", wire.create_topics({"v1": 200}, validate_only=True))
    with side.wire("asking") as wire:
        note("create", "asking", wire.create_topics({"v2": 1}))
    return done


def test_the_same_controller_mutations_as_on_apache_are_refused_and_throttled(sides: list[Side]) -> None:
    apaches, ours = (mutate(side) for side in sides)
    assert ours == apaches


def test_connections_above_the_connection_rate_quota_of_an_ip_are_closed_unserved(sides: list[Side]) -> None:
    for side in sides:
        admin = side.wire("admin")
        admin.alter_quotas({(("ip", "127.0.0.1"),): {CONNECTIONS: 1.0}})
        served: list[bool] = []
        deadline = time.monotonic() + 60
        while all(served) and time.monotonic() < deadline:
            with side.wire("c") as wire:
                try:
                    wire.ask(MetadataRequest(topics=[]), MetadataResponse, 12)
                    served.append(True)
                except Closed:
                    served.append(False)
        assert served[:5] == [True] * 5
        assert served[-1] is False
        admin.alter_quotas({(("ip", "127.0.0.1"),): {CONNECTIONS: None}})
        admin.close()
