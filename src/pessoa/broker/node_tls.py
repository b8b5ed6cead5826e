"""TLS of a node: what its listeners show and demand, and how it reaches other nodes through theirs.

    ssl.* of a listener ──► TlsSettings ──► stores ──► contexts ──► ServerTls for connections that come in
                                                               └──► TlsNetwork for nodes with that listener

Contexts are made when a node starts, before anything is on its disk: what is wrong with a store is said then. While it
runs, its stores may be replaced (KIP-226): by other values of the ten store keys, or by the same path with another
file behind it, once any setting of this broker is written again. Connections that are there stay as they are.

As in Kafka, a change must leave the broker what it is to others, or it is refused and the old stores stay:

- a store cannot appear or vanish, and no other `ssl.*` setting of a listener changes while it is open;
- the distinguished name stays (unless `ssl.allow.dn.changes`), and every alternative name (`ssl.allow.san.changes`);
- where nodes reach each other through the listener, what the key store shows must be trusted by the trust store: the
  two speak with each other once, in memory.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.config_values import ConfigProblem
from pessoa.broker.config_listeners import SecurityProtocol
from pessoa.net.tls import PeerRefused, ServerTls
from pessoa.net.tls_network import TlsNetwork
from pessoa.wire.request_context import ANONYMOUS

if TYPE_CHECKING:
    from pessoa.broker.config import BrokerConfig
    from pessoa.net.network import Network
    from pessoa.security.tls.principal_mapping import PrincipalMapping
    from pessoa.security.tls.settings import TlsSettings
    from pessoa.security.tls.stores import KeyStore

log = logging.getLogger("pessoa.broker")


class _ListenerTls(NamedTuple):
    """The TLS contexts of one listener. `files` are those of its stores, with their times and sizes when they were
    read."""

    settings: TlsSettings
    files: tuple[tuple[str, int, int], ...]
    key_store: KeyStore | None
    server: ServerTls | None
    client: ssl.SSLContext | None


class NodeTls:
    """The TLS contexts of a node's listeners; empty if none uses TLS. Raises a `ConfigProblem` if the stores of one are
    missing or invalid."""

    def __init__(self, config: BrokerConfig) -> None:
        self._listeners = {name: _make_listener_tls(config, name) for name in tls_listeners(config)}
        self._networks: dict[str, TlsNetwork] = {}

    def __repr__(self) -> str:
        return f"<NodeTls: {', '.join(self._listeners) or 'none'}>"

    def server(self, listener: str) -> ServerTls | None:
        """Return the TLS settings for connections to a listener; None if it does not use TLS."""
        found = self._listeners.get(listener)
        return None if found is None else found.server

    def network(self, network: Network, listener: str) -> Network:
        """Return the network through which other nodes are reached on their listener of this name."""
        if listener not in self._listeners:
            return network
        if listener not in self._networks:
            self._networks[listener] = TlsNetwork(network, lambda: self._client(listener))
        return self._networks[listener]

    def _client(self, listener: str) -> ssl.SSLContext:
        context = self._listeners[listener].client
        assert context is not None, f"{listener} is no listener through which nodes reach each other"
        return context

    def problem(self, config: BrokerConfig) -> ConfigProblem | None:
        """Return what is wrong with these settings for the open listeners; None if nothing is."""
        try:
            for name, present in self._listeners.items():
                _renew_listener_tls(config, name, present)
        except ConfigProblem as problem:
            return problem
        return None

    def follow(self, config: BrokerConfig) -> None:
        """Take over other stores for new connections. A listener whose new stores are invalid keeps the old ones."""
        for name, present in self._listeners.items():
            try:
                renewed = _renew_listener_tls(config, name, present)
            except ConfigProblem as problem:
                log.error("the TLS stores of %s stay as they were: %s", name, problem)  # noqa: TRY400
                continue
            if renewed is not present:
                log.info("the TLS stores of %s were read anew: %r", name, renewed.key_store)
                self._listeners[name] = renewed


def tls_listeners(config: BrokerConfig) -> Iterator[str]:
    """Yield the names of the TLS listeners that this node has, or through which it reaches others."""
    names = dict.fromkeys((*(one.name for one in config.listeners), *_names_between_nodes(config)))
    return (name for name in names if _protocol(config, name).has_tls)


def controller_listener(config: BrokerConfig) -> str:
    """Return the listener through which controllers are reached; empty if there is none."""
    return config.controller_listener_names[0].upper() if config.controller_listener_names else ""


def _names_between_nodes(config: BrokerConfig) -> list[str]:
    of_brokers = [config.inter_broker_listener_name] if config.is_broker else []
    return [*of_brokers, *filter(None, [controller_listener(config)])]


# ---- From settings ----


def _values(config: BrokerConfig) -> Mapping[str, str]:
    return {**config.static, **config.cluster_defaults, **config.broker_overrides}


def _settings(config: BrokerConfig, listener: str) -> TlsSettings:
    from dataclasses import replace

    from pessoa.security.tls.settings import TlsSettings

    values = _values(config)
    settings = TlsSettings.of(values, listener)
    named = f"listener.name.{listener.lower()}.ssl.client.auth"
    if _protocol(config, listener) is SecurityProtocol.SASL_SSL and named not in values:
        # As in Kafka: clients that log in need a certificate only where their listener says so by its name.
        return replace(settings, client_auth="none")
    return settings


def _protocol(config: BrokerConfig, listener: str) -> SecurityProtocol:
    return config.protocols.get(listener, SecurityProtocol.PLAINTEXT)


def _make_listener_tls(config: BrokerConfig, listener: str) -> _ListenerTls:
    from pessoa.security.tls.contexts import client_context, server_context
    from pessoa.security.tls.stores import read_key_store

    settings, values = _settings(config, listener), _values(config)
    is_between_nodes = listener in _names_between_nodes(config)
    try:
        files = _files(settings)
        key_store = read_key_store(settings)
        server = client = None
        if any(one.name == listener for one in config.listeners):
            server = ServerTls(server_context(settings, key_store), _principals(config, settings, listener))
        if is_between_nodes:
            client = client_context(settings, key_store)
            if server is not None:
                _check_own_trust(server.context, settings, key_store)
    except ConfigProblem as problem:
        named = f"listener.name.{listener.lower()}.{problem.key}"
        raise ConfigProblem(named if named in values else problem.key, problem.value, problem.why) from problem
    return _ListenerTls(settings, files, key_store, server, client)


def _principals(config: BrokerConfig, settings: TlsSettings, listener: str) -> Principals:
    from pessoa.security.tls.principal_mapping import PrincipalMapping

    mapping = PrincipalMapping(settings.principal_mapping_rules)
    return Principals(None if _protocol(config, listener) is SecurityProtocol.SASL_SSL else mapping)


class Principals:
    """Maps the certificate of a peer to its principal. Without a mapping the principal comes from SASL."""

    def __init__(self, mapping: PrincipalMapping | None) -> None:
        self._mapping = mapping

    def __call__(self, certificate: bytes | None) -> str:
        from pessoa.security.tls.distinguished_name import subject_of

        if certificate is None or self._mapping is None:
            return ANONYMOUS
        try:
            return f"User:{self._mapping.name_of(subject_of(certificate))}"
        except ValueError as error:
            raise PeerRefused(str(error)) from error


def _check_own_trust(server: ssl.SSLContext, settings: TlsSettings, key_store: KeyStore | None) -> None:
    """Raise a `ConfigProblem` if the trust store does not accept the node's own certificate: nodes with such stores
    could not form a cluster."""
    from dataclasses import replace

    from pessoa.security.tls.contexts import client_context

    client = client_context(replace(settings, endpoint_identification_algorithm=""), key_store)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    try:
        for side in (*sides, *sides, sides[1]):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        why = (
            "nodes reach each other through this listener, and its trust store does not trust what its key store shows"
        )
        message = getattr(error, "verify_message", "") or error.reason
        raise ConfigProblem("ssl.truststore.location", settings.truststore_location, f"{why}: {message}") from error


# ---- Renewal ----


def _files(settings: TlsSettings) -> tuple[tuple[str, int, int], ...]:
    """Return the files of the stores, with their modification times and sizes."""
    found = []
    for path in filter(None, (settings.keystore_location, settings.truststore_location)):
        try:
            status = os.stat(path)  # noqa: PTH116  # pathlib takes four milliseconds of a start
        except OSError:
            # Reading it says what is wrong.
            found.append((path, 0, 0))
        else:
            found.append((path, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _renew_listener_tls(config: BrokerConfig, listener: str, present: _ListenerTls) -> _ListenerTls:
    """Return the TLS contexts for this configuration: the present ones if nothing has changed. Raises a
    `ConfigProblem`."""
    from pessoa.security.tls.settings import STORE_KEYS, TlsSettings

    settings = _settings(config, listener)
    if settings == present.settings and _files(settings) == present.files:
        return present
    prefix = f"listener.name.{listener.lower()}."
    store_fields = {name.removeprefix("ssl.").replace(".", "_") for name in STORE_KEYS}
    for field in TlsSettings.__dataclass_fields__:
        if field not in store_fields and getattr(settings, field) != getattr(present.settings, field):
            key = f"{prefix}ssl.{field.replace('_', '.')}"
            raise ConfigProblem(key, None, "it cannot change while its listener is open")
    for store, has in (("keystore", "has_key_store"), ("truststore", "has_trust_store")):
        if getattr(settings, has) != getattr(present.settings, has):
            verb = "appear" if getattr(settings, has) else "vanish"
            raise ConfigProblem(
                f"{prefix}ssl.{store}.location", None, f"a store cannot {verb} while its listener is open"
            )
    renewed = _make_listener_tls(config, listener)
    if present.key_store is not None and renewed.key_store is not None:
        _check_same_owner(config, prefix, present.key_store, renewed.key_store)
    return renewed


def _check_same_owner(config: BrokerConfig, prefix: str, old: KeyStore, new: KeyStore) -> None:
    key = f"{prefix}ssl.keystore.location"
    if old.certificate.subject != new.certificate.subject and not config.value("ssl.allow.dn.changes"):
        was, is_now = (one.certificate.subject.rfc4514_string() for one in (old, new))
        raise ConfigProblem(key, None, f"its name was {was} and would be {is_now}; ssl.allow.dn.changes would allow it")
    gone = alternative_names(old) - alternative_names(new)
    if gone and not config.value("ssl.allow.san.changes"):
        raise ConfigProblem(key, None, f"its certificate would no longer be for {', '.join(sorted(gone))}; "
                            "ssl.allow.san.changes would allow it")  # fmt: skip


def alternative_names(store: KeyStore) -> set[str]:
    from cryptography import x509

    try:
        extension = store.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in extension.value}
