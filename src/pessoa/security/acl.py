"""The vocabulary of Kafka's access control lists: operations, types of resources, patterns, permissions. The numbers
are those of the protocol and of the metadata log.

An entry says: this principal, from this host, may (ALLOW) or may not (DENY) do this operation with every resource of
this type whose name falls under this pattern. A pattern is a LITERAL name, the LITERAL `*` for all names, or a PREFIXED
beginning of names.

Plain integers with types of their own: mypy tells an operation from a type of resource, and a key of a dictionary that
holds them is hashed without a call of Python code.
"""

from __future__ import annotations

from typing import NewType, Protocol

Operation = NewType("Operation", int)
ResourceType = NewType("ResourceType", int)

ALL = Operation(2)
READ = Operation(3)
WRITE = Operation(4)
CREATE = Operation(5)
DELETE = Operation(6)
ALTER = Operation(7)
DESCRIBE = Operation(8)
CLUSTER_ACTION = Operation(9)
DESCRIBE_CONFIGS = Operation(10)
ALTER_CONFIGS = Operation(11)
IDEMPOTENT_WRITE = Operation(12)
CREATE_TOKENS = Operation(13)
DESCRIBE_TOKENS = Operation(14)
TWO_PHASE_COMMIT = Operation(15)

TOPIC = ResourceType(2)
GROUP = ResourceType(3)
CLUSTER = ResourceType(4)
TRANSACTIONAL_ID = ResourceType(5)
DELEGATION_TOKEN = ResourceType(6)
USER = ResourceType(7)

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
WILDCARD = "*"
# The one resource of its type.
CLUSTER_NAME = "kafka-cluster"
ANY_USER = "User:*"

OPERATION_NAMES = {
    ALL: "ALL",
    READ: "READ",
    WRITE: "WRITE",
    CREATE: "CREATE",
    DELETE: "DELETE",
    ALTER: "ALTER",
    DESCRIBE: "DESCRIBE",
    CLUSTER_ACTION: "CLUSTER_ACTION",
    DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    ALTER_CONFIGS: "ALTER_CONFIGS",
    IDEMPOTENT_WRITE: "IDEMPOTENT_WRITE",
    CREATE_TOKENS: "CREATE_TOKENS",
    DESCRIBE_TOKENS: "DESCRIBE_TOKENS",
    TWO_PHASE_COMMIT: "TWO_PHASE_COMMIT",
}
# As Kafka's log of decisions writes them, and as its records do.
RESOURCE_NAMES = {
    TOPIC: "Topic",
    GROUP: "Group",
    CLUSTER: "Cluster",
    TRANSACTIONAL_ID: "TransactionalId",
    DELEGATION_TOKEN: "DelegationToken",
    USER: "User",
}

# What an ALLOW of other operations allows as well. A DENY denies nothing but its own operation.
IMPLIED_BY = {
    DESCRIBE: frozenset({DESCRIBE, READ, WRITE, DELETE, ALTER}),
    DESCRIBE_CONFIGS: frozenset({DESCRIBE_CONFIGS, ALTER_CONFIGS}),
}

# The operations that `authorized_operations` in responses can contain, by type of resource.
SUPPORTED_OPERATIONS = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
    TRANSACTIONAL_ID: (WRITE, DESCRIBE, TWO_PHASE_COMMIT),
}


class Entry(Protocol):
    """An access control entry, as the metadata image has it."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...

    @property
    def pattern_type(self) -> int: ...

    @property
    def principal(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def operation(self) -> int: ...

    @property
    def permission_type(self) -> int: ...


def operation_bits(operations: tuple[Operation, ...]) -> int:
    """Return the set of operations as `authorized_operations` encodes it: each operation is the bit of its number."""
    return sum(1 << operation for operation in operations)
