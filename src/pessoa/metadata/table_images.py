"""The flat tables of the metadata log: features, configurations, quotas, credentials, tokens, ACLs, producer ids.

Each is a mapping that one kind of record sets and one kind removes. A table is never changed: the delta copies it once
when the first record touches it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.base.ids import Uuid

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
# Of the name of a BROKER: ids are int32. Clients send names of any length, and int() raises on thousands of digits.
MAX_BROKER_ID_DIGITS = 10


class ConfigResource(IntEnum):
    """The types of resources that have a configuration. The name "" of a BROKER is the default of all brokers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    # By name, `metadata.version` among them; a feature at level 0 is not here.
    finalized: Mapping[str, int] = field(default_factory=dict)
    # Said by the quorum's own control records, not by a metadata record.
    kraft_version: int = 0

    @property
    def metadata_version(self) -> int:
        """The finalized level of metadata.version; 0 before the bootstrap records are loaded."""
        return self.finalized.get(METADATA_VERSION, 0)

    def level(self, name: str) -> int:
        return self.finalized.get(name, 0)


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    by_resource: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the settings of a resource; empty if it has none."""
        return self.by_resource.get((resource_type, name), _NOTHING)

    def names(self, resource_type: int) -> list[str]:
        """Return the names of the resources of a type that have a configuration of their own."""
        return [name for kind, name in self.by_resource if kind == resource_type]


# A quota holds for a user, a client id, an address or a combination: ((type, name or None for the default), …), sorted.
QuotaEntity = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class QuotasImage:
    by_entity: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramImage:
    # (user, mechanism)
    credentials: Mapping[tuple[str, int], ScramCredential] = field(default_factory=dict)


class DelegationToken(NamedTuple):
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DelegationTokensImage:
    by_id: Mapping[str, DelegationToken] = field(default_factory=dict)


class Acl(NamedTuple):
    """An access control entry: a principal may or may not do an operation with a resource, from a host. The numbers
    are Kafka's."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class AclsImage:
    by_id: Mapping[Uuid, Acl] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    next_producer_id: int = 0


_NOTHING: Mapping[str, str] = {}
