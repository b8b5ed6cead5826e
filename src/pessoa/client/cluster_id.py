"""The id of the cluster, which a service asks for when it starts: until brokers answer, there is nothing to serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from pessoa.client.client_errors import KafkaFailure
from pessoa.client.cluster_client import Cluster
from pessoa.client.topic_creation import TopicUnavailable

log = logging.getLogger(__name__)

# The longest that one request to a cluster that may not be there takes, so that a start can be interrupted.
ATTEMPT_MS = 1000


async def wait_for_cluster_id(servers: str, settings: Mapping[str, str], timeout_s: float) -> str:
    """Return the cluster id as soon as a broker answers; TopicUnavailable if none does in time. `settings` are those
    of the Java clients."""

    def ask() -> str:
        with Cluster(servers, {**settings, "default.api.timeout.ms": str(ATTEMPT_MS)}) as cluster:
            return cluster.describe().cluster_id

    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while True:
        try:
            return await asyncio.to_thread(ask)
        except KafkaFailure as failure:
            if loop.time() > deadline_s:
                raise TopicUnavailable(f"Kafka at {servers} does not answer: {failure}", may_pass=True) from None
            log.info("waiting for Kafka at %s", servers)
