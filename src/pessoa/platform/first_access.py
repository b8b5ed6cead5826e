"""Who may enter a secured cluster when it has started: `admin`, and the services with what they need for themselves.

It runs between the start of the brokers and that of the services, as the first node: its password is in the brokers'
settings, so it can log in before there is any user. A user that the cluster has keeps its credentials, unless its
password file was lost and made anew. What services need is allowed at every start, since another version may need more.

A service may use its own topics and groups, and nothing of its users': the REST proxy acts as its callers, and what
connectors are to read or write is for the administrator to allow (`pessoa acls allow connect …`). The control centre
may do everything, and lets in administrators alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pessoa.client.acl_admin import Entry, Operation, Pattern, PatternType, Permission, ResourceType, create_acls
from pessoa.client.quota_admin import Credential, Mechanism, alter_credentials, describe_credentials

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.platform.secured_home import Secured
    from pessoa.platform.security_plan import Login

# Twice Kafka's least; passwords that are made here could not be guessed with one.
ITERATIONS = 8192
_CLUSTER = Pattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
_OWN_TOPIC = (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)


def _topic(name: str) -> Pattern:
    return Pattern(ResourceType.TOPIC, name, PatternType.LITERAL)


def _groups(prefix: str) -> Pattern:
    return Pattern(ResourceType.GROUP, prefix, PatternType.PREFIXED)


def _transactions(prefix: str) -> Pattern:
    return Pattern(ResourceType.TRANSACTIONAL_ID, prefix, PatternType.PREFIXED)


SERVICE_ACCESS: Mapping[str, Mapping[Pattern, tuple[Operation, ...]]] = {
    "schema-registry": {
        _topic("_schemas"): _OWN_TOPIC,
        _groups("schema-registry"): (Operation.READ,),
        _transactions("schema-registry"): (Operation.WRITE,),
    },
    "kafka-rest": {_CLUSTER: (Operation.DESCRIBE,)},
    "connect": {
        **{_topic(f"connect-{name}"): _OWN_TOPIC for name in ("configs", "offsets", "status")},
        # Of the workers, and of each connector that reads topics.
        _groups("connect-"): (Operation.READ,),
    },
    # It shows and changes what there is, for administrators.
    "control-center": {
        _CLUSTER: (Operation.ALL,),
        Pattern(ResourceType.TOPIC, "*", PatternType.LITERAL): (Operation.ALL,),
        Pattern(ResourceType.GROUP, "*", PatternType.LITERAL): (Operation.ALL,),
    },
    "ksql-server": {
        # Its command topic, and the internal topics and groups of its queries.
        Pattern(ResourceType.TOPIC, "_confluent-ksql-", PatternType.PREFIXED): (*_OWN_TOPIC, Operation.DELETE),
        _groups("_confluent-ksql-"): (Operation.READ, Operation.DELETE),
        _groups("ksql-"): (Operation.READ,),
        _transactions("_confluent-ksql-"): (Operation.WRITE,),
    },
}


def grant_first_access(secured: Secured) -> list[str]:
    """Give credentials to the users that lack them, and return the names of these users. Raises `KafkaFailure`."""
    from pessoa.base.properties import read_properties
    from pessoa.client.cluster_client import Cluster

    settings = read_properties(secured.files.client("broker-1"))
    with Cluster(settings["bootstrap.servers"], settings) as cluster:
        known = cluster.retried(lambda: describe_credentials(cluster, None), name="describeUserScramCredentials")
        wanted = [login for login in secured.users if login.name not in known or login.name in secured.fresh]
        for login in wanted:
            set_password(cluster, login)
        for login in secured.users:
            _allow(cluster, login.name, SERVICE_ACCESS.get(login.name, {}))
    return [login.name for login in wanted]


def set_password(cluster: Cluster, login: Login) -> None:
    mechanism = Mechanism[login.mechanism.replace("-", "_")]
    credential = Credential(mechanism, ITERATIONS, login.password)
    cluster.retried(lambda: alter_credentials(cluster, login.name, [credential], []), name="alterUserScramCredentials")


def _allow(cluster: Cluster, user: str, access: Mapping[Pattern, Iterable[Operation]]) -> None:
    for pattern, operations in access.items():
        entries = [Entry(f"User:{user}", "*", operation, Permission.ALLOW) for operation in operations]
        cluster.retried(partial(create_acls, cluster, pattern, entries), name="createAcls")
