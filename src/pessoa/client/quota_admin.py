"""Client quotas and SCRAM credentials: what the cluster knows about users, client ids and addresses."""

from __future__ import annotations

import hashlib
import secrets
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from pessoa.client.client_errors import RequestFailed, check
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pessoa.client.cluster_client import Cluster

# From the type of an entity (user, client-id, ip) to its name; None is the default one.
Entity = dict[str, str | None]

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_SALT_BYTES = 20


class Match(NamedTuple):
    """A filter for the entities of a type: all, the default entity, or one by its name."""

    kind: str
    name: str | None = None
    is_any: bool = False


class Mechanism(IntEnum):
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        return self.name.replace("_", "-")

    @property
    def algorithm(self) -> str:
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"


class Credential(NamedTuple):
    mechanism: Mechanism
    iterations: int
    password: str


def describe_quotas(cluster: Cluster, matches: Sequence[Match]) -> list[tuple[Entity, dict[str, float]]]:
    """Return the quotas of the matching entities that consist of exactly these types."""
    from pessoa.wire.api.describe_client_quotas import (
        ComponentData,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )

    components = [
        ComponentData(
            entity_type=match.kind,
            match_type=_ANY if match.is_any else _DEFAULT if match.name is None else _EXACT,
            match=match.name,
        )
        for match in matches
    ]
    request = DescribeClientQuotasRequest(components=components, strict=True)
    answer = cluster.ask(request, DescribeClientQuotasResponse, name="describeClientQuotas")
    check(answer.error_code, answer.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def alter_quotas(cluster: Cluster, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Set quotas; None removes one."""
    from pessoa.wire.api.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        EntityData,
        EntryData,
        OpData,
    )

    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    answer = cluster.ask(
        AlterClientQuotasRequest(entries=[entry], validate_only=False),
        AlterClientQuotasResponse,
        name="alterClientQuotas",
    )
    for result in answer.entries:
        check(result.error_code, result.error_message)


def describe_credentials(cluster: Cluster, users: Sequence[str] | None) -> dict[str, list[tuple[Mechanism, int]]]:
    """Return the SCRAM mechanisms and iterations of these users, or of all; a user without credentials is left out."""
    from pessoa.wire.api.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        UserName,
    )

    wanted = None if users is None else [UserName(name=user) for user in users]
    answer = cluster.ask(
        DescribeUserScramCredentialsRequest(users=wanted),
        DescribeUserScramCredentialsResponse,
        name="describeUserScramCredentials",
    )
    check(answer.error_code, answer.error_message)
    found = {}
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        check(result.error_code, result.error_message)
        found[result.user] = [(Mechanism(info.mechanism), info.iterations) for info in result.credential_infos]
    return found


def alter_credentials(cluster: Cluster, user: str, set_: Iterable[Credential], removed: Iterable[Mechanism]) -> None:
    from pessoa.security.sasl.scram_keys import text_salt
    from pessoa.wire.api.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )

    upsertions = []
    for one in set_:
        # As Kafka's tools make them, so that a salt does not tell which tool made it, nor that its user exists.
        salt = text_salt(secrets.token_bytes(_SALT_BYTES))
        salted = hashlib.pbkdf2_hmac(one.mechanism.algorithm, one.password.encode(), salt, one.iterations)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user, mechanism=one.mechanism, iterations=one.iterations, salt=salt, salted_password=salted
            )
        )
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=user, mechanism=mechanism) for mechanism in removed],
        upsertions=upsertions,
    )
    answer = cluster.ask(request, AlterUserScramCredentialsResponse, name="alterUserScramCredentials")
    for result in answer.results:
        if result.error_code:
            raise RequestFailed(result.error_code, result.error_message)
