"""The cluster as an administrator sees it, for handlers that await.

Two clients stand behind it. librdkafka's Admin does most: its answers are futures, which the event loop can wait for.
What it lacks is asked through our own client: reassignments, all kinds of ACLs, and configuration, with all synonyms
(librdkafka keeps one per name, where a topic's key and the broker's are often called the same) and of all brokers
together (which librdkafka takes for a mistake). That client blocks and serves one question at a time, in a worker
thread, and is opened with the first question.

Every failure leaves here as an `HttpProblem`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._cluster import DescribeClusterResult
from confluent_kafka.admin._group import ConsumerGroupDescription
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewPartitions, NewTopic

from pessoa.client.client_errors import AuthenticationFailed, KafkaFailure, RequestFailed, TimedOut
from pessoa.rest_proxy.proxy_config import ClientSettings
from pessoa.rest_proxy.proxy_problems import (
    AUTHENTICATION,
    KAFKA_BAD_REQUEST,
    KAFKA_ERROR,
    KAFKA_RETRIABLE_ERROR,
    from_kafka,
    from_wire,
    kafka_error,
)
from pessoa.web.problems import HttpProblem

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.wire.api.describe_configs import DescribeConfigsResult
    from pessoa.wire.api.list_partition_reassignments import OngoingTopicReassignment

logger = logging.getLogger(__name__)
T = TypeVar("T")

REQUEST_TIMEOUT_S = 15.0
# Kafka's numbers for the types of resources that have configuration.
TOPIC = 2
BROKER = 4
# Its numbers for what is done to a key.
SET = 0
DELETE = 1


class ConfigChange(NamedTuple):
    """A new value for a config key; None resets the key to its default."""

    name: str
    value: str | None


def open_admin(settings: ClientSettings) -> AdminClient:
    """Return an admin client. With a callback for tokens this waits for the first token, a second at a time."""
    # Its stubs know no callbacks.
    return AdminClient({"client.id": "rest-proxy", **settings}, logger=logger)  # type: ignore[dict-item]


class Administrator:
    """Kafka's admin requests as coroutines. It must be created on the event loop that uses it."""

    def __init__(self, admin: AdminClient, java_settings: Mapping[str, str], bootstrap_servers: str) -> None:
        self._admin = admin
        self._java_settings = java_settings
        self._bootstrap_servers = bootstrap_servers
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="pessoa-rest-admin")
        self._own: Cluster | None = None
        self._own_turn = threading.Lock()
        self._cluster_id: str | None = None

    def __repr__(self) -> str:
        return f"<Administrator of {self._bootstrap_servers}>"

    async def close(self) -> None:
        await self._in_thread(self._close_own)
        self._threads.shutdown(wait=False)

    # The cluster and its brokers.

    async def describe_cluster(self) -> DescribeClusterResult:
        found: DescribeClusterResult = await _await_future(
            _call_librdkafka(self._admin.describe_cluster, request_timeout=REQUEST_TIMEOUT_S)
        )
        self._cluster_id = found.cluster_id
        return found

    async def cluster_id(self) -> str:
        """Return the cluster's id; it is requested once, since a cluster keeps its id."""
        if self._cluster_id is None:
            await self.describe_cluster()
        assert self._cluster_id is not None
        return self._cluster_id

    # Topics.

    async def topic_names(self) -> list[str]:
        found = await self._in_thread(lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S))
        return sorted(found.topics)

    async def describe_topics(
        self, names: Sequence[str], *, with_operations: bool = False
    ) -> dict[str, TopicDescription | KafkaException]:
        if not names:
            return {}
        futures = _call_librdkafka(
            self._admin.describe_topics,
            TopicCollection(list(names)),
            include_authorized_operations=with_operations,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return dict(zip(futures, await _gather_outcomes(futures.values()), strict=True))

    async def describe_topic(self, name: str, *, with_operations: bool = False) -> TopicDescription:
        found = (await self.describe_topics([name], with_operations=with_operations))[name]
        if isinstance(found, KafkaException):
            raise from_kafka(kafka_error(found))
        return found

    async def create_topic(self, topic: NewTopic, *, validate_only: bool) -> None:
        futures = _call_librdkafka(
            self._admin.create_topics,
            [topic],
            validate_only=validate_only,
            request_timeout=REQUEST_TIMEOUT_S,
            operation_timeout=REQUEST_TIMEOUT_S,
        )
        await _await_future(futures[topic.topic])

    async def delete_topic(self, name: str) -> None:
        futures = _call_librdkafka(
            self._admin.delete_topics, [name], request_timeout=REQUEST_TIMEOUT_S, operation_timeout=REQUEST_TIMEOUT_S
        )
        await _await_future(futures[name])

    async def create_partitions(self, topic: str, count: int) -> None:
        futures = _call_librdkafka(
            self._admin.create_partitions, [NewPartitions(topic, count)], request_timeout=REQUEST_TIMEOUT_S
        )
        await _await_future(futures[topic])

    async def offsets(self, partitions: Iterable[tuple[str, int]], *, end: bool) -> dict[tuple[str, int], int]:
        """Return the start or end offset of each partition; a partition without a leader is left out."""
        at = OffsetSpec.latest() if end else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(*each): at for each in partitions}
        if not wanted:
            return {}
        futures = _call_librdkafka(
            self._admin.list_offsets,
            wanted,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        found = zip(futures, await _gather_outcomes(futures.values()), strict=True)
        return {
            (place.topic, place.partition): each.offset for place, each in found if not isinstance(each, KafkaException)
        }

    # Configuration.

    async def describe_configs(self, kind: int, names: Sequence[str]) -> list[DescribeConfigsResult]:
        """Return the configs of topics or brokers, with synonyms; the empty name is the default of all brokers."""
        from pessoa.wire.api.describe_configs import (
            DescribeConfigsRequest,
            DescribeConfigsResource,
            DescribeConfigsResponse,
        )

        def ask(cluster: Cluster) -> list[DescribeConfigsResult]:
            found = []
            # A broker answers for its own configuration only.
            by_node: dict[int | None, list[str]] = {}
            for name in names:
                by_node.setdefault(int(name) if kind == BROKER and name else None, []).append(name)
            for node, resources in by_node.items():
                request = DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
                        for name in resources
                    ],
                    include_synonyms=True,
                    include_documentation=False,
                )
                found += cluster.ask(request, DescribeConfigsResponse, node=node, name="describeConfigs").results
            return found

        results = await self.ask(ask)
        for result in results:
            if result.error_code:
                raise from_wire(result.error_code, result.error_message)
        return results

    async def alter_configs(
        self, kind: int, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        from pessoa.wire.api.incremental_alter_configs import (
            AlterableConfig,
            AlterConfigsResource,
            IncrementalAlterConfigsRequest,
            IncrementalAlterConfigsResponse,
        )

        configs = [
            AlterableConfig(name=each.name, config_operation=DELETE if each.value is None else SET, value=each.value)
            for each in changes
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        # What concerns one broker is that broker's to check.
        node = int(name) if kind == BROKER and name else None

        def ask(cluster: Cluster) -> IncrementalAlterConfigsResponse:
            return cluster.ask(request, IncrementalAlterConfigsResponse, node=node, name="incrementalAlterConfigs")

        for result in (await self.ask(ask)).responses:
            if result.error_code:
                raise from_wire(result.error_code, result.error_message)

    # Reassignments.

    async def reassignments(self) -> list[OngoingTopicReassignment]:
        from pessoa.wire.api.list_partition_reassignments import (
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsResponse,
        )

        def ask(cluster: Cluster) -> list[OngoingTopicReassignment]:
            request = ListPartitionReassignmentsRequest(timeout_ms=int(REQUEST_TIMEOUT_S * 1000), topics=None)
            found = cluster.ask(request, ListPartitionReassignmentsResponse, name="listPartitionReassignments")
            if found.error_code:
                raise from_wire(found.error_code, found.error_message)
            return found.topics

        return await self.ask(ask)

    # Groups.

    async def group_ids(self) -> list[str]:
        found = await _await_future(
            _call_librdkafka(self._admin.list_consumer_groups, request_timeout=REQUEST_TIMEOUT_S)
        )
        if not found.valid and found.errors:
            raise from_kafka(kafka_error(found.errors[0]))
        return sorted(listing.group_id for listing in found.valid)

    async def describe_groups(self, ids: Sequence[str]) -> list[ConsumerGroupDescription]:
        """Return the descriptions of these groups. A group that was deleted meanwhile is left out; if it is the only
        one, its error is raised."""
        if not ids:
            return []
        futures = _call_librdkafka(self._admin.describe_consumer_groups, list(ids), request_timeout=REQUEST_TIMEOUT_S)
        outcomes = await _gather_outcomes(futures.values())
        if len(ids) == 1 and isinstance(outcomes[0], KafkaException):
            raise from_kafka(kafka_error(outcomes[0]))
        return [each for each in outcomes if not isinstance(each, KafkaException)]

    async def committed(self, group: str) -> list[TopicPartition]:
        futures = _call_librdkafka(
            self._admin.list_consumer_group_offsets,
            [ConsumerGroupTopicPartitions(group)],
            request_timeout=REQUEST_TIMEOUT_S,
        )
        found = await _await_future(futures[group])
        return [place for place in found.topic_partitions if place.offset >= 0]

    # Inside.

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except KafkaException as failure:
            raise from_kafka(kafka_error(failure)) from None

    async def ask(self, question: Callable[[Cluster], T]) -> T:
        """Call `question` with our own client in a worker thread, one call at a time, and return its result."""

        def run() -> T:
            from pessoa.client.cluster_client import Cluster

            with self._own_turn:
                if self._own is None:
                    self._own = Cluster(self._bootstrap_servers, self._java_settings)
                try:
                    return question(self._own)
                except RequestFailed as failure:
                    raise from_wire(int(failure.code), str(failure)) from None
                except TimedOut as failure:
                    raise HttpProblem(500, str(failure), KAFKA_RETRIABLE_ERROR) from None
                except AuthenticationFailed as failure:
                    raise HttpProblem(401, str(failure), AUTHENTICATION) from None
                except KafkaFailure as failure:
                    raise HttpProblem(500, str(failure), KAFKA_ERROR) from None

        return await self._in_thread(run)

    def _close_own(self) -> None:
        with self._own_turn:
            if self._own is not None:
                self._own.close()
                self._own = None


def _call_librdkafka(call: Callable[..., T], *arguments: object, **options: object) -> T:
    """Call librdkafka and return its futures. Raises an HttpProblem for arguments that librdkafka refuses itself."""
    try:
        return call(*arguments, **options)
    except KafkaException as failure:
        raise from_kafka(kafka_error(failure)) from None
    except (ValueError, TypeError) as wrong:
        raise HttpProblem(400, str(wrong), KAFKA_BAD_REQUEST) from None


async def _await_future(future: Future[T]) -> T:
    try:
        return await asyncio.wrap_future(future)
    except KafkaException as failure:
        raise from_kafka(kafka_error(failure)) from None


async def _gather_outcomes(futures: Iterable[Future[T]]) -> list[T | KafkaException]:
    """Return the outcomes in order; the errors of Kafka are among them, other errors are raised."""
    outcomes = await asyncio.gather(*(asyncio.wrap_future(each) for each in futures), return_exceptions=True)
    found: list[T | KafkaException] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, KafkaException):
            raise outcome
        found.append(outcome)
    return found
