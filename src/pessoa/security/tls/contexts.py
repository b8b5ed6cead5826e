"""SSL contexts from settings: one for the connections that come in at a listener, one for those that a node makes.

Both trust what the trust store has, or the system's authorities where there is none, and are as lenient about missing
extensions of certificates as Java is (`web/trust.py` says why). Neither renegotiates, compresses or speaks anything
older than TLS 1.2.

With TLS 1.3 no tickets are given out: every connection proves anew who its peer is. Sessions of TLS 1.2 can be resumed,
for OpenSSL's two hours at most and with the same context alone: Python cannot switch that off. So a listener refuses a
session whose certificate has expired since (`net.tls.refuse_expired`), and a trust store that changes makes another
context, in which no old session is known. Kafka's clients keep their connections long.
"""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pessoa.base.config_values import ConfigProblem, split_list
from pessoa.security.tls.cipher_suites import FIRST_OF_TLS_1_3, cipher_suites
from pessoa.security.tls.stores import read_key_store, read_trust_store

if TYPE_CHECKING:
    from pessoa.security.tls.settings import TlsSettings
    from pessoa.security.tls.stores import KeyStore, TrustStore

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
# Python has constants for the two from 3.13 and 3.10 on.
_STRICT = ssl.VerifyFlags.VERIFY_X509_STRICT
_PARTIAL_CHAIN = ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN


def server_context(settings: TlsSettings, key_store: KeyStore | None = None) -> ssl.SSLContext:
    """Return the context for the connections of a listener. Raises a `ConfigProblem`."""
    key_store = key_store or read_key_store(settings)
    if key_store is None:
        raise ConfigProblem("ssl.keystore.location", None, "a listener with TLS shows a certificate; name a key store")
    mode = _CLIENT_AUTH.get(settings.client_auth.lower())
    if mode is None:
        raise ConfigProblem("ssl.client.auth", settings.client_auth, f"it must be one of {', '.join(_CLIENT_AUTH)}")
    context = _restrict(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings)
    context.num_tickets = 0
    context.verify_mode = mode
    _load_key_store(context, key_store)
    if mode is not ssl.CERT_NONE:
        _trust(context, read_trust_store(settings))
    return context


def client_context(settings: TlsSettings, key_store: KeyStore | None = None) -> ssl.SSLContext:
    """Return the context for connections that this node makes: they present a certificate if there is a key store."""
    context = _restrict(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings)
    algorithm = settings.endpoint_identification_algorithm
    if algorithm.lower() not in ("", "https"):
        raise ConfigProblem("ssl.endpoint.identification.algorithm", algorithm, "it must be https or empty")
    context.check_hostname = bool(algorithm)
    key_store = key_store or read_key_store(settings)
    if key_store is not None:
        _load_key_store(context, key_store)
    _trust(context, read_trust_store(settings))
    return context


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> ssl.SSLContext:
    suites = cipher_suites(split_list(settings.cipher_suites))
    names = split_list(settings.enabled_protocols)
    for name in names:
        if name not in _VERSIONS:
            raise ConfigProblem("ssl.enabled.protocols", name, "only TLSv1.2 and TLSv1.3 are safe to speak")
    if suites.of_tls_1_2 or suites.of_tls_1_3:
        has_suites = {"TLSv1.2": suites.of_tls_1_2, "TLSv1.3": suites.of_tls_1_3}
        names = tuple(name for name in names if has_suites[name])
    if not names:
        key = "ssl.cipher.suites" if settings.cipher_suites else "ssl.enabled.protocols"
        raise ConfigProblem(
            key, settings.cipher_suites, "nothing is left of ssl.enabled.protocols that could be spoken"
        )
    if suites.of_tls_1_3 and FIRST_OF_TLS_1_3 not in suites.of_tls_1_3:
        raise ConfigProblem("ssl.cipher.suites", settings.cipher_suites,
                            f"{FIRST_OF_TLS_1_3} cannot be left out of the suites of TLS 1.3")  # fmt: skip
    versions = [_VERSIONS[name] for name in names]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_flags = (context.verify_flags & ~_STRICT) | _PARTIAL_CHAIN
    if suites.of_tls_1_2:
        _set_ciphers(context, settings.cipher_suites, suites.of_tls_1_2)
    return context


def _set_ciphers(context: ssl.SSLContext, wanted: str, suites: tuple[str, ...]) -> None:
    for suite in suites:
        # OpenSSL passes over what it does not know, unless there is nothing else.
        try:
            context.set_ciphers(suite)
        except ssl.SSLError as error:
            raise ConfigProblem("ssl.cipher.suites", wanted, f"{suite} is no cipher suite that OpenSSL has") from error
    context.set_ciphers(":".join(suites))


def _trust(context: ssl.SSLContext, store: TrustStore | None) -> None:
    if store is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=store.pem())


def _load_key_store(context: ssl.SSLContext, store: KeyStore) -> None:
    """Load the key and its certificates into the context, through a file: Python's `ssl` reads keys only from files."""
    password = secrets.token_hex(16).encode()
    with _unnamed_file(store.key_pem(password) + store.chain_pem()) as path:
        try:
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            why = f"OpenSSL does not take the key or its certificates: {error.reason or 'it does not say why'}"
            raise ConfigProblem("ssl.keystore.location", None, why) from error


@contextmanager
def _unnamed_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file in memory, where the system has them; elsewhere of a temporary file that only this
    user may read."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key store")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(content)
            file.flush()
            yield file.name
