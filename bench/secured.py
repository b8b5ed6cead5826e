"""One broker, ours or Apache's, with a listener for each security protocol, and the settings of clients for each.

    PLAINTEXT   for the set-up of a measurement: ANONYMOUS is a super user if there is an authorizer
    LOGIN       SASL_PLAINTEXT with SCRAM-SHA-512
    ECDSA, RSA  TLS, with a key on P-256 and one of 2048 bits

With `has_acls` there is an authorizer. The user of LOGIN has the ACLs of a producer and a consumer, and there are
`_OTHER_ENTRIES` ACLs of other users, as in a shared cluster.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cryptography.hazmat.primitives.asymmetric import rsa

from bench.apache import APACHE, HOST, QUIET, Side, port_of, running_apache, running_pessoa, sides
from bench.report import OURS
from tests.apache.broker import reserve_port
from tests.support.certificates import Authority
from tests.support.tls_settings import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

PLAINTEXT, LOGIN, ECDSA, RSA = "PLAINTEXT", "LOGIN", "ECDSA", "RSA"
_PROTOCOLS = {
    PLAINTEXT: "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
    LOGIN: "SASL_PLAINTEXT",
    ECDSA: "SSL",
    RSA: "SSL",
}
_USER, _PASSWORD = "ana", "secret"
_MECHANISM = "SCRAM-SHA-512"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_OTHER_ENTRIES = 100
_TIMEOUT_S = 60


class Secured(NamedTuple):
    """A running broker, with the settings of clients for each of its listeners."""

    plain: Side
    listeners: str
    files: TlsFiles

    def through(self, listener: str) -> Side:
        return self.plain._replace(
            port=port_of(listener, self.listeners),
            client={} if listener == PLAINTEXT else self._librdkafka(listener),
            java_client=None if listener == PLAINTEXT else self.java(listener),
        )

    def _librdkafka(self, listener: str) -> dict[str, str]:
        if listener == LOGIN:
            login = {"sasl.mechanism": _MECHANISM, "sasl.username": _USER, "sasl.password": _PASSWORD}
            return {"security.protocol": "SASL_PLAINTEXT", **login}
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.files.trust)}

    def java_settings(self, listener: str) -> dict[str, str]:
        if listener == LOGIN:
            login = f'{_MODULE} username="{_USER}" password="{_PASSWORD}";'
            return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": _MECHANISM, "sasl.jaas.config": login}
        return self.files.java_client()

    def java(self, listener: str) -> Path:
        return self.files.properties(listener, self.java_settings(listener))


def secured_sides(*, has_acls: bool) -> dict[str, Callable[[Path], AbstractContextManager[Secured]]]:
    starters = {OURS: running_pessoa, APACHE: running_apache}
    return {name: partial(_running, starters[name], has_acls=has_acls) for name in sides()}


@contextmanager
def _running(start: Callable[..., AbstractContextManager[Side]], data: Path, *, has_acls: bool) -> Iterator[Secured]:
    data.parent.mkdir(exist_ok=True)
    files = TlsFiles(data.parent, Authority("the authority of a measurement"))
    listeners = ",".join(f"{name}://{HOST}:{reserve_port()}" for name in _PROTOCOLS)
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    rsa_store = files.certify("rsa", key=rsa_key).write(files.folder / "rsa.pem")
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in _PROTOCOLS.items()),
        "inter.broker.listener.name": PLAINTEXT,
        "sasl.enabled.mechanisms": _MECHANISM,
        f"listener.name.login.{_MECHANISM.lower()}.sasl.jaas.config": f"{_MODULE};",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.trust),
        "listener.name.ecdsa.ssl.keystore.location": str(files.issue("ecdsa")),
        "listener.name.rsa.ssl.keystore.location": str(rsa_store),
    }
    if has_acls:
        settings |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    with start(data, settings) as plain:
        _add_user(plain)
        if has_acls:
            _add_entries(plain)
        yield Secured(plain, listeners, files)


def _add_user(side: Side) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    admin = AdminClient({"bootstrap.servers": side.bootstrap, **QUIET})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    made = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(_USER, info, _PASSWORD.encode())])
    made[_USER].result(_TIMEOUT_S)


def _add_entries(side: Side) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
    from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

    def entry(kind: ResourceType, name: str, user: str, operation: AclOperation) -> AclBinding:
        allow, pattern = AclPermissionType.ALLOW, ResourcePatternType.PREFIXED
        return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, allow)

    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    rights = (AclOperation.CREATE, AclOperation.WRITE, AclOperation.READ)
    entries = [entry(topic, "bench-", _USER, one) for one in rights]
    entries.append(entry(group, "bench-", _USER, AclOperation.READ))
    entries += [
        entry(topic, f"team-{number}-", f"user-{number}", AclOperation.WRITE) for number in range(_OTHER_ENTRIES)
    ]
    admin = AdminClient({"bootstrap.servers": side.bootstrap, **QUIET})
    for made in admin.create_acls(entries).values():
        made.result(_TIMEOUT_S)
