"""The plan of a seed: the shape of a cluster, its load, and its faults.

Every number follows from the seed, so a plan can be read without running it: `print(Plan.of(17))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

# The faults that `nemesis` can inject.
FAULTS = (
    "kill", "power", "election", "pause", "stop", "cut", "one-way", "lonely", "late", "reset", "hold", "clock",
    "slow disk", "disk error", "disk full",
)  # fmt: skip
# A cleaner that runs often, cleans every dirty log, and has an offset map for few keys.
_CLEANING = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "400",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.dedupe.buffer.size": "3000",
    "log.segment.delete.delay.ms": "200",
}
# Longer than any run, even with clocks that jump.
_FOR_EVER_MS = 24 * 60 * 60 * 1000
_BRIEFLY_MS = 1_000
# A metadata snapshot every few records, no log kept below it, and many FetchSnapshot requests to fetch it.
_OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "400",
    "metadata.max.retention.bytes": "0",
    "controller.quorum.fetch.snapshot.max.bytes": "200",
}
# Further faults of a secured cluster.
SECURITY_FAULTS = ("rights", "password", "token")
# Further faults of a cluster with a share group.
SHARE_FAULTS = ("estranged",)
# One seed in so many has users, passwords and rights.
_SECURED = 6
# One of so many seeds without users has a share group.
_SHARED = 6
# One of so many seeds with users has a share group.
_SHARED_SECURED = 4
# One of so many seeds without users has a streams group.
_STREAMING = 10
# The delivery limit of the share group.
DELIVERY_LIMIT = 4
# One seed in so many has no faults: a failure there needs none.
_PEACEFUL = 12


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    nodes: int
    voters: int
    replication_factor: int
    min_insync_replicas: int
    partitions: int
    # Whether every batch is synced before it is acknowledged, so that all machines may lose power at once.
    is_synced: bool
    # Whether more nodes than a minority may be down at a time; no progress is expected until they are back.
    is_harsh: bool
    faults: tuple[str, ...]
    seconds: float
    idempotent_producers: int
    in_flight: int
    transactional_producers: int
    adds_by_producing: bool
    group_members: int
    admin: bool
    # Whether all transactional producers share one transactional id, and fence each other.
    has_zombies: bool
    # Whether controllers are nodes of their own, beside the brokers.
    is_split: bool = False
    # Whether the voters are in the metadata log, and an operator changes them.
    is_dynamic: bool = False
    # Whether metadata snapshots are so frequent, and the log so short, that a node that was down has to fetch one.
    has_snapshots: bool = False
    copiers: int = 0
    # Whether copiers have transactional ids of their own and share a group (KIP-447); otherwise they fence each other.
    are_copiers_members: bool = False
    # Whether the members of the group use the newer protocol (KIP-848).
    has_consumers: bool = False
    # Whether the topic is compacted, and the internal topics as well, with short segments.
    is_compacted: bool = False
    # Whether every node has two log directories, and an operator moves replicas between them.
    has_directories: bool = False
    # Whether listeners demand logins, and users need ACLs (`users`).
    is_secured: bool = False
    # connections.max.reauth.ms: after this time a session has to be renewed (KIP-368); 0: never.
    reauth_ms: int = 0
    # Members of a share group (KIP-932).
    share_members: int = 0
    # Whether the share group reads committed records only.
    is_share_committed: bool = False
    # Members of a streams group (KIP-1071).
    streams_members: int = 0

    @classmethod
    def of(cls, seed: int, most_nodes: int = 5, *, may_be_secured: bool = True) -> Plan:
        """Return the plan of a seed. Without `may_be_secured` it is the same plan for a cluster without logins and
        ACLs."""
        rng = Random(seed)
        nodes = min(rng.choice((1, 2, 3, 3, 3, 3, 3, 4, 5)), most_nodes)
        voters = min(rng.choice((1, 3, 3, 3, 3, 5)), nodes)
        replication_factor = min(rng.choice((1, 2, 3, 3, 3, 3)), nodes)
        count = 0 if rng.randrange(_PEACEFUL) == 0 else rng.choice((1, 1, 2, 2, 3, 4))
        faults = tuple(sorted(rng.sample(FAULTS, count)))
        transactional = rng.choice((0, 0, 1, 2))
        # Drawn from a generator of its own, so that a change here leaves everything above as it is for every seed.
        more = Random(seed ^ 0xADD)
        may_rot = more.random() < 0.12 and nodes > 2
        is_split, is_dynamic = more.random() < 0.12, more.random() < 0.25
        if may_rot and not is_dynamic:
            # An operator may remove so many voters that no further one may fail.
            faults = tuple(sorted((*faults, "rot")))
        has_snapshots, copiers = more.random() < 0.25, more.choice((0, 0, 0, 0, 0, 0, 1, 2))
        has_consumers, are_copiers_members = more.random() < 0.4, more.random() < 0.5
        # From a third generator, for the same reason.
        more = Random(seed ^ 0xC1EA2)
        is_compacted = more.random() < 0.15
        if is_compacted and more.random() < 0.6:
            faults = tuple(sorted((*faults, "cleaning")))
        has_directories = more.random() < 0.1
        if has_directories and more.random() < 0.6:
            faults = tuple(sorted((*faults, "moving")))
        more = Random(seed ^ 0x5EC)
        has_users, reauth_ms = more.randrange(_SECURED) == 0, more.choice((0, 1_500, 3_000))
        is_secured = has_users and may_be_secured
        if is_secured:
            faults = tuple(sorted((*faults, *more.sample(SECURITY_FAULTS, more.randint(1, 3)))))
        more = Random(seed ^ 0x5A2E)
        has_shares = more.randrange(_SHARED) == 0 and not has_users
        share_members, is_share_committed = more.choice((1, 2, 2, 3)), more.random() < 0.5
        if has_shares and more.random() < 0.4:
            faults = tuple(sorted((*faults, *SHARE_FAULTS)))
        has_shares = has_shares or (is_secured and Random(seed ^ 0x5EC5A).randrange(_SHARED_SECURED) == 0)
        more = Random(seed ^ 0x57E4)
        has_streams, streams_members = more.randrange(_STREAMING) == 0 and not has_users, more.choice((1, 2, 3, 3))
        return cls(
            seed=seed,
            nodes=nodes,
            voters=voters,
            replication_factor=replication_factor,
            min_insync_replicas=min(replication_factor, rng.choice((1, 2, 2, 2))),
            partitions=min(rng.choice((1, 1, 2, 3)), 1 if is_compacted else 3),
            is_synced=rng.random() < 0.25,
            is_harsh=rng.random() < 0.3,
            faults=faults,
            # A short run with more nodes and clients, or more work for each, does as much as a long one.
            seconds=min(
                rng.choice((3.0, 5.0, 5.0, 10.0)), 4.0 if is_split or copiers or is_compacted or is_secured else 10.0
            ),
            idempotent_producers=rng.choice((1, 2)) if transactional == 0 else rng.choice((0, 1)),
            # The producer snapshot of a clean shutdown has one batch of each producer, as Kafka's does, so that only
            # one batch is known as a duplicate afterwards. The same holds of a log whose batches were compacted.
            in_flight=rng.choice((1, 1 if "stop" in faults or is_compacted else 5)),
            transactional_producers=transactional,
            # Before KIP-890 a held request may end the next transaction, or become part of it; a broker cannot prevent
            # that.
            adds_by_producing=rng.random() < 0.7 or "hold" in faults,
            group_members=rng.choice((0, 0, 0, 1, 2, 3)),
            admin=rng.random() < 0.3,
            has_zombies=rng.random() < 0.3,
            is_split=is_split,
            is_dynamic=is_dynamic,
            has_snapshots=has_snapshots,
            copiers=copiers,
            has_consumers=has_consumers,
            are_copiers_members=are_copiers_members,
            is_compacted=is_compacted,
            has_directories=has_directories,
            is_secured=is_secured,
            reauth_ms=reauth_ms if is_secured else 0,
            share_members=share_members if has_shares else 0,
            is_share_committed=is_share_committed and has_shares,
            streams_members=streams_members if has_streams else 0,
        )

    @property
    def may_lose_power(self) -> bool:
        """Return whether acknowledged records survive the power loss of one machine."""
        return self.is_synced or self.min_insync_replicas > 1

    @property
    def copier_adds_by_producing(self) -> bool:
        """Return whether TxnOffsetCommit adds the group to the transaction (KIP-890). Before that, a late
        TxnOffsetCommit may become part of the next transaction, which no coordinator can notice."""
        return self.adds_by_producing or not set(self.faults) <= {"kill", "stop", "power", "clock"}

    @property
    def directories(self) -> tuple[str, ...]:
        """Return the log directories of a node; the first one has the metadata log."""
        return ("/data", "/more") if self.has_directories else ("/data",)

    @property
    def drops_tombstones(self) -> bool:
        """Return whether tombstones are removed within a run, which is so only without replication: a follower that is
        down for longer than they stay would keep deleted keys, in Kafka as here."""
        return self.replication_factor == 1 and not (self.admin and self.nodes > 1)

    @property
    def tombstones_stay_s(self) -> float | None:
        """Return how long a tombstone stays at least, or None if clocks jump further than that."""
        if self.drops_tombstones:
            return None if "clock" in self.faults else _BRIEFLY_MS / 1000
        return _FOR_EVER_MS / 1000

    def _cleaning(self) -> dict[str, str]:
        retention_ms = _BRIEFLY_MS if self.drops_tombstones else _FOR_EVER_MS
        return _CLEANING | {"log.cleaner.delete.retention.ms": str(retention_ms)}

    def _sharing(self) -> dict[str, str]:
        """Return the settings of a share group: short locks, and frequent snapshots and pruning of share state."""
        return {
            "group.share.session.timeout.ms": "2000",
            "group.share.min.session.timeout.ms": "1000",
            "group.share.heartbeat.interval.ms": "400",
            "group.share.min.heartbeat.interval.ms": "100",
            "group.share.assignment.interval.ms": "100",
            "group.share.record.lock.duration.ms": "1500",
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
            "group.share.partition.max.record.locks": "100",
            "group.share.initialize.retry.interval.ms": "2000",
            "share.coordinator.state.topic.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": str(self.replication_factor),
            "share.coordinator.state.topic.min.isr": str(self.min_insync_replicas),
            "share.coordinator.snapshot.update.records.per.snapshot": "4",
            "share.coordinator.cold.partition.snapshot.interval.ms": "1500",
            "share.coordinator.state.topic.prune.interval.ms": "700",
        }

    def _streaming(self) -> dict[str, str]:
        return {
            "group.streams.session.timeout.ms": "2000",
            "group.streams.min.session.timeout.ms": "1000",
            "group.streams.heartbeat.interval.ms": "400",
            "group.streams.min.heartbeat.interval.ms": "100",
            "group.streams.assignment.interval.ms": "100",
            "group.streams.initial.rebalance.delay.ms": "300",
        }

    def settings(self) -> dict[str, str]:
        """Return the settings of nodes: short timeouts, so that sessions expire and replicas lag in a short run."""
        replication = str(self.replication_factor)
        return {
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": replication,
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": replication,
            "transaction.state.log.min.isr": str(self.min_insync_replicas),
            "min.insync.replicas": str(self.min_insync_replicas),
            "default.replication.factor": replication,
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "3000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "500",
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "3000",
            "replica.lag.time.max.ms": "3000",
            "replica.fetch.wait.max.ms": "500",
            "controller.quorum.election.timeout.ms": "1000",
            "controller.quorum.fetch.timeout.ms": "2000",
            "controller.quorum.election.backoff.max.ms": "1000",
            "controller.quorum.request.timeout.ms": "1000",
            "log.flush.interval.messages": "1" if self.is_synced else str((1 << 63) - 1),
            "log.cleaner.enable": "false",
            # Clocks jump in some runs, and no batch must be refused for its timestamp.
            "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
            "auto.create.topics.enable": "false",
            # Indexes with some entries, although the logs are short.
            "log.index.interval.bytes": "256",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            **(_OFTEN if self.has_snapshots else {}),
            **(self._cleaning() if self.is_compacted else {}),
            **(self._sharing() if self.share_members else {}),
            **(self._streaming() if self.streams_members else {}),
            "log.dirs": ",".join(self.directories),
            # Slow enough that a node may die during a move.
            "replica.alter.log.dirs.io.max.bytes.per.second": "5000",
        }
