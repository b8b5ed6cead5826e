"""Access control entries: CreateAcls, DeleteAcls, DescribeAcls. What they allow and deny is decided elsewhere.

An entry names one resource pattern (a literal name, "*" among them, or a prefix), who, from where, and what. A filter
leaves any of that open: null names, and ANY for the rest. The pattern type MATCH of a filter finds every pattern that
the given name falls under.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pessoa.controller.decision import MAX_RECORDS, Decision, check_record_count
from pessoa.metadata.table_images import Acl
from pessoa.wire.api.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from pessoa.wire.api.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.controller.decision import Situation
    from pessoa.metadata.image import MetadataImage
    from pessoa.wire.schema import Message

# UNKNOWN is 0 and ANY is 1 in every one of these tables.
UNKNOWN, ANY = 0, 1
RESOURCE_TYPES = range(2, 8)
CLUSTER = 4
CLUSTER_NAME = "kafka-cluster"
MATCH, LITERAL, PREFIXED = 2, 3, 4
OPERATIONS = range(2, 16)
DENY, ALLOW = 2, 3
WILDCARD = "*"


# ---- CreateAcls ----


def create_acls(situation: Situation, request: CreateAclsRequest) -> Decision:
    records: list[Message] = []
    results: list[AclCreationResult] = []
    known = set(situation.image.acls.by_id.values())
    for creation in request.creations:
        result = AclCreationResult(error_code=ErrorCode.NONE, error_message="")
        results.append(result)
        try:
            acl = _checked_acl(creation)
        except Refusal as refusal:
            result.error_code, result.error_message = refusal.code, refusal.text
            continue
        if acl not in known:
            known.add(acl)
            records.append(AccessControlEntryRecord(id=situation.new_uuid(), **acl._asdict()))
    check_record_count(records)
    return Decision(records, CreateAclsResponse(throttle_time_ms=0, results=results))


def _checked_acl(creation: AclCreation) -> Acl:
    problem = None
    if creation.resource_type not in RESOURCE_TYPES:
        problem = f"There is no type {creation.resource_type} of resources."
    elif creation.resource_pattern_type not in (LITERAL, PREFIXED):
        problem = f"A resource is named literally or by a prefix, not by the pattern {creation.resource_pattern_type}."
    elif creation.operation not in OPERATIONS:
        problem = f"There is no operation {creation.operation}."
    elif creation.permission_type not in (DENY, ALLOW):
        problem = f"Something is allowed or denied, and {creation.permission_type} is neither."
    elif not creation.resource_name:
        problem = "The name of the resource is empty."
    elif creation.resource_type == CLUSTER and creation.resource_name != CLUSTER_NAME:
        problem = f"The name of the cluster is always {CLUSTER_NAME!r}."
    elif ":" not in creation.principal:
        problem = f"The principal {creation.principal!r} is not a type and a name with a colon between."
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_REQUEST, problem)
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


# ---- DeleteAcls ----


# So many entries are compared with the filters of one request, which takes some 60 ms.
MAX_COMPARISONS = 200_000


def delete_acls(situation: Situation, request: DeleteAclsRequest) -> Decision:
    gone: dict[Uuid, None] = {}
    results: list[DeleteAclsFilterResult] = []
    entries = _Entries(situation.image.acls.by_id)
    comparisons = 0
    for wanted in request.filters:
        result = DeleteAclsFilterResult(error_code=ErrorCode.NONE, error_message=None, matching_acls=[])
        results.append(result)
        try:
            matches = _filter(wanted)
        except Refusal as refusal:
            result.error_code, result.error_message = refusal.code, refusal.text
            continue
        candidates = entries.candidates(wanted)
        if comparisons and comparisons + len(candidates) > MAX_COMPARISONS:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = "The filters of one request would look at too many entries. Send fewer at a time."
            continue
        comparisons += len(candidates)
        found = {acl_id: acl for acl_id, acl in candidates if matches(acl)}
        if len(gone) + sum(acl_id not in gone for acl_id in found) > MAX_RECORDS:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"One request removes at most {MAX_RECORDS} entries."
            continue
        gone |= dict.fromkeys(found)
        result.matching_acls = [
            DeleteAclsMatchingAcl(error_code=ErrorCode.NONE, error_message=None, **acl._asdict())
            for acl in found.values()
        ]
    records: list[Message] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone]
    return Decision(records, DeleteAclsResponse(throttle_time_ms=0, filter_results=results))


class _Entries:
    """All ACLs of the image, indexed by resource name and by principal: most filters name one of them."""

    def __init__(self, by_id: Mapping[Uuid, Acl]) -> None:
        self._all = list(by_id.items())
        # Made for the first filter that can use them.
        self._by_name: dict[str, list[tuple[Uuid, Acl]]] | None = None
        self._by_principal: dict[str, list[tuple[Uuid, Acl]]] | None = None

    def __repr__(self) -> str:
        return f"<_Entries: {len(self._all)}>"

    def candidates(self, wanted: DeleteAclsFilter) -> list[tuple[Uuid, Acl]]:
        """Return at least those entries that the filter matches, in the order of the entries."""
        name, principal = wanted.resource_name_filter, wanted.principal_filter
        if name is not None and wanted.pattern_type_filter != MATCH:
            if self._by_name is None:
                self._by_name = self._group_by(lambda acl: acl.resource_name)
            return self._by_name.get(name, [])
        if principal is not None:
            if self._by_principal is None:
                self._by_principal = self._group_by(lambda acl: acl.principal)
            return self._by_principal.get(principal, [])
        return self._all

    def _group_by(self, key: Callable[[Acl], str]) -> dict[str, list[tuple[Uuid, Acl]]]:
        groups: dict[str, list[tuple[Uuid, Acl]]] = {}
        for one in self._all:
            groups.setdefault(key(one[1]), []).append(one)
        return groups


# ---- DescribeAcls ----


def describe_acls(image: MetadataImage, request: DescribeAclsRequest) -> DescribeAclsResponse:
    try:
        matches = _filter(request)
    except Refusal as refusal:
        return DescribeAclsResponse(
            throttle_time_ms=0, error_code=refusal.code, error_message=refusal.text, resources=[]
        )
    resources: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in image.acls.by_id.values():
        if matches(acl):
            resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message="",
        resources=[
            DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in resources.items()
        ],
    )


# ---- Filters ----


def _filter(wanted: DeleteAclsFilter | DescribeAclsRequest) -> Callable[[Acl], bool]:
    """Return a predicate that says whether an ACL matches the filter."""
    numbers = (
        wanted.resource_type_filter,
        wanted.pattern_type_filter,
        wanted.operation,
        wanted.permission_type,
    )
    if UNKNOWN in numbers:
        raise Refusal(ErrorCode.INVALID_REQUEST, "The filter names something unknown.")

    def matches(acl: Acl) -> bool:
        return (
            wanted.resource_type_filter in (ANY, acl.resource_type)
            and _matches_pattern(wanted.pattern_type_filter, wanted.resource_name_filter, acl)
            and wanted.principal_filter in (None, acl.principal)
            and wanted.host_filter in (None, acl.host)
            and wanted.operation in (ANY, acl.operation)
            and wanted.permission_type in (ANY, acl.permission_type)
        )

    return matches


def _matches_pattern(pattern_type: int, name: str | None, acl: Acl) -> bool:
    if pattern_type not in (ANY, MATCH, acl.pattern_type):
        return False
    if name is None or name == acl.resource_name:
        return True
    if pattern_type != MATCH:
        return False
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name == WILDCARD
