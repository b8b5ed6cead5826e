"""Configuration of topics, of brokers, and of all brokers together.

Three kinds of resources with the same five verbs, so one class serves them all: a `ConfiguredResource` says what is
configured, where it is found under the cluster, and which fields its entries have more than others.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.async_admin import BROKER, TOPIC, ConfigChange
from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import bad_request, unknown_in_cluster
from pessoa.rest_proxy.request_values import body_of, decoder
from pessoa.rest_proxy.v3.cluster_endpoints import no_such_broker
from pessoa.rest_proxy.v3.resource_links import Links, Metadata, links_of
from pessoa.rest_proxy.v3.topic_endpoints import must_be_topic_name, topic_name
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import json_response
from pessoa.web.problems import HttpProblem
from pessoa.wire.api.describe_configs import DescribeConfigsResourceResult

NO_CONTENT = 204
MULTI_STATUS = 207
# By Kafka's numbers.
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}
DEFAULT_SOURCE = 5


class Synonym(msgspec.Struct):
    name: str
    value: str | None
    source: str


class Config(msgspec.Struct, omit_defaults=True):
    """An entry; of the three fields in the middle it has the one that says whose it is."""

    kind: str
    metadata: Metadata
    cluster_id: str
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: list[Synonym]
    topic_name: str | None = None
    broker_id: int | None = None
    config_type: str | None = None


class SetConfig(msgspec.Struct, forbid_unknown_fields=True):
    value: str | None = None


class ConfigAlteration(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: str | None = None
    operation: Literal["SET", "DELETE"] | None = None


class AlterConfigs(msgspec.Struct, forbid_unknown_fields=True):
    data: list[ConfigAlteration]
    validate_only: bool = False


class TopicAlteration(msgspec.Struct, forbid_unknown_fields=True):
    topic_name: str
    configs: list[ConfigAlteration]


class AlterTopics(msgspec.Struct, forbid_unknown_fields=True):
    data: list[TopicAlteration]
    validate_only: bool = False


class TopicFailure(msgspec.Struct):
    topic_name: str
    error_code: int
    message: str


class AlteredTopics(msgspec.Struct):
    failures: list[TopicFailure]


_SET = decoder(SetConfig)
_ALTER = decoder(AlterConfigs)
_ALTER_TOPICS = decoder(AlterTopics)


class ConfiguredResource(NamedTuple):
    """A resource with configs. `name` is its name for Kafka: a topic, a broker's id, or empty for all brokers."""

    kind: int
    name: str
    segments: tuple[str, ...]

    def entry(self, links: Links, found: DescribeConfigsResourceResult) -> Config:
        entry = Config(
            kind="",
            metadata=links.metadata(*self.segments, found.name),
            cluster_id=links.cluster_id,
            name=found.name,
            value=None if found.is_sensitive else found.value,
            is_default=found.config_source == DEFAULT_SOURCE,
            is_read_only=found.read_only,
            is_sensitive=found.is_sensitive,
            source=SOURCES.get(found.config_source, "UNKNOWN"),
            synonyms=[Synonym(each.name, each.value, SOURCES.get(each.source, "UNKNOWN")) for each in found.synonyms],
        )
        entry.kind = self.kind_name
        owner = f"topic={self.name}" if self.kind == TOPIC else f"broker={self.name}"
        if self.kind == TOPIC:
            entry.topic_name = self.name
        elif self.name:
            entry.broker_id = int(self.name)
        else:
            entry.config_type = "BROKER"
        tail = f"/{owner}/config={found.name}" if self.name else f"/broker-config={found.name}"
        entry.metadata.resource_name = f"crn:///kafka={links.cluster_id}{tail}"
        return entry

    @property
    def kind_name(self) -> str:
        if self.kind == TOPIC:
            return "KafkaTopicConfig"
        return "KafkaBrokerConfig" if self.name else "KafkaClusterConfig"


def topic_resource(name: str) -> ConfiguredResource:
    return ConfiguredResource(TOPIC, name, ("topics", name, "configs"))


def broker_resource(broker_id: int) -> ConfiguredResource:
    return ConfiguredResource(BROKER, str(broker_id), ("brokers", str(broker_id), "configs"))


ALL_BROKERS = ConfiguredResource(BROKER, "", ("broker-configs",))


