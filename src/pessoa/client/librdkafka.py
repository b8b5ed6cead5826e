"""The settings of Kafka's Java clients as librdkafka has them, and which of its errors may pass.

Tools and services take the properties that Kafka's documentation names, which are the Java clients'. Most of them
librdkafka knows by the same name. This is the rest: other names, other values, and those that have no meaning there.
A setting that librdkafka does not know is left out with a warning, which is what the Java clients do too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import KafkaError

    from pessoa.client.bearer_tokens import FileCallback

_RENAMED = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "sasl.mechanism": "sasl.mechanisms",
}

# They belong to Java: classes, threads and buffers that librdkafka has in another way or not at all.
_MEANINGLESS = frozenset(
    """
    key.serializer value.serializer key.deserializer value.deserializer max.block.ms max.poll.records
    default.api.timeout.ms metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms interceptor.classes exclude.internal.topics ssl.truststore.type ssl.keystore.type
    ssl.truststore.password partitioner.ignore.keys partitioner.adaptive.partitioning.enable
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.keymanager.algorithm
    ssl.engine.factory.class sasl.login.class sasl.login.callback.handler.class sasl.client.callback.handler.class
    """.split()
)

# What is taken out of a store, and the settings that it stands for.
_STORE_OF = {
    "ssl.ca.pem": "ssl.truststore.",
    "ssl.certificate.pem": "ssl.keystore.",
    "ssl.key.pem": "ssl.key.",
}

# librdkafka's own errors that end when a broker comes back or all brokers have heard of a new topic; and the one of
# Kafka's that its Java clients do not try again.
_PASSING = frozenset(
    """
    _TRANSPORT _ALL_BROKERS_DOWN _TIMED_OUT _TIMED_OUT_QUEUE _RESOLVE _WAIT_COORD _UNKNOWN_TOPIC _UNKNOWN_PARTITION
    BROKER_NOT_AVAILABLE
    """.split()
)

_ASSIGNORS = {"RangeAssignor": "range", "RoundRobinAssignor": "roundrobin", "CooperativeStickyAssignor":
              "cooperative-sticky", "StickyAssignor": "range"}  # fmt: skip
_PARTITIONERS = {"RoundRobinPartitioner": "random", "DefaultPartitioner": "murmur2_random"}

# Smallest unit of librdkafka's producer queue is the kilobyte.
_KILOBYTE = 1024


# The prefixes of the settings for login and trust, for every client of Kafka.
_SECURITY = ("security.", "sasl.", "ssl.")


def security_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a client (Java's names) for its login and for the certificates that it trusts."""
    return {key: value for key, value in settings.items() if key.startswith(_SECURITY)}


