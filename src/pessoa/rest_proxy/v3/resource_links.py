"""What all resources of v3 look like: a kind, a place, links to what belongs to it.

    {"kind": "KafkaTopic", "metadata": {"self": url, "resource_name": "crn:///kafka=…/topic=…"}, …}
    {"kind": "KafkaTopicList", "metadata": {"self": url, "next": null}, "data": […]}

`Links` knows the cluster and the address that the caller used, and makes URLs and names from path segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request

from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import unknown_in_cluster


class Metadata(msgspec.Struct):
    self_url: str = msgspec.field(name="self")
    resource_name: str | None = None


class CollectionMetadata(msgspec.Struct):
    self_url: str = msgspec.field(name="self")
    # No list here is long enough to be divided into pages.
    next: str | None = None


class Related(msgspec.Struct):
    related: str


class Collection(msgspec.Struct):
    """A list of resources of one kind."""

    kind: str
    metadata: CollectionMetadata
    data: list[Any]


class Links:
    def __init__(self, base_url: str, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._base = f"{base_url}/v3/clusters"

    def __repr__(self) -> str:
        return f"<Links under {self._base}/{self.cluster_id}>"

    def clusters(self) -> str:
        return self._base

    def url(self, *segments: str | int) -> str:
        """Return the URL of a resource of this cluster."""
        return "/".join([self._base, *(quote(str(each), safe="") for each in (self.cluster_id, *segments))])

    def related(self, *segments: str | int) -> Related:
        return Related(self.url(*segments))

    def metadata(self, *segments: str | int, name: str = "") -> Metadata:
        """Return the URL and the resource name of a resource; `name` is the part of the latter after the cluster."""
        return Metadata(self.url(*segments), f"crn:///kafka={self.cluster_id}{name}")

    def collection(self, kind: str, data: Sequence[msgspec.Struct], *segments: str | int) -> Collection:
        return Collection(f"{kind}List", CollectionMetadata(self.url(*segments)), list(data))


async def links_of(proxy: Proxy, request: Request) -> Links:
    """Return the links of the cluster in the path. Raises the problem 404 if that is not the proxy's cluster."""
    cluster_id = await clients_of(request).admin.cluster_id()
    if request.path_params["cluster_id"] != cluster_id:
        raise unknown_in_cluster(f"Cluster {request.path_params['cluster_id']} cannot be found.")
    return Links(proxy.base_url(request), cluster_id)
