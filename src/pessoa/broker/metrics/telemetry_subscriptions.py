"""Which metrics each client should push, by the CLIENT_METRICS resources of the metadata (KIP-714). Pure.

A resource is a subscription: `metrics` are the beginnings of names, `interval.ms` is how often, `match` which clients:
conditions about what is known of a client (`MATCHERS`), all of which must hold for the whole of it. A client pushes the
metrics of all subscriptions that match it, in the shortest of their intervals; one that none matches pushes nothing and
asks again after the default interval.

    subscription id   CRC-32C of the metrics, as Java writes a HashSet of them, and the interval; XOR the Java hash of
                      the client instance's id. So a client that goes to another broker keeps its subscription

The expressions of `match` are RE2's: an operator who may alter configurations sets them, and clients send the texts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from pessoa.base.config_keys.client_metrics_keys import CLIENT_METRICS_CONFIGS, match_patterns
from pessoa.base.config_values import ConfigProblem
from pessoa.base.java_order import concurrent_hash_order, copied_hash_order, hash_order, string_hash, uuid_hash
from pessoa.records import checksum

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.base.linear_regex import LinearRegex

log = logging.getLogger("pessoa.broker")

ALL = "*"
DEFAULT_INTERVAL_MS = cast("int", CLIENT_METRICS_CONFIGS["interval.ms"].default)


class Wanted(NamedTuple):
    """The metrics that a client should push, and how often. One object for all clients that the same subscriptions
    match."""

    metrics: tuple[str, ...]
    interval_ms: int
    crc: int

    def subscription_id(self, instance_id: Uuid) -> int:
        """Return the subscription id of a client instance, a signed number as in the protocol."""
        value = self.crc ^ uuid_hash(instance_id)
        return value - (value >> 31 << 32)


class Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    # What the value of each of these must match; None: no client has it.
    patterns: Mapping[str, LinearRegex] | None

    def matches(self, attributes: Mapping[str, str]) -> bool:
        if self.patterns is None:
            return False
        return all(
            (value := attributes.get(about)) is not None and pattern.fullmatch(value) is not None
            for about, pattern in self.patterns.items()
        )


class Subscriptions:
    """The client metrics subscriptions of the cluster, by name; `version` is incremented by each change."""

    def __init__(self) -> None:
        self.version = 0
        self._by_name: dict[str, Subscription] = {}
        # By the names of those that match.
        self._wanted_by_names: dict[tuple[str, ...], Wanted] = {}

    def __repr__(self) -> str:
        return f"<Subscriptions {self.version}: {', '.join(self._by_name) or 'none'}>"

    def put(self, name: str, configs: Mapping[str, str]) -> None:
        """Set the configuration of a subscription; an empty one removes it."""
        if configs:
            self._by_name[name] = _parse(name, configs)
        elif self._by_name.pop(name, None) is None:
            return
        self.version += 1
        self._wanted_by_names.clear()

    def are_about(self, attribute: str) -> bool:
        """Return whether any subscription has a condition on this client attribute."""
        return any(attribute in (one.patterns or ()) for one in self._by_name.values())

    def wanted_of(self, attributes: Mapping[str, str]) -> Wanted:
        """Return the metrics that a client with these attributes should push."""
        names = tuple(name for name, one in self._by_name.items() if one.matches(attributes))
        found = self._wanted_by_names.get(names)
        if found is None:
            found = self._wanted_by_names[names] = self._combine(names)
        return found

    def _combine(self, names: tuple[str, ...]) -> Wanted:
        """Return the union of these subscriptions, in the order of Apache's tables: the subscriptions are in a
        ConcurrentHashMap, their metrics in HashSets."""
        matching = [self._by_name[name] for name in concurrent_hash_order(names, string_hash)]
        metrics = {
            metric: None for one in matching for metric in copied_hash_order(dict.fromkeys(one.metrics), string_hash)
        }
        ordered = (ALL,) if ALL in metrics else tuple(hash_order(metrics, string_hash))
        interval_ms = min([DEFAULT_INTERVAL_MS, *(one.interval_ms for one in matching)])
        crc = checksum.crc32c(f"[{', '.join(ordered)}]{interval_ms}".encode("utf-8", "surrogatepass"))
        return Wanted(ordered, interval_ms, crc)


def _parse(name: str, configs: Mapping[str, str]) -> Subscription:
    values = {one.name: one.default for one in CLIENT_METRICS_CONFIGS}
    patterns: Mapping[str, LinearRegex] | None = None
    try:
        values |= {key: CLIENT_METRICS_CONFIGS.parse(key, text) for key, text in configs.items()}
        patterns = match_patterns(configs.get("match", ""))
    except ConfigProblem as problem:
        # Our controllers refuse such a thing; one of Apache Kafka takes expressions that only Java knows.
        log.warning("the client metrics subscription %r matches no client: %s", name, problem)
    return Subscription(cast("tuple[str, ...]", values["metrics"]), cast("int", values["interval.ms"]), patterns)
