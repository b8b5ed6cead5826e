"""The part of `kafka-configs` that is about users, clients and addresses: their quotas and SCRAM credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.java_order import hash_order, string_hash
from pessoa.cli.command_line import UsageError
from pessoa.client.quota_admin import (
    Credential,
    Match,
    Mechanism,
    alter_credentials,
    alter_quotas,
    describe_credentials,
    describe_quotas,
)

if TYPE_CHECKING:
    from pessoa.cli.configs import Target
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.quota_admin import Entity

_ENTITY_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
_SHOWN_TYPES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_QUOTAS = {
    "users": ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "clients": ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "ips": ("connection_creation_rate",),
}
_MECHANISMS = {mechanism.text: mechanism for mechanism in Mechanism}
_FEWEST_ITERATIONS = 4096


def describe(cluster: Cluster, targets: list[Target]) -> None:
    matches = [Match(_ENTITY_TYPES[kind], name or None, name is None) for kind, name in targets]
    found = describe_quotas(cluster, matches)
    for entity, values in hash_order(found, lambda one: _entity_hash(one[0]), capacity=len(found)):
        shown = ", ".join(
            f"{key}={_number(values[key])}" for key in hash_order(values, string_hash, capacity=len(values))
        )
        print(f"Quota configs for {_entity_text(entity)} are {shown}")
    # Only a user by himself has credentials, and the default user has none.
    if [target.kind for target in targets] == ["users"] and targets[0].name != "":
        users = None if targets[0].name is None else [targets[0].name]
        for user, credentials in describe_credentials(cluster, users).items():
            shown = ", ".join(f"{mechanism.text}=iterations={count}" for mechanism, count in credentials)
            print(f"SCRAM credential configs for user-principal '{user}' are {shown}")


def _entity_hash(entity: Entity) -> int:
    """Return the hash that Java gives to an object with one field, which is a map."""
    entries = sum(string_hash(kind) ^ (string_hash(name) if name is not None else 0) for kind, name in entity.items())
    return (31 + entries) & 0xFFFF_FFFF


def _entity_text(entity: Entity) -> str:
    parts = []
    for kind in ("user", "client-id", "ip"):
        if kind in entity:
            name = entity[kind]
            parts.append(f"the default {_SHOWN_TYPES[kind]}" if name is None else f"{_SHOWN_TYPES[kind]} '{name}'")
    return ", ".join(parts)


def _number(value: float) -> str:
    """Return the number as Java prints a double."""
    if value != 0 and not 1e-3 <= abs(value) < 1e7:
        mantissa, _, exponent = f"{value!r}".partition("e")
        if not exponent:
            from decimal import Decimal

            digits = Decimal(repr(value)).normalize()
            power = digits.adjusted()
            return f"{digits.scaleb(-power).normalize():f}{'' if digits.scaleb(-power) % 1 else '.0'}E{power}"
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
    return repr(float(value))


def alter(cluster: Cluster, targets: list[Target], added: dict[str, str], removed: list[str]) -> None:
    kinds = [target.kind for target in targets]
    is_user = kinds == ["users"]
    credentials = {key: added[key] for key in added if key in _MECHANISMS}
    removed_mechanisms = [key for key in removed if key in _MECHANISMS]
    if (credentials or removed_mechanisms) and is_user:
        name = targets[0].name
        if not name:
            raise UsageError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
                "--bootstrap-server."
            )
        made = [_credential(_MECHANISMS[key], text) for key, text in credentials.items()]
        _check_names(kinds, set(added) - set(credentials), set(removed) - set(removed_mechanisms))
        alter_credentials(cluster, name, made, [_MECHANISMS[key] for key in removed_mechanisms])
        added = {key: added[key] for key in added if key not in credentials}
        removed = [key for key in removed if key not in removed_mechanisms]
        if not added and not removed:
            return
    _check_names(kinds, set(added), set(removed))
    values: dict[str, float | None] = {key: _rate(key, text) for key, text in added.items()}
    values |= dict.fromkeys(removed)
    entity: Entity = {_ENTITY_TYPES[kind]: name or None for kind, name in targets}
    alter_quotas(cluster, entity, values)


def _check_names(kinds: list[str], added: set[str], removed: set[str]) -> None:
    known = {name for kind in kinds for name in _QUOTAS[kind]}
    for names, word in ((added, "added"), (removed, "deleted")):
        if unknown := sorted(names - known):
            what = "Only quota and SCRAM credential configs" if kinds == ["users"] else "Only quota configs"
            raise UsageError(
                f"{what} can be {word} for '{kinds[0]}' using --bootstrap-server. Unexpected config names: "
                f"Set({', '.join(unknown)})"
            )


def _rate(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"Cannot parse quota configuration value for {key}: {text}") from None


def _credential(mechanism: Mechanism, text: str) -> Credential:
    """Return the credential of `iterations=8192,password=secret`, of which the first may be left out."""
    properties = dict(part.partition("=")[::2] for part in text.split(","))
    password = properties.get("password")
    if not password or set(properties) - {"password", "iterations"}:
        raise UsageError(f"Invalid credential property {mechanism.name}={text}")
    iterations = int(properties.get("iterations", _FEWEST_ITERATIONS))
    if iterations < _FEWEST_ITERATIONS:
        raise UsageError(
            f"Iterations {iterations} is less than the minimum {_FEWEST_ITERATIONS} required for {mechanism.text}"
        )
    return Credential(mechanism, iterations, password)
