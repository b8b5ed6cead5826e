"""The access control lists of mirrored topics, as MirrorMaker 2 carries them over.

    literal topic, as the filter takes it   the same entry for the topic's name here
    ALLOW ALL                               becomes ALLOW READ: only the mirror writes to a mirrored topic
    ALLOW WRITE                             stays there, for the same reason
    DENY                                    goes along as it is

Entries with a prefix may be for topics that are not mirrored, and are left alone. Entries are added here and never
taken away, as Apache's connector does: one that was deleted there is deleted here by hand.

What is asked of the clusters needs DESCRIBE on the source cluster and ALTER on the target. A source without an
authorizer has no entries (librdkafka's answer for it); a target without one is told of once, and not asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pessoa.connect.connectors.mirror_clusters import TIMEOUT_S, Clusters

if TYPE_CHECKING:
    from confluent_kafka.admin._acl import AclBinding

log = logging.getLogger("pessoa.connect")


class AclSync:
    def __init__(self, clusters: Clusters, takes: Callable[[str], bool]) -> None:
        """Make a sync of ACLs; `takes` returns whether a topic of the source is mirrored."""
        self._clusters = clusters
        self._takes = takes
        self._has_authorizer = True
        self._synced_acls: set[AclBinding] = set()

    def __repr__(self) -> str:
        return f"<AclSync {self._clusters}, {len(self._synced_acls)} entries>"

    def sync(self) -> None:
        """Add the source's new ACLs to the target. KafkaException if a cluster refuses or does not answer."""
        if not self._has_authorizer:
            return
        wanted = set(entries_to_copy(self._read(), self._takes, self._remote))
        missing = sorted(wanted - self._synced_acls, key=repr)
        if missing and self._create(missing):
            log.info("%s: %d access control entries were added", self._clusters, len(missing))
        self._synced_acls = wanted

    def _create(self, entries: list[AclBinding]) -> bool:
        from confluent_kafka import KafkaError, KafkaException

        try:
            for created in self._clusters.admin("target").create_acls(entries).values():
                created.result(TIMEOUT_S)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.SECURITY_DISABLED:
                raise
            log.warning("%s has no authorizer: access control lists are not copied", self._clusters.target)
            self._has_authorizer = False
        return self._has_authorizer

    def _remote(self, topic: str) -> str:
        return self._clusters.policy.remote_topic(self._clusters.source, topic)

    def _read(self) -> Iterable[AclBinding]:
        from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
        from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

        # Any name, principal and host; confluent-kafka's types cannot express that.
        every_topic = AclBindingFilter(
            ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None,  # type: ignore[arg-type]
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        found: list[AclBinding] = self._clusters.admin("source").describe_acls(every_topic).result(TIMEOUT_S)
        return found


def entries_to_copy(
    entries: Iterable[AclBinding], takes: Callable[[str], bool], remote: Callable[[str], str]
) -> Iterable[AclBinding]:
    from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
    from confluent_kafka.admin._resource import ResourcePatternType

    for entry in entries:
        allows = entry.permission_type == AclPermissionType.ALLOW
        if entry.resource_pattern_type != ResourcePatternType.LITERAL or not takes(entry.name):
            continue
        if allows and entry.operation == AclOperation.WRITE:
            continue
        operation = AclOperation.READ if allows and entry.operation == AclOperation.ALL else entry.operation
        yield AclBinding(
            entry.restype, remote(entry.name), ResourcePatternType.LITERAL, entry.principal, entry.host, operation,
            entry.permission_type,
        )  # fmt: skip
