"""ACLs: search, create, delete.

The enumerations are Kafka's, by name here and by number on the wire. They are asked through our own client: librdkafka
knows fewer kinds of resources and operations than Kafka has.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.client.acl_admin import Operation, PatternType, Permission, ResourceType
from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import bad_request, from_wire
from pessoa.rest_proxy.request_values import body_of, decoder
from pessoa.rest_proxy.v3.resource_links import Collection, CollectionMetadata, Links, Metadata, links_of
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import json_response

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster

CREATED = 201
NO_CONTENT = 204


E = TypeVar("E", bound=IntEnum)


class Entry(Protocol):
    """A principal's permission, with the fields that both of Kafka's responses have."""

    principal: str
    host: str
    operation: int
    permission_type: int


class Filter(TypedDict):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class CreateAcl(msgspec.Struct, forbid_unknown_fields=True):
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class CreateAcls(msgspec.Struct, forbid_unknown_fields=True):
    data: list[CreateAcl]


class Acl(msgspec.Struct, omit_defaults=True):
    kind: str
    metadata: Metadata
    cluster_id: str
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class DeletedAcls(msgspec.Struct):
    data: list[Acl]


_CREATE = decoder(CreateAcl)
_CREATE_MANY = decoder(CreateAcls)


class AclEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def search(self, request: Request) -> Response:
        from pessoa.wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse

        links = await links_of(self._proxy, request)
        question = DescribeAclsRequest(**_filter(request, must_be_exact=False))

        def ask(cluster: Cluster) -> DescribeAclsResponse:
            return cluster.ask(question, DescribeAclsResponse, name="describeAcls")

        found = await clients_of(request).admin.ask(ask)
        if found.error_code:
            raise from_wire(found.error_code, found.error_message)
        data = [
            acl_of(links, (resource.resource_type, resource.resource_name, resource.pattern_type), each)
            for resource in found.resources
            for each in resource.acls
        ]
        url = f"{links.url('acls')}?{request.url.query}" if request.url.query else links.url("acls")
        return json_response(request, Collection("KafkaAclList", CollectionMetadata(url), data))

    async def create(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        body = await body_of(request, _CREATE)
        await self._create(request, [body])
        return Answer(status=CREATED, headers={"Location": _url_of(links, body)})

    async def create_many(self, request: Request) -> Response:
        await links_of(self._proxy, request)
        body = await body_of(request, _CREATE_MANY)
        if not body.data:
            raise bad_request("data must not be empty")
        await self._create(request, body.data)
        return Answer(status=NO_CONTENT)

    async def _create(self, request: Request, wanted: list[CreateAcl]) -> None:
        from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse

        creations = [
            AclCreation(
                resource_type=_parse_exact(ResourceType, each.resource_type, "resource_type"),
                resource_name=each.resource_name,
                resource_pattern_type=_parse_exact(PatternType, each.pattern_type, "pattern_type"),
                principal=each.principal,
                host=each.host,
                operation=_parse_exact(Operation, each.operation, "operation"),
                permission_type=_parse_exact(Permission, each.permission, "permission"),
            )
            for each in wanted
        ]
        question = CreateAclsRequest(creations=creations)

        def ask(cluster: Cluster) -> CreateAclsResponse:
            return cluster.ask(question, CreateAclsResponse, name="createAcls")

        for result in (await clients_of(request).admin.ask(ask)).results:
            if result.error_code:
                raise from_wire(result.error_code, result.error_message)

    async def delete(self, request: Request) -> Response:
        from pessoa.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

        links = await links_of(self._proxy, request)
        question = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter(request, must_be_exact=True))])

        def ask(cluster: Cluster) -> DeleteAclsResponse:
            return cluster.ask(question, DeleteAclsResponse, name="deleteAcls")

        [found] = (await clients_of(request).admin.ask(ask)).filter_results
        if found.error_code:
            raise from_wire(found.error_code, found.error_message)
        for each in found.matching_acls:
            if each.error_code:
                raise from_wire(each.error_code, each.error_message)
        data = [acl_of(links, (each.resource_type, each.resource_name, each.pattern_type), each) for each in
                found.matching_acls]  # fmt: skip
        return json_response(request, DeletedAcls(data))


def acl_of(links: Links, resource: tuple[int, str, int], found: Entry) -> Acl:
    acl = Acl(
        kind="KafkaAcl",
        metadata=Metadata(""),
        cluster_id=links.cluster_id,
        resource_type=_name(ResourceType, resource[0]),
        resource_name=resource[1],
        pattern_type=_name(PatternType, resource[2]),
        principal=found.principal,
        host=found.host,
        operation=_name(Operation, found.operation),
        permission=_name(Permission, found.permission_type),
    )
    acl.metadata = Metadata(_url_of(links, acl))
    return acl


def _url_of(links: Links, acl: Acl | CreateAcl) -> str:
    """Return the URL of an ACL. It has no name of its own, so the URL is a search with all its fields."""
    fields = {
        "resource_type": acl.resource_type,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission": acl.permission,
    }
    return f"{links.url('acls')}?{urlencode(fields)}"


def _filter(request: Request, *, must_be_exact: bool) -> Filter:
    query = request.query_params

    def number(kind: type[E], key: str) -> int:
        text = query.get(key, "")
        return _parse_exact(kind, text, key) if must_be_exact else _member(kind, text or "ANY", key)

    return {
        "resource_type_filter": number(ResourceType, "resource_type"),
        "resource_name_filter": query.get("resource_name") or None,
        "pattern_type_filter": _parse_pattern_type(query.get("pattern_type", ""), must_be_given=must_be_exact),
        "principal_filter": query.get("principal") or None,
        "host_filter": query.get("host") or None,
        "operation": number(Operation, "operation"),
        "permission_type": number(Permission, "permission"),
    }


def _parse_pattern_type(text: str, *, must_be_given: bool) -> int:
    """Return the number of a pattern type, which may be MATCH or ANY; a deletion must give one."""
    if must_be_given and not text:
        raise bad_request("pattern_type must be specified")
    return _member(PatternType, text or "ANY", "pattern_type")


def _member(kind: type[E], text: str, key: str) -> int:
    try:
        return kind[text.upper()]
    except KeyError:
        raise bad_request(f"{key} is {text!r}; it can be {', '.join(each.name for each in kind)}") from None


def _parse_exact(kind: type[E], text: str, key: str) -> int:
    """Return the number of a value that is not a wildcard."""
    if not text or text.upper() in ("ANY", "MATCH"):
        raise bad_request(f"{key} must be specified, and not {text or 'left out'}")
    return _member(kind, text, key)


def _name(kind: type[E], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return "UNKNOWN"
