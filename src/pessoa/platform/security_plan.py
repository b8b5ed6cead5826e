"""The settings of a secured cluster, as texts: those of brokers, clients and services. No file is touched here.

    listener            protocol   mechanisms                  who logs in
    SASL_SSL            SASL_SSL   SCRAM-SHA-512/256, PLAIN    users and services; brokers with PLAIN
    TUTORIAL            SASL_SSL   SCRAM-SHA-512/256           users and services, by broker-1's other port
    CONTROLLER          SASL_SSL   PLAIN                       nodes, which must also show their certificates

Nodes log in with PLAIN because their passwords must be known before there is a metadata log: they stand in the settings
of every node. Those of users are in the metadata log (SCRAM), where they can be changed while the cluster runs. Both
travel within TLS only.

The principals of the nodes and `User:admin` are super users. To all other principals StandardAuthorizer allows what an
access control list allows, and nothing where there is none.

A login is a principal's name with its password; the files of a client are made of one. Services let callers in by the
same names and passwords (HTTP Basic), so the file of a client says where the schema registry is, too: Confluent's
serialisers and the console tools that know schemas read that there.

    service            who may call it
    schema-registry    every user
    kafka-rest         every user; it acts as its caller, so the brokers decide what a caller may do
    connect            who may ALTER the cluster: a connector reads files and runs code as the account of the platform
    control-center     who may ALTER the cluster: it sees and changes everything, for whom it lets in
    ksql-server        who may ALTER the cluster: statements read and write topics as the server, for any caller
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pessoa.client.librdkafka import security_settings, serialiser_settings
from pessoa.security.sasl.jaas import BadJaas, jaas_text, parse_jaas

ADMIN = "admin"
PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-512"
# Listeners that users reach, by the names that `process_plan.py` gives them; brokers reach each other by the first.
CLIENT_LISTENER, TUTORIAL_LISTENER, CONTROLLER_LISTENER = "SASL_SSL", "TUTORIAL", "CONTROLLER"
_SCRAMS = "SCRAM-SHA-512,SCRAM-SHA-256"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_JAAS = "sasl.jaas.config"
# What the settings of all clients of a cluster have in common; the rest may be a key or a password of their owner.
_SHARED_BY_CLIENTS = (
    "bootstrap.servers",
    "security.protocol",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "ssl.endpoint.identification.algorithm",
    "schema.registry.url",
    "schema.registry.ssl.truststore.type",
    "schema.registry.ssl.truststore.location",
)
_REGISTRY = "schema.registry.url"

# Names that are the same in a file system, in JAAS, in SCRAM and in a shell.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
_NODE = re.compile(r"broker-\d+")

# What stands before the settings of Kafka clients in the file of each service.
SERVICE_PREFIXES = {
    "schema-registry": "kafkastore.", "kafka-rest": "client.", "connect": "", "ksql-server": "", "control-center": "",
}  # fmt: skip


class BadName(ValueError):
    """A name that cannot be a user's; the sentence says which names can."""


class Login(NamedTuple):
    """A user's name and password for SASL; `repr` does not show the password."""

    name: str
    password: str
    mechanism: str = SCRAM

    def __repr__(self) -> str:
        return f"<Login {self.name} with {self.mechanism}>"


def node_name(node_id: int) -> str:
    return f"broker-{node_id}"


def check_user_name(name: str) -> None:
    """Raise `BadName` for a name that a user cannot have: that of a node, or one with other characters."""
    if _NODE.fullmatch(name):
        raise BadName(f"{name} is the name of a node, which may do everything; choose another one.")
    if not _NAME.fullmatch(name):
        raise BadName(
            f"{name!r} cannot be the name of a user: take up to 128 letters, digits and . _ @ - (no - first)."
        )


def jaas_of(login: Login, others: Sequence[Login] = ()) -> str:
    """Return the `sasl.jaas.config` of a login; a broker with PLAIN accepts the logins `others` too."""
    users = {f"user_{other.name}": other.password for other in others}
    return jaas_text(login.mechanism, {"username": login.name, "password": login.password, **users})


def read_login(settings: Mapping[str, str]) -> Login | None:
    """Return the login in the settings of a client; None if the user name or the password is missing."""
    mechanism = settings.get("sasl.mechanism", "")
    try:
        found = parse_jaas(settings.get(_JAAS, ""), mechanism)
    except BadJaas:
        return None
    return Login(found.username, found.password, mechanism) if found.username and found.password else None


def client_settings(login: Login, servers: str, authority: Path, registry: str = "") -> dict[str, str]:
    """Return the settings of a login for Kafka's Java clients, and for `--command-config` of the tools."""
    return {
        **(login_at_registry(login, registry, authority) if registry else {}),
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": login.mechanism,
        _JAAS: jaas_of(login),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }


def login_at_registry(login: Login, url: str, authority: Path) -> dict[str, str]:
    """Return the `schema.registry.…` settings with which a serialiser connects and logs in to the schema registry."""
    return {
        _REGISTRY: url,
        "schema.registry.ssl.truststore.type": "PEM",
        "schema.registry.ssl.truststore.location": str(authority),
        **_registry_login(login),
    }


def _registry_login(login: Login) -> dict[str, str]:
    return {
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": f"{login.name}:{login.password}",
    }


