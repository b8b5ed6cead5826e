"""Security of a secured round: SASL_SSL on every listener, users, access control lists, and certificates that are
replaced during the round.

    nodes     log in to each other with PLAIN, and are super users; so is `admin`, which checks the cluster
    clients   log in as `load` with SCRAM, with which the cluster is formatted, and have only the rights that they need

Every node has a certificate of its own, for the address under which it is known, signed by the authority of the round.
Sessions end after twenty seconds, so that clients authenticate again in the middle of a fault (KIP-368).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pessoa.client.blocking_connection import Connection
from pessoa.security.acl import (
    ALLOW,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WILDCARD,
    WRITE,
    Operation,
    ResourceType,
)
from pessoa.security.tls.authority import Authority
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.errors import ErrorCode
from tests.chaos.processes import TIMEOUT_S, until

if TYPE_CHECKING:
    from pessoa.wire.schema import Message
    from tests.chaos.processes import BrokerProcesses
    from tests.chaos.stage import Stage

R = TypeVar("R", bound="Message")

LISTENER = "CLIENTS"
ADMIN, CLIENT = "admin", "load"
MECHANISM = "SCRAM-SHA-256"
_JAAS = "org.apache.kafka.common.security"
_NODE = f'{_JAAS}.plain.PlainLoginModule required username="node" password="of-nodes" user_node="of-nodes";'
_REAUTH_MS = "20000"
# Handshakes and logins take long on a busy machine, and clients that give up early make it busier.
_SETUP_MS = "5000"
_BROKER_RESOURCE, _SET = 4, 0
# The rights that the clients of a round need: those of `load`, `doomed` and `watch`.
_GRANTS: tuple[tuple[Operation, ResourceType, str, int], ...] = (
    (READ, TOPIC, "in", LITERAL),
    (WRITE, TOPIC, "in", LITERAL),
    (READ, TOPIC, "out", LITERAL),
    (WRITE, TOPIC, "out", LITERAL),
    *((READ, GROUP, name, LITERAL) for name in ("members", "copier", "ends", "watch")),
    (READ, GROUP, "doomed-", PREFIXED),
    (WRITE, TRANSACTIONAL_ID, "copier", LITERAL),
    (WRITE, TRANSACTIONAL_ID, "doomed-", PREFIXED),
)


class Guard:
    """The authority, the certificates and the users of a round."""

    def __init__(self, directory: Path, hosts: Mapping[int, str]) -> None:
        self._directory = directory
        self._hosts = hosts
        self._authority = Authority.make("chaos", datetime.now(UTC))
        self._trusted = directory / "authority.pem"
        self._trusted.write_text(self._authority.certificate_pem())
        # Node → the number of its certificates so far.
        self._generations = dict.fromkeys(hosts, 0)
        for number in hosts:
            self._issue(number)

    def __repr__(self) -> str:
        return f"<Guard: {sum(self._generations.values())} certificates for {len(self._hosts)} nodes>"

    def _key_store(self, number: int) -> Path:
        return self._directory / f"key-{number}-{self._generations[number]}.pem"

    def _issue(self, number: int) -> str:
        """Write a new certificate of a node, and return its text."""
        self._generations[number] += 1
        text = self._authority.issue(f"node-{number}", [self._hosts[number], "localhost"], datetime.now(UTC))
        self._key_store(number).write_text(text)
        return text[text.index("-----BEGIN CERTIFICATE-----") :]

    def settings(self, number: int, *, is_broker: bool) -> dict[str, str]:
        of_clients, of_controllers = f"listener.name.{LISTENER.lower()}", "listener.name.controller"
        of_broker = {
            "inter.broker.listener.name": LISTENER,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"{of_clients}.sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
            f"{of_clients}.plain.sasl.jaas.config": _NODE,
        }
        return {
            "listener.security.protocol.map": f"{LISTENER}:SASL_SSL,CONTROLLER:SASL_SSL",
            **(of_broker if is_broker else {}),
            "sasl.mechanism.controller.protocol": "PLAIN",
            f"{of_controllers}.sasl.enabled.mechanisms": "PLAIN",
            f"{of_controllers}.plain.sasl.jaas.config": _NODE,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._key_store(number)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:node;User:{ADMIN}",
            "connections.max.reauth.ms": _REAUTH_MS,
        }

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of `pessoa broker` with the users that the cluster begins with."""
        users = [f"{MECHANISM}=[name={user},password={_password(user)}]" for user in (ADMIN, CLIENT)]
        return [word for user in users for word in ("--add-scram", user)]

    def client(self, user: str) -> dict[str, str]:
        """Return the settings that librdkafka needs to log in."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._trusted),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": _password(user),
            "socket.connection.setup.timeout.ms": _SETUP_MS,
        }

    def tool(self, user: str) -> dict[str, str]:
        """Return the same settings under the names of Kafka's own clients."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{_JAAS}.scram.ScramLoginModule required username="{user}" '
            f'password="{_password(user)}";',
        }

    # Actions of the administrator.

    def grant(self, brokers: BrokerProcesses) -> None:
        """Give the clients their rights. They retry until the brokers have applied that."""
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=pattern,
                principal=f"User:{CLIENT}",
                host=WILDCARD,
                operation=operation,
                permission_type=ALLOW,
            )
            for operation, kind, name, pattern in _GRANTS
        ]
        answer = self._ask(brokers.address(1), CreateAclsRequest(creations=creations), CreateAclsResponse)
        assert all(one.error_code == ErrorCode.NONE for one in answer.results), answer

    def replace(self, brokers: BrokerProcesses, number: int) -> None:
        """Replace the certificate of a broker, and wait until the broker presents the new one."""
        certificate, address = self._issue(number), brokers.address(number)
        change = AlterableConfig(
            name=f"listener.name.{LISTENER.lower()}.ssl.keystore.location",
            config_operation=_SET,
            value=str(self._key_store(number)),
        )
        resource = AlterConfigsResource(resource_type=_BROKER_RESOURCE, resource_name=str(number), configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = self._ask(address, request, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer
        until(lambda: _shown_at(address) == certificate.strip(), f"the new certificate of broker {number}")

    def _ask(self, address: str, request: Message, kind: type[R]) -> R:
        host, _, port = address.rpartition(":")
        deadline = time.monotonic() + TIMEOUT_S
        connection = Connection(host, int(port), ADMIN, self.tool(ADMIN), deadline)
        try:
            return connection.send(request, kind, deadline)
        finally:
            connection.close()


def _password(user: str) -> str:
    return f"password-of-{user}"


def _shown_at(address: str) -> str:
    """Return the certificate of a listener, or an empty text if it cannot be had."""
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        return ssl.get_server_certificate((host, int(port)), timeout=5).strip()
    return ""


def replace_certificates(stage: Stage) -> None:
    """Replace the certificate of every broker, one after the other, while clients and other nodes continue."""
    assert stage.guard is not None
    for number in stage.brokers:
        stage.guard.replace(stage.brokers, number)
        stage.load.wait_for(20)


SECURITY_FAULTS = {"replace certificates": replace_certificates}
