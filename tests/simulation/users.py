"""The users of a secured cluster: their ACLs, their passwords, and the configuration of the nodes for them.

    CLIENTS     9092  SCRAM-SHA-256; credentials are in the metadata log, the first ones are written by formatting
    NODES       9094  PLAIN, between brokers
    CONTROLLER  9093  PLAIN

Nodes are super users, since they need their rights before any ACL is read. Every client has a user, and each user may
do what its clients do and nothing else: an entry that is missing from `grants` fails seeds at once. The intruder is a
user on all listeners, and may do nothing.

Passwords have generations, so that they can be changed; salts follow from names, so that each key is derived once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pessoa.base.ids import Uuid
from pessoa.metadata.table_images import Acl
from pessoa.security.acl import (
    ALLOW,
    ALTER,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WILDCARD,
    WRITE,
)
from pessoa.security.sasl.scram_keys import (
    MIN_ITERATIONS,
    NUMBERS,
    ScramKeys,
    keys_of_password,
    salted_password,
)
from pessoa.wire.stored.metadata_records import AccessControlEntryRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.security.acl import Operation, ResourceType
    from pessoa.wire.schema import Message

MECHANISM = "SCRAM-SHA-256"
MECHANISM_NUMBER = NUMBERS[MECHANISM]
NODE_PORT = 9094
# The intruder's password on the listeners of nodes.
INTRUDER, INTRUDER_PASSWORD = "eve", "eve-of-nodes"
WARDEN = "warden"
_ADMIN = "admin"
# The user of the members of a share group.
SHARER = "sharer"
# Prefix of a client's name → its user; each producer has a user of its own.
_SHARED_USERS = {
    "r": "reader",
    "f": "reader",
    "d": "reader",
    "g": "member",
    "c": "copier",
    "l": "copier",
    "s": SHARER,
}
_PRODUCERS = ("p0", "p1", "x0", "x1")
USERS = (*_PRODUCERS, "reader", "member", "copier", _ADMIN, WARDEN, INTRUDER)
_ITSELF = frozenset((*_PRODUCERS, _ADMIN, WARDEN, INTRUDER))

# The secret from which salts and the HMACs of tokens are derived.
_TOKEN_SECRET = "of all nodes"
_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="node" password="of-a-node" user_node="of-a-node" user_{INTRUDER}="{INTRUDER_PASSWORD}";'
)


def user_of(client: str) -> str:
    """Return the user as which a client logs in."""
    return client if client in _ITSELF else _SHARED_USERS.get(client[0], _ADMIN)


def principal_of(client: str) -> str:
    return f"User:{user_of(client)}"


# ACLs.


def _grant(user: str, operation: Operation, kind: ResourceType, name: str, pattern: int = LITERAL) -> Acl:
    return Acl(kind, name, pattern, f"User:{user}", WILDCARD, operation, ALLOW)


def grants(topic: str, copies: str, *, has_shares: bool) -> list[Acl]:
    of_shares = [_grant(SHARER, READ, TOPIC, topic), _grant(SHARER, READ, GROUP, "shares")]
    return [
        *(_grant(user, WRITE, TOPIC, topic) for user in _PRODUCERS),
        *(_grant(user, WRITE, TRANSACTIONAL_ID, "tx", PREFIXED) for user in _PRODUCERS if user.startswith("x")),
        _grant("reader", READ, TOPIC, topic),
        _grant("reader", READ, TOPIC, copies),
        _grant("member", READ, TOPIC, topic),
        _grant("member", READ, GROUP, "g"),
        _grant("member", READ, GROUP, "consumers"),
        _grant("copier", READ, TOPIC, topic),
        _grant("copier", WRITE, TOPIC, copies),
        _grant("copier", READ, GROUP, "copiers"),
        _grant("copier", WRITE, TRANSACTIONAL_ID, "c", PREFIXED),
        _grant(_ADMIN, CREATE, CLUSTER, CLUSTER_NAME),
        _grant(_ADMIN, ALTER, CLUSTER, CLUSTER_NAME),
        _grant(_ADMIN, DESCRIBE, CLUSTER, CLUSTER_NAME),
        _grant(_ADMIN, DELETE, TOPIC, "extra", PREFIXED),
        # The response to CreateTopics contains the configuration of the topic.
        _grant(_ADMIN, DESCRIBE_CONFIGS, TOPIC, WILDCARD),
        _grant(WARDEN, ALTER, CLUSTER, CLUSTER_NAME),
        *(of_shares if has_shares else ()),
    ]


def first_records(entries: Sequence[Acl]) -> list[Message]:
    """Return the records with which the metadata log begins: all users and their ACLs."""
    sharers = [SHARER] if any(entry.principal == f"User:{SHARER}" for entry in entries) else []
    records: list[Message] = [_credential(user) for user in (*USERS, *sharers)]
    for number, entry in enumerate(entries):
        records.append(AccessControlEntryRecord(id=Uuid.of(3_000_000 + number), **entry._asdict()))
    return records


# Passwords.


def password_of(user: str, generation: int) -> str:
    return f"{user}-{generation}"


def salt_of(user: str, generation: int) -> bytes:
    return f"salt-of-{user}-{generation}".encode()


@lru_cache(maxsize=1024)
def salted(algorithm: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return `salted_password(…)`, cached: it takes a millisecond, and all seeds have the same users."""
    return salted_password(algorithm, password, salt, iterations)


@lru_cache(maxsize=1024)
def stored_key_of(user: str, generation: int) -> bytes:
    return _keys(user, generation).stored_key


@lru_cache(maxsize=1024)
def _keys(user: str, generation: int) -> ScramKeys:
    return keys_of_password(MECHANISM, password_of(user, generation), salt_of(user, generation), MIN_ITERATIONS)


def _credential(user: str) -> UserScramCredentialRecord:
    salt, stored_key, server_key, iterations = _keys(user, 0)
    return UserScramCredentialRecord(
        name=user,
        mechanism=MECHANISM_NUMBER,
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=iterations,
    )


# Configuration of nodes.


def secured_listeners(node_id: int, roles: str, controller_port: int, client_port: int) -> str:
    of_roles = {
        "broker": [f"CLIENTS://n{node_id}:{client_port}", f"NODES://n{node_id}:{NODE_PORT}"],
        "controller": [f"CONTROLLER://n{node_id}:{controller_port}"],
    }
    return ",".join(one for role in roles.split(",") for one in of_roles[role])


def security_settings(roles: str, reauth_ms: int) -> dict[str, str]:
    """Return the security settings of a node. After `reauth_ms` every session has to be renewed; 0: never."""
    names = ["controller", *(["nodes", "clients"] if "broker" in roles else [])]
    of_listeners = {}
    for name in names:
        mechanism = MECHANISM if name == "clients" else "PLAIN"
        of_listeners[f"listener.name.{name}.sasl.enabled.mechanisms"] = mechanism
        if mechanism == "PLAIN":
            of_listeners[f"listener.name.{name}.plain.sasl.jaas.config"] = _JAAS
    return {
        "listener.security.protocol.map": ",".join(f"{name.upper()}:SASL_PLAINTEXT" for name in names),
        **({"inter.broker.listener.name": "NODES"} if "broker" in roles else {}),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        **of_listeners,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node",
        "connections.max.reauth.ms": str(reauth_ms),
        "delegation.token.secret.key": _TOKEN_SECRET,
        "delegation.token.expiry.check.interval.ms": "1000",
    }