def with_login(settings: Mapping[str, str], login: Login) -> dict[str, str]:
    """Return the settings of a client for another login. Of the given ones it keeps the addresses of brokers and
    registry and the trust store, nothing else."""
    shared = {key: settings[key] for key in _SHARED_BY_CLIENTS if key in settings}
    registry = _registry_login(login) if _REGISTRY in shared else {}
    return {**shared, "sasl.mechanism": login.mechanism, _JAAS: jaas_of(login), **registry}


def netrc_text(login: Login, machines: Iterable[str]) -> str:
    """Return a netrc file with the login for curl (`--netrc-file`), which then has no password on its command line."""
    password = login.password.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(f'machine {one} login {login.name} password "{password}"\n' for one in machines)


def librdkafka_settings(settings: Mapping[str, str], login: Login) -> dict[str, str]:
    """Return a client's settings under librdkafka's keys, for confluent-kafka, kcat and the like. The trust store
    must be a PEM file."""
    renamed = {"ssl.truststore.location": "ssl.ca.location"}
    kept = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "ssl.truststore.location")
    found = {renamed.get(key, key): settings[key] for key in kept if key in settings}
    return {**found, "sasl.username": login.name, "sasl.password": login.password}


def service_settings(service: str, client: Mapping[str, str], key_store: Path, authority: Path) -> dict[str, str]:
    """Return the settings of a service: how it logs in to brokers and registry, and which users it lets in."""
    prefix = SERVICE_PREFIXES.get(service, "")
    own = {prefix + key: value for key, value in security_settings(client).items()}
    registry = serialiser_settings(client)
    serving = {
        # Which port it is stands on the command line.
        "listeners": "https://127.0.0.1:0",
        "pessoa.authentication.kafka": "true",
    }
    https = {"ssl.keystore.location": str(key_store), "ssl.truststore.location": str(authority)}
    match service:
        case "schema-registry":
            return {**own, **serving, **https, "authentication.method": "BASIC"}
        case "kafka-rest":
            at_registry = {f"schema.registry.{key.removeprefix('schema.registry.')}": registry[key] for key in registry}
            return {**own, **serving, **https, **at_registry, "confluent.rest.auth.propagate.method": "JETTY_AUTH"}
        case "control-center":
            # It shows and changes everything with its own rights, so its callers need those of an administrator.
            return {**own, **serving, **https, **registry, "pessoa.authentication.kafka.operation": "ALTER"}
        case "connect":
            converters = {f"{side}.converter.{key}": registry[key] for side in ("key", "value") for key in registry}
            at_https = {f"listeners.https.{key}": value for key, value in https.items()}
            return {**own, **serving, **at_https, **converters, "pessoa.authentication.kafka.operation": "ALTER"}
        case "ksql-server":
            at_registry = {
                f"ksql.{key}": value for key, value in registry.items() if key.startswith("schema.registry.")
            }
            at_registry |= {
                f"ksql.schema.registry.{key}": registry[key] for key in registry if key.startswith("basic.")
            }
            at_https = {f"listeners.https.{key}": value for key, value in https.items()}
            # Statements about connectors go to Connect with the login of their caller.
            at_connect = {"ksql.connect.ssl.truststore.location": str(authority)}
            return {
                **own,
                **serving,
                **at_https,
                **at_registry,
                **at_connect,
                "pessoa.authentication.kafka.operation": "ALTER",
            }
    return own


def broker_settings(node: Login, nodes: Sequence[Login], key_store: Path, authority: Path) -> dict[str, str]:
    """Return the security settings of a node: key store, trust store, SASL mechanisms, authorizer and super users."""
    between_nodes = jaas_of(node, nodes)
    supers = ";".join(f"User:{name}" for name in (ADMIN, *(one.name for one in nodes)))
    client, tutorial, controller = (
        f"listener.name.{name.lower()}." for name in (CLIENT_LISTENER, TUTORIAL_LISTENER, CONTROLLER_LISTENER)
    )
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        f"{controller}ssl.client.auth": "required",
        f"{client}sasl.enabled.mechanisms": f"{_SCRAMS},{PLAIN}",
        f"{tutorial}sasl.enabled.mechanisms": _SCRAMS,
        f"{controller}sasl.enabled.mechanisms": PLAIN,
        f"{client}plain.{_JAAS}": between_nodes,
        f"{controller}plain.{_JAAS}": between_nodes,
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "sasl.mechanism.controller.protocol": PLAIN,
        "authorizer.class.name": _AUTHORIZER,
        "super.users": supers,
    }


def listener_settings(client_port: int, tutorial_port: int, controller_port: int, host: str) -> dict[str, str]:
    """Return the listeners of a node of a secured cluster, with their ports and protocols."""
    names = (CLIENT_LISTENER, TUTORIAL_LISTENER, CONTROLLER_LISTENER)
    ports = zip(names, (client_port, tutorial_port, controller_port), strict=True)
    return {
        # A broker with a settings file has no roles but those in the file.
        "process.roles": "broker,controller",
        "listeners": ",".join(f"{name}://{host}:{port}" for name, port in ports),
        "advertised.listeners": ",".join(f"{name}://{host}:{client_port}" for name in names[:2]),
        "listener.security.protocol.map": ",".join(f"{name}:SASL_SSL" for name in names),
        "inter.broker.listener.name": CLIENT_LISTENER,
        "controller.listener.names": CONTROLLER_LISTENER,
        "pessoa.metrics.listener": CLIENT_LISTENER,
    }
