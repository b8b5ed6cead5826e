"""Topics that a broker has the controller create, because a request of a client needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.coordinator_topics import coordinator_topic
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import OwnRequest, RequestContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.groups.streams.topology_configuration import InternalTopic
    from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsResponse
    from pessoa.wire.request_context import Caller

# The controller decides, from its own configuration.
_DEFAULT = -1
_CREATE_TIMEOUT_MS = 30_000
# How long a response waits until this broker's image has a topic that it had created; then the client has to retry.
_NEWS_MS = 1_000


async def create_missing_topics(broker: BrokerServices, names: Sequence[str], client: RequestContext | None) -> None:
    """Create topics that a request needs: in the client's name those that it asked for; in this broker's, with `client`
    None, internal ones. A topic that another request has created meanwhile is no error."""
    await _create_topics(broker, [_creatable(broker.config, name) for name in names], client)


def _creatable(config: BrokerConfig, name: str) -> CreatableTopic:
    from pessoa.wire.api.create_topics import CreatableTopic, CreatableTopicConfig

    row = coordinator_topic(name, config)
    return CreatableTopic(
        name=name,
        num_partitions=_DEFAULT if row is None else row.partition_count,
        replication_factor=_DEFAULT if row is None else row.replication_factor,
        assignments=[],
        configs=[] if row is None else [CreatableTopicConfig(name=key, value=of) for key, of in row.configs.items()],
    )


async def create_streams_topics(
    broker: BrokerServices, topics: Sequence[InternalTopic], client: Caller
) -> dict[str, str]:
    """Create internal topics of a streams application in its name; return the refusals by topic. One that another
    member has created meanwhile is no refusal."""
    from pessoa.wire.api.create_topics import CreatableTopic, CreatableTopicConfig

    assert isinstance(client, RequestContext), "heartbeats of streams groups come from clients"
    creatable = [
        CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs],
        )
        for topic in topics
    ]
    response = await _create_topics(broker, creatable, client)
    return {
        one.name: one.error_message or ErrorCode.of(one.error_code).text
        for one in response.topics
        if one.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }


async def _create_topics(
    broker: BrokerServices, topics: list[CreatableTopic], client: RequestContext | None
) -> CreateTopicsResponse:
    """Have the controller create topics, and wait until the image of this broker has those that it created."""
    from pessoa.wire.api.create_topics import CreateTopicsRequest, CreateTopicsResponse

    request = CreateTopicsRequest(topics=topics, timeout_ms=_CREATE_TIMEOUT_MS)
    caller = OwnRequest(request.versions.last)
    if client is not None:
        caller = OwnRequest(
            request.versions.last,
            client.client_id,
            client.client_host,
            client.principal,
            client.listener,
            client.api_key,
        )
    response = await broker.controller.submit(request, caller)
    assert isinstance(response, CreateTopicsResponse)
    created = [one.name for one in response.topics if not one.error_code]
    if created:
        await broker.progress.wait_until(lambda: all(name in broker.image.topics.by_name for name in created), _NEWS_MS)
    return response
