"""Replicas: how many there are, how they follow, and who may lead."""

from __future__ import annotations

from pessoa.base.config_table import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LONG, STRING, ConfigKey, key
from pessoa.base.config_values import at_least

# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    key("default.replication.factor", INT, 1, "How many replicas a partition gets when its creation names no number."),
    key("min.insync.replicas", INT, 1, at_least(1), HIGH, CLUSTER_WIDE,
        "How many replicas must have a record before acks=all is answered."),
    key("unclean.leader.election.enable", BOOLEAN, False, HIGH, CLUSTER_WIDE,
        "Whether a replica that lacks records may become leader, if no other can."),
    key("unclean.leader.election.interval.ms", LONG, 300000, at_least(1),
        "How often partitions are looked for that only such an election can bring back.", is_internal=True),
    key("auto.leader.rebalance.enable", BOOLEAN, True, HIGH,
        "Whether leadership goes back to the preferred replicas by itself."),
    key("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH, "How often that is checked."),
    key("num.replica.fetchers", INT, 1, at_least(1), HIGH, CLUSTER_WIDE,
        "How many connections a follower fetches with from each leader."),
    key("num.replica.alter.log.dirs.threads", INT, None, HIGH, "How many threads move replicas between directories."),
    key("replica.lag.time.max.ms", LONG, 10_000, HIGH,
        "A follower that has not caught up for this long leaves the in-sync replicas."),
    key("replica.fetch.min.bytes", INT, 1, HIGH, "How many bytes a leader gathers before it answers a follower."),
    key("replica.fetch.wait.max.ms", INT, 500, HIGH, "How long a leader waits for that many bytes."),
    key("replica.fetch.max.bytes", INT, 1_048_576, at_least(0),
        "How many bytes a follower asks for in each partition."),
    key("replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0),
        "How many bytes a follower asks for in one fetch."),
    key("replica.fetch.backoff.ms", INT, 1000, at_least(0), "How long a follower pauses after an error."),
    key("replica.socket.timeout.ms", INT, 30000, HIGH, "How long a follower waits for the leader's answer."),
    key("replica.socket.receive.buffer.bytes", INT, 65536, HIGH,
        "The receive buffer of a follower's socket; -1 leaves it to the system."),
    key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, HIGH,
        "How often high watermarks are written down."),
    key("replica.selector.class", STRING, None, "A class that chooses the replica from which a consumer reads."),
)
# fmt: on
