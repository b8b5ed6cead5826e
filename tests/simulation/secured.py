"""What a secured cluster has in addition: listeners that demand logins, clients that log in, a warden and an intruder.

The plan says whether a seed has it (`Plan.is_secured`, one in six). What a secured cluster draws comes from a generator
of its own, so the rest of a plan is the same with and without `is_secured`.

TLS is tested by the chaos tests. OpenSSL has its own randomness, so the bytes on the network would not follow from the
seed: `network` recognises a request that it may hold by its first bytes, and the sizes of signatures decide where a
piece is split. And a handshake takes 1.4 ms; a seed would have more than a hundred, a third of its time.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.intruder import Intruder
from tests.simulation.logins import Access, ScramLogin, TokenLogin, open_channel
from tests.simulation.node import BROKER_PORT, CONTROLLER_PORT
from tests.simulation.readers import READ_COMMITTED, Reader
from tests.simulation.rights import Rights
from tests.simulation.share_consumers import SHARE_GROUP, ShareMember
from tests.simulation.users import (
    INTRUDER,
    SHARER,
    WARDEN,
    first_records,
    grants,
    secured_listeners,
    security_settings,
    user_of,
)
from tests.simulation.warden import Warden

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from tests.simulation.client import Client
    from tests.simulation.cluster import Cluster
    from tests.simulation.plan import Plan

_TOKEN_READER = "d0"
_LAZY_READER = "r0"


class Security:
    def __init__(self, cluster: Cluster, topic: str, copies: str) -> None:
        plan = cluster.plan
        self._cluster = cluster
        self._topic = topic
        self._rng = Random(plan.seed ^ 0x5EC0)
        entries = grants(topic, copies, has_shares=plan.share_members > 0)
        self.rights = Rights(cluster.nodes, entries, lambda: cluster.loop.now_s)
        self.warden: Warden | None = None
        self._token_login: TokenLogin | None = None
        records = first_records(self.rights.entries)
        for node in cluster.nodes:
            node.first_records = records
        cluster.watch.rights, cluster.watch.history = self.rights, cluster.history

    def __repr__(self) -> str:
        return f"<Security: {self.rights!r}, {self.warden!r}>"

    def admit(self, client: Client) -> None:
        """Give a client a user and a way to log in."""
        rights, loop = self.rights, client.loop
        # The copier that reads on at the end has the name of the last copier.
        user = SHARER if isinstance(client, ShareMember) else user_of(client.name)
        rng = Random(self._rng.random())
        login: ScramLogin
        if client.name == _TOKEN_READER:
            self._token_login = login = TokenLogin(
                user,
                rights,
                loop,
                rng,
                open_channel(client.network, client.name),
                has_jumping_clocks="clock" in self._cluster.plan.faults,
            )
        else:
            login = ScramLogin(user, rights, loop, rng, is_lazy=client.name == _LAZY_READER)
        client.access = Access(f"User:{user}", login, rights, loop)

    def start(self) -> list[Client]:
        """Start the clients that only a secured cluster has."""
        cluster = self._cluster
        warden: Warden = cluster.client(Warden, WARDEN)
        warden.rights = self.rights
        self.warden = warden
        staff: list[Client] = [warden, self._intruder()]
        if "token" in cluster.plan.faults:
            reader: Reader = cluster.client(Reader, _TOKEN_READER)
            reader.partitions, reader.isolation = cluster.partitions, READ_COMMITTED
            staff.append(reader)
        others = [client.name for client in cluster.clients if not isinstance(client, (Warden, Intruder))]
        # Members of a share group are one user, and start later.
        warden.clients = [*others, "s0"] if cluster.plan.share_members else others
        return staff

    def _intruder(self) -> Intruder:
        cluster = self._cluster
        intruder: Intruder = cluster.client(Intruder, INTRUDER)
        intruder.partitions, intruder.cluster_id = cluster.partitions, cluster.cluster_id
        intruder.broker_hosts = [node.host for node in cluster.brokers]
        intruder.controller_hosts = [node.host for node in cluster.controllers]
        intruder.topic_id = self._topic_id
        intruder.share_group = SHARE_GROUP if cluster.plan.share_members else None
        return intruder

    def _topic_id(self) -> Uuid | None:
        for node in self._cluster.brokers:
            topic = node.broker.image.topics.by_name.get(self._topic) if node.broker is not None else None
            if topic is not None:
                return topic.id
        return None

    def order(self, what: str) -> None:
        if what == "token":
            if self._token_login is not None:
                self._token_login.must_expire = True
        elif self.warden is not None:
            self.warden.orders.append(what)


def secured_settings(plan: Plan, node_id: int, roles: str) -> dict[str, str]:
    listeners = secured_listeners(node_id, roles, CONTROLLER_PORT, BROKER_PORT)
    return {"listeners": listeners, **security_settings(roles, plan.reauth_ms)}