class ConfigEndpoints:
    """The five operations on the configs of one kind of resource, which the subclass finds from a request."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def resource(self, request: Request) -> ConfiguredResource:
        raise NotImplementedError

    async def entries(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        resource = await self.resource(request)
        data = await self._entries(request, links, resource)
        return json_response(request, links.collection(resource.kind_name, data, *resource.segments))

    async def entry(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        return json_response(
            request, await self._find_config(request, links, await self.resource(request), request.path_params["name"])
        )

    async def set(self, request: Request) -> Response:
        value = (await body_of(request, _SET)).value
        return await self._change(request, ConfigChange(request.path_params["name"], value))

    async def reset(self, request: Request) -> Response:
        return await self._change(request, ConfigChange(request.path_params["name"], None))

    async def alter(self, request: Request) -> Response:
        await links_of(self._proxy, request)
        resource = await self.resource(request)
        body = await body_of(request, _ALTER)
        changes = changes_of(body.data)
        admin = clients_of(request).admin
        await admin.alter_configs(resource.kind, resource.name, changes, validate_only=body.validate_only)
        return Answer(status=NO_CONTENT)

    async def _change(self, request: Request, change: ConfigChange) -> Response:
        links = await links_of(self._proxy, request)
        resource = await self.resource(request)
        # Kafka accepts any key when a topic's config is deleted; callers get an error for an unknown key.
        if resource.name:
            await self._find_config(request, links, resource, change.name)
        await clients_of(request).admin.alter_configs(resource.kind, resource.name, checked([change]))
        return Answer(status=NO_CONTENT)

    async def _entries(self, request: Request, links: Links, resource: ConfiguredResource) -> list[Config]:
        [found] = await clients_of(request).admin.describe_configs(resource.kind, [resource.name])
        return [resource.entry(links, each) for each in sorted(found.configs, key=lambda each: each.name)]

    async def _find_config(self, request: Request, links: Links, resource: ConfiguredResource, name: str) -> Config:
        for each in await self._entries(request, links, resource):
            if each.name == name:
                return each
        raise unknown_in_cluster(f"Config {name} cannot be found.")


class TopicConfigEndpoints(ConfigEndpoints):
    async def resource(self, request: Request) -> ConfiguredResource:
        return topic_resource(topic_name(self._proxy, request))

    async def list_all_configs(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        admin = clients_of(request).admin
        found = await admin.describe_configs(TOPIC, await admin.topic_names())
        data = [topic_resource(topic.resource_name).entry(links, each) for topic in found for each in topic.configs]
        return json_response(request, links.collection("KafkaTopicConfig", data, "topics", "-", "configs"))

    async def alter_many(self, request: Request) -> Response:
        """Alter the configs of several topics, each by itself: the response lists those that fail, the others are
        changed."""
        await links_of(self._proxy, request)
        body = await body_of(request, _ALTER_TOPICS)
        wanted = [(each.topic_name, changes_of(each.configs)) for each in body.data]
        failures = []
        for name, changes in wanted:
            try:
                must_be_topic_name(self._proxy, name)
                await clients_of(request).admin.alter_configs(TOPIC, name, changes, validate_only=body.validate_only)
            except HttpProblem as problem:
                failures.append(TopicFailure(name, problem.code, problem.message))
        if not failures:
            return Answer(status=NO_CONTENT)
        return json_response(request, AlteredTopics(failures), MULTI_STATUS)


class BrokerConfigEndpoints(ConfigEndpoints):
    async def resource(self, request: Request) -> ConfiguredResource:
        for broker_id in await self._broker_ids(request):
            if str(broker_id) == request.path_params["broker_id"]:
                return broker_resource(broker_id)
        raise no_such_broker(request)

    async def list_all_configs(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        names = [str(each) for each in await self._broker_ids(request)]
        found = await clients_of(request).admin.describe_configs(BROKER, names)
        data = [
            broker_resource(int(broker.resource_name)).entry(links, each) for broker in found for each in broker.configs
        ]
        return json_response(request, links.collection("KafkaBrokerConfig", data, "brokers", "-", "configs"))

    async def _broker_ids(self, request: Request) -> list[int]:
        return sorted(node.id for node in (await clients_of(request).admin.describe_cluster()).nodes)


class ClusterConfigEndpoints(ConfigEndpoints):
    async def resource(self, request: Request) -> ConfiguredResource:
        return ALL_BROKERS


def changes_of(alterations: list[ConfigAlteration]) -> list[ConfigChange]:
    changes = []
    for each in alterations:
        if each.operation != "DELETE" and each.value is None:
            raise bad_request(f"{each.name} is to be SET and has no value; use DELETE to take it back to its default")
        changes.append(ConfigChange(each.name, None if each.operation == "DELETE" else each.value))
    if len({each.name for each in changes}) != len(changes):
        raise bad_request("a key stands twice in data")
    return checked(changes)


def checked(changes: list[ConfigChange]) -> list[ConfigChange]:
    if not changes or any("\0" in each.name + (each.value or "") or not each.name for each in changes):
        raise bad_request("data must name at least one configuration, and none with the character NUL")
    return changes
