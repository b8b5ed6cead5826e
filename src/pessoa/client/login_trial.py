"""Whether a user and a password are right, asked of the brokers by logging in with them.

It is how a service checks its callers without a table of users of its own: who is removed from the cluster can no
longer log in anywhere. The settings are those of the service's own clients, with another login in them: where the
brokers are, what proves that they are, and by which mechanism users log in.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from pessoa.client.blocking_connection import Connection, ConnectionFailed
from pessoa.client.client_errors import AuthenticationFailed
from pessoa.client.cluster_client import parse_addresses
from pessoa.security.sasl.jaas import jaas_text

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CLIENT_ID = "pessoa-login-trial"


def can_log_in(settings: Mapping[str, str]) -> bool:
    """Whether users log in with a name and a password where these settings of a client lead."""
    protocol, mechanism = settings.get("security.protocol", "").upper(), settings.get("sasl.mechanism", "")
    return protocol.startswith("SASL_") and mechanism in MECHANISMS


def with_user(settings: Mapping[str, str], name: str, password: str) -> dict[str, str]:
    """The settings of a client (Java's names), with the login of another user."""
    mechanism = settings["sasl.mechanism"]
    return {**settings, "sasl.jaas.config": jaas_text(mechanism, {"username": name, "password": password})}


def is_login_right(servers: str, settings: Mapping[str, str], name: str, password: str, timeout_s: float) -> bool:
    """Log in to the first broker that answers, and leave. `ConnectionFailed` if none does."""
    deadline = time.monotonic() + timeout_s
    own = with_user(settings, name, password)
    failure: ConnectionFailed | None = None
    for host, port in parse_addresses(servers):
        try:
            connection = Connection(host, port, _CLIENT_ID, own, deadline)
        except AuthenticationFailed:
            return False
        except ConnectionFailed as error:
            failure = error
            continue
        connection.close()
        return True
    assert failure is not None, "there is at least one address"
    raise failure
