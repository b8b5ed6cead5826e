"""Access control lists: describe, create and delete."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from pessoa.client.client_errors import check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.client.cluster_client import Cluster


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(NamedTuple):
    kind: ResourceType
    name: str | None
    pattern_type: PatternType

    def __str__(self) -> str:
        """Return the text that the Java client prints for the pattern."""
        return (
            f"ResourcePattern(resourceType={self.kind.name}, name={self.name or '<any>'}, "
            f"patternType={self.pattern_type.name})"
        )


class Entry(NamedTuple):
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


EVERYTHING = Pattern(ResourceType.ANY, None, PatternType.ANY)


def describe_acls(cluster: Cluster, pattern: Pattern = EVERYTHING) -> list[tuple[Pattern, Entry]]:
    from pessoa.wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse

    request = DescribeAclsRequest(
        resource_type_filter=pattern.kind,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    answer = cluster.ask(request, DescribeAclsResponse, name="describeAcls")
    check(answer.error_code, answer.error_message)
    return [
        (
            Pattern(ResourceType(one.resource_type), one.resource_name, PatternType(one.pattern_type)),
            Entry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type)),
        )
        for one in answer.resources
        for acl in one.acls
    ]


def create_acls(cluster: Cluster, pattern: Pattern, entries: Iterable[Entry]) -> None:
    from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse

    creations = [
        AclCreation(
            resource_type=pattern.kind,
            resource_name=pattern.name or "",
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for entry in entries
    ]
    for result in cluster.ask(CreateAclsRequest(creations=creations), CreateAclsResponse, name="createAcls").results:
        check(result.error_code, result.error_message)


def delete_acls(cluster: Cluster, pattern: Pattern, entries: Iterable[Entry] | None) -> None:
    """Delete these entries of the resources that match the pattern, or all entries if None."""
    from pessoa.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

    wanted: list[tuple[str | None, str | None, Operation, Permission]]
    if entries is None:
        wanted = [(None, None, Operation.ANY, Permission.ANY)]
    else:
        wanted = [(one.principal, one.host, one.operation, one.permission) for one in entries]
    filters = [
        DeleteAclsFilter(
            resource_type_filter=pattern.kind,
            resource_name_filter=pattern.name,
            pattern_type_filter=pattern.pattern_type,
            principal_filter=principal,
            host_filter=host,
            operation=operation,
            permission_type=permission,
        )
        for principal, host, operation, permission in wanted
    ]
    answer = cluster.ask(DeleteAclsRequest(filters=filters), DeleteAclsResponse, name="deleteAcls")
    for result in answer.filter_results:
        check(result.error_code, result.error_message)
