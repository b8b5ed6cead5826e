"""The table of API v2."""

from __future__ import annotations

from pessoa.rest_proxy.media import ANY_V2, JSON, MEDIA_TYPES, PRODUCED_METADATA, PRODUCED_RECORDS
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.v2 import v2_bodies as bodies
from pessoa.rest_proxy.v2.consumer_endpoints import ConsumerEndpoints
from pessoa.rest_proxy.v2.metadata_endpoints import MetadataEndpoints
from pessoa.rest_proxy.v2.produce_endpoints import ProduceEndpoints
from pessoa.web.routing import Endpoint, Handler, Query

INSTANCE = "/consumers/{group}/instances/{instance}"
TOPIC = "/topics/{topic}"
PARTITION = "/topics/{topic}/partitions/{partition}"
EMBEDDED = tuple(MEDIA_TYPES.values())

# Each with its name in the settings that allow and block endpoints.
Rows = list[tuple[str, Endpoint]]


def v2_endpoints(proxy: Proxy) -> Rows:
    return _topic_endpoints(proxy) + _consumer_endpoints(proxy)


def _topic_endpoints(proxy: Proxy) -> Rows:
    """Return the endpoints for metadata and for produce."""
    metadata = MetadataEndpoints(proxy)
    produce = ProduceEndpoints(proxy)
    return [
        ("api.v2.root.get", get("/", metadata.root, "Is the proxy there?", dict[str, str])),
        ("api.v2.root.post", Endpoint("POST", "/", metadata.root, "The same by POST", body=dict[str, str],
                                      answer=dict[str, str], consumes=(JSON, *ANY_V2))),
        ("api.v2.topics.list", get("/topics", metadata.topics, "The names of all topics", list[str])),
        ("api.v2.topics.get", get(TOPIC, metadata.topic, "A topic with configuration and partitions", bodies.Topic)),
        ("api.v2.produce-to-topic", writing(TOPIC, produce.to_topic, "Write records to a topic")),
        ("api.v2.partitions.list", get(f"{TOPIC}/partitions", metadata.partitions, "The partitions of a topic",
                                       list[bodies.PartitionOfTopic])),
        ("api.v2.partitions.get", get(PARTITION, metadata.partition, "A partition", bodies.PartitionOfTopic)),
        ("api.v2.partitions.offsets", get(f"{PARTITION}/offsets", metadata.offsets, "Its first and its end offset",
                                          bodies.Bounds)),
        ("api.v2.produce-to-partition", writing(PARTITION, produce.to_partition, "Write records to a partition")),
        ("api.v2.brokers.list", get("/brokers", metadata.brokers, "The ids of all brokers", bodies.Brokers)),
    ]  # fmt: skip


def _consumer_endpoints(proxy: Proxy) -> Rows:
    consumers = ConsumerEndpoints(proxy)
    reading = Endpoint(
        "GET", f"{INSTANCE}/records", consumers.records, "Read records",
        query=(Query("timeout", "integer", "milliseconds"), Query("max_bytes", "integer", "of keys and values")),
        answer=list[bodies.ReadRecord], produces=PRODUCED_RECORDS,
    )  # fmt: skip
    return [
        ("api.v2.consumers.create", asking("POST", "/consumers/{group}", consumers.create, "Create a consumer instance",
                                           bodies.CreateConsumer, bodies.CreatedConsumer)),
        ("api.v2.consumers.delete", asking("DELETE", INSTANCE, consumers.delete, "End a consumer instance")),
        ("api.v2.consumers.subscribe", asking("POST", f"{INSTANCE}/subscription", consumers.subscribe,
                                              "Subscribe to topics", bodies.Subscription)),
        ("api.v2.consumers.get-subscription", asking("GET", f"{INSTANCE}/subscription", consumers.subscription,
                                                     "What is subscribed to", answer=bodies.Subscribed)),
        ("api.v2.consumers.unsubscribe", asking("DELETE", f"{INSTANCE}/subscription", consumers.unsubscribe,
                                                "Subscribe to nothing")),
        ("api.v2.consumers.assign", asking("POST", f"{INSTANCE}/assignments", consumers.assign,
                                           "Assign partitions by hand", bodies.Partitions)),
        ("api.v2.consumers.get-assignments", asking("GET", f"{INSTANCE}/assignments", consumers.assignment,
                                                    "The assigned partitions", answer=bodies.Partitions)),
        ("api.v2.consumers.seek-to-offset", asking("POST", f"{INSTANCE}/positions", consumers.seek,
                                                   "Read on from offsets or times", bodies.Positions)),
        ("api.v2.consumers.seek-to-beginning", asking("POST", f"{INSTANCE}/positions/beginning",
                                                      consumers.seek_to_beginning, "Read on from the beginning",
                                                      bodies.Partitions)),
        ("api.v2.consumers.seek-to-end", asking("POST", f"{INSTANCE}/positions/end", consumers.seek_to_end,
                                                "Read on from the end", bodies.Partitions)),
        ("api.v2.consumers.consume", reading),
        ("api.v2.consumers.commit-offsets", asking("POST", f"{INSTANCE}/offsets", consumers.commit, "Commit offsets",
                                                   bodies.Offsets, list[int], (Query("async", "boolean"),))),
        ("api.v2.consumers.get-committed-offsets", asking("GET", f"{INSTANCE}/offsets", consumers.committed,
                                                          "What is committed (with a body that names partitions)",
                                                          answer=bodies.Offsets)),
    ]  # fmt: skip


def get(path: str, handle: Handler, summary: str, answer: object) -> Endpoint:
    # People type these into a browser or ask for plain JSON; both are welcome to it.
    produces = (*PRODUCED_METADATA, f"{JSON}; qs=0.5")
    return Endpoint("GET", path, handle, summary, answer=answer, produces=produces)


def writing(path: str, handle: Handler, summary: str) -> Endpoint:
    return Endpoint("POST", path, handle, summary, body=bodies.Produce, answer=bodies.Produced,
                    consumes=EMBEDDED, produces=(*PRODUCED_METADATA, f"{JSON}; qs=0.5"))  # fmt: skip


def asking(
    method: str, path: str, handle: Handler, summary: str,
    body: object = None, answer: object = None, query: tuple[Query, ...] = (),
) -> Endpoint:  # fmt: skip
    status = 204 if answer is None else 200
    return Endpoint(method, path, handle, summary, query=query, body=body, answer=answer, status=status,
                    consumes=ANY_V2, produces=(*ANY_V2, f"{JSON}; qs=0.5"))  # fmt: skip
