"""Which of the configured limits holds for a client, and with whom it is shared.

A limit is configured for an entity: a user, a client id, both together, and each of them by name or as the default of
its kind. For a client the first of these that has the key holds, for each key by itself (KIP-55):

    level   entity                              one measure for each
    1       user u, client id c                 user and client id
    2       user u, default client id           user and client id
    3       user u                              user
    4       default user, client id c           user and client id
    5       default user, default client id     user and client id
    6       default user                        user
    7       client id c                         client id
    8       default client id                   client id

So the limit of a user is shared by all of its clients, and the default limit of users is what every user has.
Addresses have a limit of their own, by address or by default (KIP-612).

Names are as the metadata log has them. Kafka's metrics show user names in URL encoding; entities do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple, TypeAlias

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)

# As the metadata image has them: ((kind, name or None for the default), …), sorted by kind → key → limit.
Entity: TypeAlias = tuple[tuple[str, str | None], ...]
Configured: TypeAlias = Mapping[Entity, Mapping[str, float]]

# Of the entity at each level: whether its user and its client id are named (True), the default (False), or no part of
# it (None).
_LEVELS: tuple[tuple[bool | None, bool | None], ...] = (
    (True, True),
    (True, False),
    (True, None),
    (False, True),
    (False, False),
    (False, None),
    (None, True),
    (None, False),
)


class Limit(NamedTuple):
    """A limit, and the clients whose use is added up for it: those of `user` and `client_id`; None stands for all."""

    value: float
    user: str | None
    client_id: str | None


class Limits:
    """The quotas of one metadata image, by the precedence of their entities."""

    def __init__(self, configured: Configured) -> None:
        self._configured = configured
        # The levels that any entity is on, for each key: mostly one or two of the eight.
        self._levels = {key: _levels_of(key, configured) for key in CLIENT_KEYS}
        self._limits_of_addresses = {
            _address(entity[0][1]): values[CONNECTION_CREATION_RATE]
            for entity, values in configured.items()
            if entity[0][0] == IP and CONNECTION_CREATION_RATE in values
        }

    def __repr__(self) -> str:
        return f"<Limits of {len(self._configured)} entities>"

    def has(self, key: str) -> bool:
        """Return whether any entity has a limit for this quota key."""
        return bool(self._levels[key])

    @property
    def has_addresses(self) -> bool:
        return bool(self._limits_of_addresses)

    def of_client(self, key: str, user: str, client_id: str) -> Limit | None:
        for of_user, of_client in self._levels[key]:
            entity = _entity(of_user, user, of_client, client_id)
            values = self._configured.get(entity)
            if values is not None and key in values:
                return Limit(values[key], None if of_user is None else user, None if of_client is None else client_id)
        return None

    def of_address(self, address: str) -> float | None:
        """Return how many connections per second the IP address may open; None if it has no limit."""
        limits = self._limits_of_addresses
        return limits[address] if address in limits else limits.get(None)


def _address(name: str | None) -> str | None:
    """Return an IP address as a socket spells it. A name that is no address is returned unchanged, and matches no
    connection."""
    try:
        return None if name is None else str(ip_address(name))
    except ValueError:
        return name


def _entity(of_user: bool | None, user: str, of_client: bool | None, client_id: str) -> Entity:
    parts: list[tuple[str, str | None]] = []
    if of_client is not None:
        parts.append((CLIENT_ID, client_id if of_client else None))
    if of_user is not None:
        parts.append((USER, user if of_user else None))
    return tuple(parts)


def _levels_of(key: str, configured: Configured) -> tuple[tuple[bool | None, bool | None], ...]:
    found = {_level_of(dict(entity)) for entity, values in configured.items() if key in values}
    return tuple(level for level in _LEVELS if level in found)


def _level_of(parts: Mapping[str, str | None]) -> tuple[bool | None, bool | None]:
    return (
        parts[USER] is not None if USER in parts else None,
        parts[CLIENT_ID] is not None if CLIENT_ID in parts else None,
    )
