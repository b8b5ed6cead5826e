"""The election of the leading registry: a Kafka group of protocol type "sr", with the sub-protocol "v0".

Every instance joins with its identity (where it can be reached, and whether it may lead). The member that the group
coordinator makes the group's leader looks at all identities and picks the registry's leader; SyncGroup sends its
identity to all instances. An instance that dies stops its heartbeats, and after the session timeout the others have to
join again. The JSON is that of the JVM registry, so instances of both kinds can share a group:

    identity     {"version":1,"host":"h","port":8081,"master_eligibility":true,"scheme":"http"}
    assignment   {"version":1,"error":0,"master":"<member id>","master_identity":{…}}

It runs in a thread of its own with the blocking client: JoinGroup may take as long as the slowest member, and a
heartbeat must not wait for anything that the service does. Each change is passed to `tell`, in this thread: an
identity, or None while it is not known.

The group decides which instance *should* write. The transactional producer (schemas_topic.py) ensures that no other
instance *can*.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pessoa.base.json_value import JsonObject
from pessoa.client.client_errors import KafkaFailure, RequestFailed
from pessoa.client.cluster_client import Cluster
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from pessoa.wire.errors import ErrorCode

log = logging.getLogger("pessoa.schema_registry")

PROTOCOL_TYPE = "sr"
PROTOCOL = "v0"
# As many heartbeats as may be lost before the session ends.
_HEARTBEATS_PER_SESSION = 3
_BACKOFF_S = 0.25
# Long enough for brokers that answer, and short beside the patience of a supervisor that stops us.
_LEAVE_S = 5.0
_NO_ERROR = 0
_DUPLICATE_URLS = 1


class Identity(NamedTuple):
    host: str
    port: int
    scheme: str = "http"
    is_eligible: bool = True

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def encode(self) -> bytes:
        return json.dumps(self.tree(), separators=(",", ":")).encode()

    def tree(self) -> JsonObject:
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
        }


def decode_identity(tree: Mapping[str, Any]) -> Identity:
    # Both spellings exist among releases of the JVM registry.
    eligible = tree.get("leader_eligibility", tree.get("master_eligibility", True))
    return Identity(str(tree["host"]), int(tree["port"]), str(tree.get("scheme", "http")), bool(eligible))


def choose(members: Mapping[str, Identity], current: Identity | None) -> tuple[str, Identity] | None:
    """Return the leader's member id and identity: the present leader if it is eligible, so that leadership does not
    move without need; else the first by address. None if no member is eligible."""
    eligible = sorted((identity.url, member) for member, identity in members.items() if identity.is_eligible)
    if not eligible:
        return None
    chosen = next((member for url, member in eligible if current is not None and url == current.url), eligible[0][1])
    return chosen, members[chosen]


def make_assignment(members: Mapping[str, Identity], current: Identity | None) -> bytes:
    urls = [identity.url for identity in members.values()]
    chosen = choose(members, current)
    tree: JsonObject = {"version": 1, "error": _NO_ERROR}
    if len(set(urls)) < len(urls):
        tree["error"] = _DUPLICATE_URLS
    elif chosen is not None:
        tree |= {"master": chosen[0], "master_identity": chosen[1].tree()}
    return json.dumps(tree, separators=(",", ":")).encode()


class Election:
    """A member of the registries' group, whose protocol elects the leader. `tell(identity, is_me)` is called with
    each change of the leader, from the election's thread."""

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Mapping[str, str],
        group: str,
        identity: Identity,
        session_timeout_ms: int,
        tell: Callable[[Identity | None, bool], None],
    ) -> None:
        self._thread = threading.Thread(target=self._run, name="registry-election", daemon=True)
        self._bootstrap_servers = bootstrap_servers
        self._settings = {"client.id": f"sr-{identity.host}-{identity.port}", **settings}
        self._group = group
        self._identity = identity
        self._session_timeout_ms = session_timeout_ms
        self._tell = tell
        self._leave = threading.Event()
        self._member_id = ""
        self._generation = -1
        self._leader: Identity | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group, so that the other members need not wait for the session timeout; give up if the broker
        does not answer."""
        self._leave.set()
        self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        while not self._leave.is_set():
            try:
                with Cluster(self._bootstrap_servers, self._settings) as cluster:
                    self._be_member(cluster)
            except (KafkaFailure, OSError, ValueError, KeyError) as failure:
                log.warning("the election was interrupted: %s", failure)
            self._announce(None, is_me=False)
            self._leave.wait(_BACKOFF_S)

    def _be_member(self, cluster: Cluster) -> None:
        node = cluster.coordinator(self._group)
        try:
            while not self._leave.is_set():
                assignment = self._join(cluster, node)
                if assignment is None:
                    continue
                self._announce(*self._parse_assignment(assignment))
                self._send_heartbeats(cluster, node)
        finally:
            if self._leave.is_set() and self._member_id:
                self._leave_group(cluster, node)

    def _join(self, cluster: Cluster, node: int) -> bytes | None:
        """Send JoinGroup and SyncGroup; return the assignment, or None if the member must join again."""
        joined = cluster.ask(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=self._session_timeout_ms,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=self._identity.encode())],
            ),
            JoinGroupResponse,
            node=node,
            name="joinGroup",
            timeout_ms=2 * self._session_timeout_ms + 5000,
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return None
        if not self._is_accepted(joined.error_code):
            return None
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = {each.member_id: decode_identity(json.loads(bytes(each.metadata))) for each in joined.members}
            made = make_assignment(members, self._leader)
            assignments = [SyncGroupRequestAssignment(member_id=each, assignment=made) for each in members]
        synced = cluster.ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=assignments,
            ),
            SyncGroupResponse,
            node=node,
            name="syncGroup",
            timeout_ms=2 * self._session_timeout_ms + 5000,
        )
        return bytes(synced.assignment) if self._is_accepted(synced.error_code) else None

    def _is_accepted(self, code: int) -> bool:
        if not code:
            return True
        error = ErrorCode.of(code)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._member_id, self._generation = "", -1
            self._announce(None, is_me=False)
            return False
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        raise RequestFailed(code)

    def _parse_assignment(self, assignment: bytes) -> tuple[Identity | None, bool]:
        tree = json.loads(assignment) if assignment else {}
        if tree.get("error") == _DUPLICATE_URLS:
            log.error("two registries of the group %s have the same address; set host.name and the port", self._group)
        identity = tree.get("master_identity")
        if not identity:
            return None, False
        return decode_identity(identity), tree.get("master") == self._member_id

    def _send_heartbeats(self, cluster: Cluster, node: int) -> None:
        """Send heartbeats until the coordinator asks the members to join again."""
        interval_s = self._session_timeout_ms / 1000 / _HEARTBEATS_PER_SESSION
        last_s = time.monotonic()
        while not self._leave.wait(interval_s):
            response = cluster.ask(
                HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id),
                HeartbeatResponse,
                node=node,
                name="heartbeat",
                timeout_ms=self._session_timeout_ms,
            )
            if not self._is_accepted(response.error_code):
                return
            if time.monotonic() - last_s > self._session_timeout_ms / 1000:
                log.warning("the last heartbeat took longer than the session lasts")
            last_s = time.monotonic()

    def _leave_group(self, cluster: Cluster, node: int) -> None:
        cluster.ask(
            LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self._member_id)]),
            LeaveGroupResponse,
            node=node,
            name="leaveGroup",
            timeout_ms=self._session_timeout_ms,
        )
        self._member_id = ""

    def _announce(self, leader: Identity | None, is_me: bool) -> None:
        self._leader = leader or self._leader
        # The loop that has stopped us may be closed.
        if not self._leave.is_set():
            self._tell(leader, is_me)
