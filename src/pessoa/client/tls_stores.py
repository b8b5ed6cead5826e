"""The key and trust stores of a client, in whichever format they are: PEM, PKCS12 or JKS.

A type that is not said is read from the store: PEM where it stands in the settings or the file looks so. Java takes JKS
for granted, and would refuse such a file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pessoa.base.config_values import ConfigProblem
from pessoa.client.client_errors import BadSettings
from pessoa.security.tls.settings import TlsSettings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

_PEM = b"-----BEGIN"
_HEAD_BYTES = 4096


def client_tls_settings(settings: Mapping[str, str]) -> TlsSettings:
    """Return the `ssl.*` settings of a client; the type of a PEM store is detected if it is not set."""
    found = TlsSettings.of(settings)
    if "ssl.truststore.type" not in settings and _is_pem(found.truststore_location):
        found = replace(found, truststore_type="PEM")
    if "ssl.keystore.type" not in settings and _is_pem(found.keystore_location):
        found = replace(found, keystore_type="PEM")
    return found


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context of a client's connections. Raises BadSettings."""
    from pessoa.security.tls.contexts import client_context

    try:
        return client_context(client_tls_settings(settings))
    except ConfigProblem as problem:
        raise BadSettings(str(problem)) from problem


def stores_as_pem(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the contents of Java's stores under librdkafka's names, as PEM: `ssl.ca.pem`, `ssl.certificate.pem`,
    `ssl.key.pem`. Stores that are PEM are left out."""
    from pessoa.security.tls.stores import read_key_store, read_trust_store

    tls = client_tls_settings(settings)
    found: dict[str, str] = {}
    try:
        if tls.truststore_location and tls.truststore_type.upper() != "PEM":
            trust = read_trust_store(tls)
            found |= {} if trust is None else {"ssl.ca.pem": trust.pem()}
        if tls.keystore_location and tls.keystore_type.upper() != "PEM":
            own = read_key_store(tls)
            if own is not None:
                found |= {"ssl.certificate.pem": own.chain_pem().decode(), "ssl.key.pem": own.key_pem().decode()}
    except ConfigProblem as problem:
        raise BadSettings(str(problem)) from problem
    return found


def _is_pem(location: str) -> bool:
    if not location:
        return True
    try:
        with Path(location).open("rb") as file:
            return _PEM in file.read(_HEAD_BYTES)
    except OSError:
        # Reading the store says what is wrong.
        return False
