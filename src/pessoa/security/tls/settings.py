"""The `ssl.*` settings of one listener, or of one client, as text.

A broker has them once for all listeners (`ssl.keystore.location`), and for each listener that differs with its name
before them (`listener.name.internal.ssl.keystore.location`), which wins. A client has no listeners.

Names are Kafka's. A `TlsSettings` shows no secret in its `repr`, and none of it is interpreted here: `stores.py` reads
the stores, `contexts.py` makes the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self

DEFAULT_PROTOCOLS = "TLSv1.2,TLSv1.3"

# The keys that a running broker may change (KIP-226): where its keys and its trust are.
STORE_KEYS = tuple(
    """
    ssl.keystore.type ssl.keystore.location ssl.keystore.password ssl.keystore.key ssl.keystore.certificate.chain
    ssl.key.password ssl.truststore.type ssl.truststore.location ssl.truststore.password ssl.truststore.certificates
    """.split()
)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The `ssl.*` settings. Attributes are Kafka's keys without `ssl.` and with underscores; an empty text is a key
    that is not set."""

    keystore_type: str = "JKS"
    keystore_location: str = ""
    keystore_password: str = field(default="", repr=False)
    keystore_key: str = field(default="", repr=False)
    keystore_certificate_chain: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore_type: str = "JKS"
    truststore_location: str = ""
    truststore_password: str = field(default="", repr=False)
    truststore_certificates: str = field(default="", repr=False)
    client_auth: str = "none"
    enabled_protocols: str = DEFAULT_PROTOCOLS
    cipher_suites: str = ""
    endpoint_identification_algorithm: str = "https"
    principal_mapping_rules: str = "DEFAULT"

    @classmethod
    def of(cls, values: Mapping[str, str], listener: str | None = None) -> Self:
        """Return the settings of a listener, or those without a listener's name."""
        prefix = "" if listener is None else f"listener.name.{listener.lower()}."
        found: dict[str, str] = {}
        for one in fields(cls):
            key = f"ssl.{one.name.replace('_', '.')}"
            text = values.get(prefix + key, values.get(key))
            if text is not None:
                found[one.name] = text.strip()
        return cls(**found)

    @property
    def has_key_store(self) -> bool:
        return bool(self.keystore_location or self.keystore_key or self.keystore_certificate_chain)

    @property
    def has_trust_store(self) -> bool:
        return bool(self.truststore_location or self.truststore_certificates)
