"""What a seed stands for: the shape of a cluster, its load, and what will happen to it.

Every number comes from the seed alone, so a seed can be looked at without running it: `print(Plan.of(17))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

# Each is one thing that the nemesis knows how to do; see `nemesis`.
FAULTS = (
    "kill", "power", "election", "pause", "stop", "cut", "one-way", "lonely", "late", "reset", "hold", "clock",
    "slow disk", "disk error", "disk full",
)  # fmt: skip
# A cleaner that looks often, takes what there is, and has room for some keys only.
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
# A snapshot of the metadata every few records, nothing kept that it has, and many pieces to fetch it in.
_OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "400",
    "metadata.max.retention.bytes": "0",
    "controller.quorum.fetch.snapshot.max.bytes": "200",
}
# What is done to a secured cluster besides.
SECURITY_FAULTS = ("rights", "password", "token")
# And to one with a share group.
SHARE_FAULTS = ("estranged",)
# One seed in so many has users, passwords and rights.
_SECURED = 6
# And one of so many of the others has a share group.
_SHARED = 6
# And one of so many of those with users.
_SHARED_SECURED = 4
# And one of so many without users has a streams group.
_STREAMING = 10
# How often a record is delivered to a share group.
DELIVERY_LIMIT = 4
# One seed in so many is left in peace: what fails there fails without any fault.
_PEACEFUL = 12


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    nodes: int
    voters: int
    replication_factor: int
    min_insync_replicas: int
    partitions: int
    # Every batch is synced before it is acknowledged, so that all machines may lose power at once.
    is_synced: bool
    # May more nodes than a minority be away at a time? Then no progress is expected until they are back.
    is_harsh: bool
    faults: tuple[str, ...]
    seconds: float
    idempotent_producers: int
    in_flight: int
    transactional_producers: int
    adds_by_producing: bool
    group_members: int
    admin: bool
    # All transactional producers have one transactional id, and fence each other.
    has_zombies: bool
    # Controllers are nodes of their own, beside the brokers.
    is_split: bool = False
    # The voters stand in the log, and an operator changes them.
    is_dynamic: bool = False
    # Of the metadata, so often and kept so short that a node that was away has to fetch one.
    has_snapshots: bool = False
    copiers: int = 0
    # Each with a transactional id of its own, kept apart by their group (KIP-447); otherwise they fence each other.
    are_copiers_members: bool = False
    # The members of the group speak the newer protocol (KIP-848).
    has_consumers: bool = False
    # The topic is compacted, and so are the internal ones, in short segments.
    is_compacted: bool = False
    # Every node has two log directories, and an operator moves replicas between them.
    has_directories: bool = False
    # Nodes and clients log in, and may do what they are allowed to (`users`).
    is_secured: bool = False
    # After so long a session has to be renewed (KIP-368); 0: never.
    reauth_ms: int = 0
    # Members of a share group (KIP-932), beside all others.
    share_members: int = 0
    # The share group sees committed records only.
    is_share_committed: bool = False
    # Members of a streams group (KIP-1071), beside all others.
    streams_members: int = 0

    @classmethod
    def of(cls, seed: int, most_nodes: int = 5, *, may_be_secured: bool = True) -> Plan:
        """Without `may_be_secured` it is the same plan for a cluster that demands no login."""
        rng = Random(seed)
        nodes = min(rng.choice((1, 2, 3, 3, 3, 3, 3, 4, 5)), most_nodes)
        voters = min(rng.choice((1, 3, 3, 3, 3, 5)), nodes)
        replication_factor = min(rng.choice((1, 2, 3, 3, 3, 3)), nodes)
        count = 0 if rng.randrange(_PEACEFUL) == 0 else rng.choice((1, 1, 2, 2, 3, 4))
        faults = tuple(sorted(rng.sample(FAULTS, count)))
        transactional = rng.choice((0, 0, 1, 2))
        # Chosen apart, so that all that is chosen above stays what it is for every seed.
        more = Random(seed ^ 0xADD)
        may_rot = more.random() < 0.12 and nodes > 2
        is_split, is_dynamic = more.random() < 0.12, more.random() < 0.25
        if may_rot and not is_dynamic:
            # An operator may leave so few voters that none can be spared.
            faults = tuple(sorted((*faults, "rot")))
        has_snapshots, copiers = more.random() < 0.25, more.choice((0, 0, 0, 0, 0, 0, 1, 2))
        has_consumers, are_copiers_members = more.random() < 0.4, more.random() < 0.5
        # Apart from both, for the same reason.
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
            # More nodes and clients, or more work for each, do as much in less time.
            seconds=min(
                rng.choice((3.0, 5.0, 5.0, 10.0)), 4.0 if is_split or copiers or is_compacted or is_secured else 10.0
            ),
            idempotent_producers=rng.choice((1, 2)) if transactional == 0 else rng.choice((0, 1)),
            # The snapshot of a broker that stops in order remembers one batch of a producer, as Kafka's does; so only
            # one can be known again after it. So it is of a log whose batches were compacted.
            in_flight=rng.choice((1, 1 if "stop" in faults or is_compacted else 5)),
            transactional_producers=transactional,
            # Before KIP-890 a request that was held may end the next transaction, or join it: nothing a broker can do.
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
        """Whether what was acknowledged outlives a machine that forgets what it did not sync."""
        return self.is_synced or self.min_insync_replicas > 1

    @property
    def copier_adds_by_producing(self) -> bool:
        """Before KIP-890 a late TxnOffsetCommit may come to the next transaction, which no coordinator can notice."""
        return self.adds_by_producing or not set(self.faults) <= {"kill", "stop", "power", "clock"}

    @property
    def directories(self) -> tuple[str, ...]:
        """The first of them has the metadata log."""
        return ("/data", "/more") if self.has_directories else ("/data",)

    @property
    def drops_tombstones(self) -> bool:
        """A follower that is away for longer than tombstones stay misses one, in Kafka as here, and would keep what was
        deleted. So they go within a run only where there is no other replica."""
        return self.replication_factor == 1 and not (self.admin and self.nodes > 1)

    @property
    def tombstones_stay_s(self) -> float | None:
        """At least so long; None if that cannot be said, because clocks jump further."""
        if self.drops_tombstones:
            return None if "clock" in self.faults else _BRIEFLY_MS / 1000
        return _FOR_EVER_MS / 1000

    def _cleaning(self) -> dict[str, str]:
        retention_ms = _BRIEFLY_MS if self.drops_tombstones else _FOR_EVER_MS
        return _CLEANING | {"log.cleaner.delete.retention.ms": str(retention_ms)}

    def _sharing(self) -> dict[str, str]:
        """Locks are short, and what the share coordinator stores is written whole and pruned often."""
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
        """Timeouts are short, so that a short run sees sessions end and replicas fall behind."""
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
            # Clocks jump here, and a batch must not be refused for its timestamp.
            "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
            "auto.create.topics.enable": "false",
            # Indexes with something in them, though the logs are short.
            "log.index.interval.bytes": "256",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            **(_OFTEN if self.has_snapshots else {}),
            **(self._cleaning() if self.is_compacted else {}),
            **(self._sharing() if self.share_members else {}),
            **(self._streaming() if self.streams_members else {}),
            "log.dirs": ",".join(self.directories),
            # Slow enough that a node may die in the middle.
            "replica.alter.log.dirs.io.max.bytes.per.second": "5000",
        }
