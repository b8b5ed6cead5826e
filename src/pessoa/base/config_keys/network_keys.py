"""Listeners, connections, requests and what is waited for."""

from __future__ import annotations

import re

from pessoa.base.config_table import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_INT,
    PER_BROKER,
    STRING,
    ConfigKey,
    key,
)
from pessoa.base.config_values import ENTRIES, SOME_ENTRIES, Rule, at_least, split_list

_PROTOCOL_OF_LISTENER = re.compile(r"[^:,\s]+\s*:\s*(PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)")
PROTOCOL_MAP = Rule(
    "a list of NAME:PROTOCOL, with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    lambda value: bool(value) and all(map(_PROTOCOL_OF_LISTENER.fullmatch, split_list(str(value)))),
)
_ENDPOINT = re.compile(r"[^:/\s]+://[^/\s]*:[0-9]{1,9}")
ENDPOINTS = Rule(
    "NAME://host:port, or several with commas between them",
    lambda value: isinstance(value, tuple) and bool(value) and all(map(_ENDPOINT.fullmatch, map(str, value))),
)
_LIMIT_OF_ADDRESS = re.compile(r"[^,\s]+\s*:\s*[0-9]{1,10}")
ADDRESS_LIMITS = Rule(
    "a list of host:count", lambda value: all(map(_LIMIT_OF_ADDRESS.fullmatch, split_list(str(value))))
)

# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    key("listeners", LIST, ("PLAINTEXT://:9092",), ENDPOINTS, HIGH, PER_BROKER,
        "Where to listen, as NAME://host:port; an empty host is every address."),
    key("advertised.listeners", LIST, None, SOME_ENTRIES, HIGH,
        "The addresses that clients are told; those of listeners if it is not set."),
    key("listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", PROTOCOL_MAP, LOW, PER_BROKER,
        "Which security protocol each listener speaks, as NAME:PROTOCOL."),
    key("inter.broker.listener.name", STRING, None, "The listener through which brokers reach each other."),
    key("early.start.listeners", LIST, None, ENTRIES, HIGH,
        "Listeners that accept connections before the authorizer is ready."),
    # Kafka's defaults for these and the backlog are 102400, 102400 and 50. One event loop comes by less often than
    # several threads, so more may wait for it; and the system sizes the buffers of each connection as it goes.
    key("socket.send.buffer.bytes", INT, -1, HIGH,
        "The send buffer (SO_SNDBUF) of server sockets; -1 leaves it to the system."),
    key("socket.receive.buffer.bytes", INT, -1, HIGH,
        "The receive buffer (SO_RCVBUF) of server sockets; -1 leaves it to the system."),
    key("socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH,
        "The largest request that is accepted; the sender of a larger one is disconnected."),
    key("socket.listen.backlog.size", INT, 512, at_least(1), "How many connections may wait to be accepted."),
    key("socket.connection.setup.timeout.ms", LONG, 10000,
        "How long a connection to another node may take to come up, at the first attempt."),
    key("socket.connection.setup.timeout.max.ms", LONG, 30000,
        "The limit up to which the time for later attempts grows."),
    key("max.connections", INT, MAX_INT, at_least(0), CLUSTER_WIDE,
        "How many connections are open at once, over all listeners."),
    key("max.connections.per.ip", INT, MAX_INT, at_least(0), CLUSTER_WIDE,
        "How many connections one address may have."),
    key("max.connections.per.ip.overrides", STRING, "", ADDRESS_LIMITS, CLUSTER_WIDE,
        "Other limits for single addresses or hosts, as host:count."),
    key("max.connection.creation.rate", INT, MAX_INT, at_least(0), CLUSTER_WIDE,
        "How many connections are accepted each second."),
    key("connections.max.idle.ms", LONG, 600000, "A connection that is silent for this long is closed."),
    key("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW,
        "How long the answer to a failed authentication is held back."),
    key("num.network.threads", INT, 3, at_least(1), HIGH, CLUSTER_WIDE,
        "Threads for each listener that read and write the network; one event loop does it here."),
    key("num.io.threads", INT, 8, at_least(1), HIGH, CLUSTER_WIDE,
        "Threads that serve requests; one event loop does it here."),
    key("background.threads", INT, 10, at_least(1), HIGH, CLUSTER_WIDE, "Threads for tasks in the background."),
    key("queued.max.requests", INT, 500, at_least(1), HIGH,
        "How many requests may wait before no more are read from the network."),
    key("queued.max.request.bytes", LONG, -1,
        "How many bytes of requests may wait before no more are read; -1 is 256 MiB."),
    key("request.timeout.ms", INT, 30000, HIGH, "How long the sender of a request between nodes waits for its answer."),
    key("fetch.max.bytes", INT, 57_671_680, at_least(1024),
        "The most record bytes in one answer to a fetch, even if the client allows more."),
    key("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0),
        "How many fetch sessions are kept at once."),
    key("max.request.partition.size.limit", INT, 2000, at_least(1),
        "The most partitions in one answer to DescribeTopicPartitions."),
    key("fetch.purgatory.purge.interval.requests", INT, 1000,
        "After how many finished requests waiting fetches are tidied."),
    key("producer.purgatory.purge.interval.requests", INT, 1000,
        "After how many finished requests waiting produce requests are tidied."),
    key("delete.records.purgatory.purge.interval.requests", INT, 1,
        "After how many finished requests waiting DeleteRecords are tidied."),
    key("share.fetch.purgatory.purge.interval.requests", INT, 1000,
        "After how many finished requests waiting share fetches are tidied."),
)
# fmt: on