def to_librdkafka(settings: Mapping[str, str], warn: Callable[[str], None]) -> dict[str, Any]:
    """Return the settings under librdkafka's names. `warn` is called with a sentence for each setting that
    librdkafka does not have. Values are texts, except the token callback of OAUTHBEARER if tokens are in a file."""
    bearer = _bearer(settings)
    found = _java_stores(settings)
    read_stores = {_STORE_OF[key] for key in found}
    for key, value in settings.items():
        if (
            key in _MEANINGLESS
            or (bearer and key.startswith("sasl.oauthbearer."))
            or any(key.startswith(store) for store in read_stores)
        ):
            continue
        if key == "sasl.jaas.config":
            found |= {} if bearer else _credentials(settings)
        elif key == "buffer.memory":
            found["queue.buffering.max.kbytes"] = str(max(1, int(value) // _KILOBYTE))
        elif key == "partition.assignment.strategy":
            names = [_ASSIGNORS.get(name.strip().rpartition(".")[2], name.strip()) for name in value.split(",")]
            found[key] = ",".join(dict.fromkeys(names))
        elif key == "partitioner.class":
            found["partitioner"] = _PARTITIONERS.get(value.rpartition(".")[2], value)
        elif key == "batch.size" and int(value) < 1:
            # Zero switches batching off in Java.
            found["batch.num.messages"] = "1"
        elif key == "ssl.keystore.location":
            # Java's PEM store has both in one file.
            found["ssl.certificate.location"] = found["ssl.key.location"] = value
        elif key == "ssl.endpoint.identification.algorithm":
            found[key] = value or "none"
        else:
            found[_RENAMED.get(key, key)] = value
    if "ssl.certificate.location" in found:
        # A PEM store has no password of its own, and librdkafka would take one to mean PKCS#12.
        found.pop("ssl.keystore.password", None)
    return {
        **_without_unknown({**found, **_texts(bearer)}, warn),
        **{name: one for name, one in bearer.items() if callable(one)},
    }


def _bearer(settings: Mapping[str, str]) -> dict[str, str | FileCallback]:
    if settings.get("sasl.mechanism") != "OAUTHBEARER" or "SASL" not in settings.get("security.protocol", "").upper():
        return {}
    from pessoa.client.bearer_tokens import for_librdkafka

    return for_librdkafka(settings)


def _texts(bearer: Mapping[str, str | FileCallback]) -> dict[str, str]:
    return {name: one for name, one in bearer.items() if isinstance(one, str)}


def _java_stores(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the contents of Java key and trust stores as PEM: librdkafka does not read them."""
    if not any(key.endswith("store.location") for key in settings):
        return {}
    from pessoa.client.tls_stores import stores_as_pem

    return stores_as_pem(settings)


def is_passing(error: KafkaError) -> bool:
    """Whether the same request may succeed in a moment.

    librdkafka marks the retriable errors of a transactional producer, but not those of a consumer or an admin client.
    Errors that brokers send are looked up in the table of `pessoa.wire.errors`.
    """
    if error.fatal():
        return False
    return error.retriable() or error.name() in _PASSING or ErrorCode.of(error.code()).retriable


# The prefixes of the settings for serialisers, which librdkafka does not know.
_SERIALISERS = ("schema.registry.", "basic.auth.", "bearer.auth.")


def serialiser_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a client for its serialisers and `client/registry_client.py`: where the schema registry
    is, and how to log in there."""
    return {key: value for key, value in settings.items() if key.startswith(_SERIALISERS)}


def check_addresses(servers: str, client: str) -> None:
    """Raise CannotConstruct for an invalid address: librdkafka would retry it for minutes."""
    from pessoa.client.client_errors import BadSettings, CannotConstruct
    from pessoa.client.cluster_client import parse_addresses

    try:
        parse_addresses(servers)
    except BadSettings as reason:
        raise CannotConstruct(client, reason) from reason


def _credentials(settings: Mapping[str, str]) -> dict[str, str]:
    from pessoa.client.login_options import login_options

    found = login_options(settings)
    return {f"sasl.{name}": found[name] for name in ("username", "password") if name in found}


def _without_unknown(settings: dict[str, str], warn: Callable[[str], None]) -> dict[str, str]:
    """Return the settings without those that this librdkafka does not know; unusual ones are tried on it."""
    from confluent_kafka import KafkaException, Producer

    known = {}
    for key, value in settings.items():
        if key.startswith(_SERIALISERS):
            continue
        if key not in _ORDINARY:
            try:
                Producer({key: value, "log_level": 0})
            except KafkaException as error:
                if "No such configuration property" in str(error):
                    warn(f"The configuration '{key}' was supplied but is not a known config.")
                    continue
                raise
        known[key] = value
    return known


# Settings that tools or users often set are known, and need not be tried.
_ORDINARY = frozenset(
    """
    bootstrap.servers client.id group.id auto.offset.reset isolation.level enable.auto.commit acks linger.ms batch.size
    compression.type retries retry.backoff.ms request.timeout.ms metadata.max.age.ms queue.buffering.max.kbytes
    socket.send.buffer.bytes socket.receive.buffer.bytes security.protocol sasl.mechanisms sasl.username sasl.password
    ssl.ca.location ssl.certificate.location ssl.key.location ssl.endpoint.identification.algorithm socket.timeout.ms
    group.protocol group.instance.id session.timeout.ms heartbeat.interval.ms
    max.poll.interval.ms partition.assignment.strategy transactional.id transaction.timeout.ms enable.idempotence
    max.partition.fetch.bytes fetch.min.bytes fetch.wait.max.ms max.in.flight.requests.per.connection partitioner
    message.max.bytes auto.commit.interval.ms delivery.timeout.ms group.remote.assignor fetch.max.bytes check.crcs
    """.split()
)
