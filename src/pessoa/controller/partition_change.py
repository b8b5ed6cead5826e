"""The PartitionChangeRecord for one partition after an event: its leader, its ISR and ELR, its reassignment.

A `PartitionChange` starts from a partition as it is. The decision about what happened sets what should be (a
smaller ISR, other replicas, a kind of election), and `record` works out the rest, in this order:

    1. a reassignment is complete when all new replicas are in sync: the old ones go. One that takes more replicas away
       than it brings waits for all that stay, or it would leave fewer in sync than there were
    2. the ELR takes the replicas that leave the ISR while fewer than min.insync.replicas are left (KIP-966)
    3. a leader is elected, if the one there is cannot go on
    4. the leader epoch moves also without a new leader, if a replica was taken away

and answers with a record that says only what is new, or with None if nothing is.

Who may lead (`Election`):

    ONLINE      the leader stays if it can; else the first live replica in the ISR; with an empty ISR one of the ELR;
                with both empty the leader that was last, if it is back
    PREFERRED   the same, but the first replica comes before the present leader
    UNCLEAN     the same, and after all others any live replica: what it lacks is lost

A leader that came from outside ISR and ELR is `RECOVERING` until it says that it has put its log in order; its ISR is
itself alone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from pessoa.controller.assignments import default_directory, is_active, is_directory_online
from pessoa.metadata.supported_features import ELIGIBLE_LEADER_REPLICAS
from pessoa.metadata.topics_image import NO_LEADER, NO_LEADER_CHANGE, RECOVERING
from pessoa.wire.stored.metadata_records import PartitionChangeRecord

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.controller.decision import Situation
    from pessoa.metadata.image import ClusterImage, PartitionImage

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"


class Election(Enum):
    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class PartitionChange:
    def __init__(
        self,
        cluster: ClusterImage,
        topic_id: Uuid,
        index: int,
        partition: PartitionImage,
        min_insync_replicas: int,
        *,
        elr_enabled: bool,
        can_lead: Callable[[int], bool] | None = None,
    ) -> None:
        """`can_lead` returns whether a broker is active, where the image does not show it yet, or no longer."""
        self.election = Election.ONLINE
        self.replicas = partition.replicas
        self.isr = partition.isr
        self.removing = partition.removing_replicas
        self.adding = partition.adding_replicas
        self.leader_recovery_state = partition.leader_recovery_state
        self.directories = dict(zip(partition.replicas, partition.directories, strict=True))
        # Those that came back without a clean shutdown: they may have lost anything.
        self.unclean_shutdown: tuple[int, ...] = ()
        self._cluster = cluster
        self._topic_id = topic_id
        self._index = index
        self._partition = partition
        self._min_insync_replicas = min_insync_replicas
        self._elr_enabled = elr_enabled
        self._can_lead = can_lead if can_lead is not None else lambda broker: is_active(cluster, broker)
        self._elr = partition.elr

    def record(self) -> PartitionChangeRecord | None:
        partition = self._partition
        record = PartitionChangeRecord(partition_id=self._index, topic_id=self._topic_id)
        self._complete_reassignment()
        self._populate_elr()
        self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(self.replicas):
            record.leader = partition.leader
        is_unclean = record.isr is not None
        elr = () if is_unclean or not self._elr_enabled else self._elr
        if elr != partition.elr:
            record.eligible_leader_replicas = list(elr)
        # Without ELR a partition keeps the last of its ISR, since that one alone may lead again.
        if record.isr is None and self.isr != partition.isr and (self.isr or self._elr_enabled):
            record.isr = list(self.isr)
        self._remember_last_leader(record)
        self._assign(record)
        if self.leader_recovery_state != partition.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        unchanged = PartitionChangeRecord(partition_id=self._index, topic_id=self._topic_id)
        return None if record == unchanged else record

    # 1. Reassignments.

    def _complete_reassignment(self) -> None:
        if not self.removing and not self.adding:
            return
        target = tuple(replica for replica in self.replicas if replica not in self.removing)
        isr = tuple(replica for replica in self.isr if replica not in self.removing)
        if not isr:
            # None of the new replicas is in sync, and a partition needs one that is.
            return
        awaited = target if len(self.adding) < len(self.removing) else self.adding
        if set(awaited) <= set(isr):
            self.replicas, self.isr, self.removing, self.adding = target, isr, (), ()

    # 2. Eligible leader replicas.

    def _populate_elr(self) -> None:
        if not self._elr_enabled:
            return
        if len(self.isr) >= self._min_insync_replicas:
            self._elr = ()
            return
        candidates = sorted({*self._elr, *self._partition.isr} & set(self.replicas))
        self._elr = tuple(
            replica for replica in candidates if replica not in self.isr and replica not in self.unclean_shutdown
        )

    # 3. Leaders.

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, is_clean = self._choose()
        if leader == self._partition.leader:
            return
        record.leader = leader
        if leader in self._elr:
            self.isr = (leader,)
            # If one in sync is enough to commit, the others fall behind from here on.
            is_enough = self._min_insync_replicas <= 1
            self._elr = () if is_enough else tuple(replica for replica in self._elr if replica != leader)
        if not is_clean:
            record.isr = [leader]
            if self._partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _choose(self) -> tuple[int, bool]:
        """Return the new leader, and whether its election is clean."""
        first = [self._partition.leader]
        if self.election is Election.PREFERRED:
            first.insert(0, self.replicas[0])
        for candidate in (*first, *self.replicas):
            if self._is_valid_leader(candidate):
                return candidate, True
        if self._elr_enabled and not self.isr and not self._elr and len(self._partition.last_known_elr) == 1:
            (last,) = self._partition.last_known_elr
            if last in self.replicas and self._is_up(last):
                return last, False
        if self.election is Election.UNCLEAN:
            for candidate in self.replicas:
                if self._is_up(candidate):
                    return candidate, False
        return NO_LEADER, True

    def _is_valid_leader(self, replica: int) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self._elr)
        return in_sync and self._is_up(replica)

    def _is_up(self, replica: int) -> bool:
        if not self._can_lead(replica):
            return False
        if replica not in self._partition.replicas:
            return True
        # Where the replica was so far: a change of directories counts once it is written.
        return is_directory_online(self._cluster, replica, self._partition.directory_of(replica))

    # 4. The rest of the record.

    def _remember_last_leader(self, record: PartitionChangeRecord) -> None:
        """Set the last known ELR to the last leader if the partition loses its leader: that replica may be elected
        again, uncleanly, if all others are lost. Clear it when there is a leader."""
        if not self._elr_enabled:
            return
        partition = self._partition
        if record.leader == NO_LEADER and partition.has_leader and not partition.last_known_elr:
            record.last_known_elr = [partition.leader]
        elif record.leader >= 0 and partition.last_known_elr:
            record.last_known_elr = []
        self._replace_moved_last_leader(record)

    def _replace_moved_last_leader(self, record: PartitionChangeRecord) -> None:
        """Set the last known ELR to a replica of the last ISR or ELR if the last leader is no replica any more."""
        partition = self._partition
        last = partition.last_known_elr if record.last_known_elr is None else record.last_known_elr
        if self.isr or self._elr or record.isr or not set(last).isdisjoint(self.replicas):
            return
        known = [replica for replica in (*partition.isr, *partition.elr) if replica in self.replicas]
        if known:
            record.last_known_elr = known[:1]

    def _assign(self, record: PartitionChangeRecord) -> None:
        partition = self._partition
        directories = [
            self.directories[replica] if replica in self.directories else default_directory(self._cluster, replica)
            for replica in self.replicas
        ]
        if tuple(directories) != partition.directories:
            record.directories = directories
        if self.replicas != partition.replicas:
            record.replicas = list(self.replicas)
        if self.removing != partition.removing_replicas:
            record.removing_replicas = list(self.removing)
        if self.adding != partition.adding_replicas:
            record.adding_replicas = list(self.adding)


def topic_setting(situation: Situation, topic: str, name: str) -> str:
    """Return the value of a topic's key: set for the topic, for all brokers, or in this node's file."""
    configs = situation.image.configs
    for resource in ((_TOPIC, topic), (_BROKER, "")):
        value = configs.of(*resource).get(name)
        if value is not None:
            return value
    return situation.config.broker_value(name)


def change_of(
    situation: Situation,
    topic: str,
    topic_id: Uuid,
    index: int,
    partition: PartitionImage,
    can_lead: Callable[[int], bool] | None = None,
) -> PartitionChange:
    """Return a change of the partition, with the settings of its topic."""
    image = situation.image
    # A topic cannot ask for more in-sync replicas than it has, and its first partition stands for all (KIP-966).
    factor = len(image.topics.by_id[topic_id].partitions[0].replicas)
    minimum = min(int(topic_setting(situation, topic, MIN_INSYNC_REPLICAS)), factor)
    return PartitionChange(
        image.cluster,
        topic_id,
        index,
        partition,
        minimum,
        elr_enabled=image.features.level(ELIGIBLE_LEADER_REPLICAS) > 0,
        can_lead=can_lead,
    )


def allows_unclean_election(situation: Situation, topic: str) -> bool:
    return topic_setting(situation, topic, UNCLEAN_LEADER_ELECTION_ENABLE).strip().lower() == "true"


_TOPIC = 2
_BROKER = 4
