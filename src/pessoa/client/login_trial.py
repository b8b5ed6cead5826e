"""Whether a user and a password, or a bearer token, are right: asked of the brokers by logging in with them.

It is how a service checks its callers without a table of users of its own: who is removed from the cluster can no
longer log in anywhere. The settings are those of the service's own clients, with another login in them: where the
brokers are, what proves that they are, and by which mechanism users log in. What the user is allowed to do to the
cluster can be asked in the same breath.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from pessoa.client.blocking_connection import Connection, ConnectionFailed
from pessoa.client.client_errors import AuthenticationFailed, check
from pessoa.client.cluster_client import parse_addresses
from pessoa.security.sasl.jaas import jaas_text

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CLIENT_ID = "pessoa-login-trial"


def can_log_in(settings: Mapping[str, str]) -> bool:
    """Whether the listener of these client settings takes logins with a name and a password."""
    protocol, mechanism = settings.get("security.protocol", "").upper(), settings.get("sasl.mechanism", "")
    return protocol.startswith("SASL_") and mechanism in MECHANISMS


def with_user(settings: Mapping[str, str], name: str, password: str) -> dict[str, str]:
    """Return the settings of a client (Java's names), with the login of another user."""
    mechanism = settings["sasl.mechanism"]
    return {**settings, "sasl.jaas.config": jaas_text(mechanism, {"username": name, "password": password})}


def log_in(
    servers: str,
    settings: Mapping[str, str],
    name: str,
    password: str,
    timeout_s: float,
    *,
    with_operations: bool = False,
) -> int | None:
    """Log in to the first broker that answers, and disconnect. Return None if the login is refused, else the
    operations on the cluster that the user is allowed (bits by Kafka's numbers; 0 without `with_operations`).
    `ConnectionFailed` if no broker answers."""
    return log_in_with(servers, with_user(settings, name, password), timeout_s, with_operations=with_operations)


def log_in_with(
    servers: str, settings: Mapping[str, str], timeout_s: float, *, with_operations: bool = False
) -> int | None:
    """Do as `log_in` does, with the login in the settings."""
    deadline = time.monotonic() + timeout_s
    failure: ConnectionFailed | None = None
    for host, port in parse_addresses(servers):
        try:
            connection = Connection(host, port, _CLIENT_ID, settings, deadline)
            try:
                return _operations(connection, deadline) if with_operations else 0
            finally:
                connection.close()
        except AuthenticationFailed:
            return None
        except ConnectionFailed as error:
            failure = error
    assert failure is not None, "there is at least one address"
    raise failure


def _operations(connection: Connection, deadline: float) -> int:
    from pessoa.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    found = connection.send(request, DescribeClusterResponse, deadline)
    check(found.error_code, found.error_message)
    # A broker that does not tell them leaves the least number there.
    return max(found.cluster_authorized_operations, 0)
