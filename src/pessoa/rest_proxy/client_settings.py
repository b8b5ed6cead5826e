"""Settings of a Kafka client as the JVM spells them, in librdkafka's spelling.

Most keys are the same. Those that are not are about who one is and whom one trusts: the JVM reads a JAAS sentence and
key stores, librdkafka plain user names and PEM files. A key store can be translated when it is of type PEM; a Java key
store (JKS) cannot be read here, and says so. Keys that only mean something inside a JVM are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

ClientSettings = dict[str, str | int | float | bool]

# Tuning of the JVM client's inside, without a counterpart.
JVM_ONLY = frozenset(
    """
    key.serializer value.serializer key.deserializer value.deserializer interceptor.classes metric.reporters
    sasl.login.class sasl.login.callback.handler.class sasl.client.callback.handler.class partitioner.class
    max.poll.records exclude.internal.topics buffer.memory max.block.ms schema.registry.url default.api.timeout.ms
    ssl.keystore.type ssl.truststore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.keymanager.algorithm ssl.engine.factory.class
    """.split()
)
RENAMED = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "request.timeout.ms": "socket.timeout.ms",
    "isolation.level": "isolation.level",
}
_JAAS_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s;]+))")


def librdkafka_settings(given: Mapping[str, str]) -> ClientSettings:
    found: ClientSettings = {}
    for key, value in given.items():
        if key in JVM_ONLY:
            continue
        if key == "sasl.jaas.config":
            found.update(_from_jaas(value))
        elif key == "ssl.keystore.location":
            found["ssl.certificate.location"] = found["ssl.key.location"] = value
        elif key == "ssl.endpoint.identification.algorithm":
            found[key] = value or "none"
        else:
            found[RENAMED.get(key, key)] = value
    # A PEM store has no password of its own, and librdkafka would take one to mean PKCS#12.
    if "ssl.certificate.location" in found:
        found.pop("ssl.keystore.password", None)
    found.pop("ssl.truststore.password", None)
    return found


def _from_jaas(sentence: str) -> ClientSettings:
    """The user name and password of a PLAIN or SCRAM login module."""
    options = {name: double or single or bare for name, double, single, bare in _JAAS_OPTION.findall(sentence)}
    return {
        f"sasl.{name}": re.sub(r"\\(.)", r"\1", options[name]) for name in ("username", "password") if name in options
    }
