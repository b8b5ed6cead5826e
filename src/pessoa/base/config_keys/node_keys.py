"""The node itself: its roles, the quorum of controllers, and the metadata log."""

from __future__ import annotations

import re

from pessoa.base.config_table import BOOLEAN, HIGH, INT, LIST, LONG, LOW, MAX_LONG, STRING, ConfigKey, key
from pessoa.base.config_values import SOME_ENTRIES, Rule, at_least, some_of

_VOTER = re.compile(r"[0-9]+@[^@\s]+:[0-9]{1,5}")
_ADDRESS = re.compile(r"[^@\s]+:[0-9]{1,5}")
VOTERS = Rule("a list of id@host:port", lambda value: isinstance(value, tuple) and all(map(_VOTER.fullmatch, value)))
ADDRESSES = Rule("a list of host:port", lambda value: isinstance(value, tuple) and all(map(_ADDRESS.fullmatch, value)))

# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    key("process.roles", LIST, None, some_of("broker", "controller"), HIGH,
        "What this process is: a broker, a controller, or both.", is_required=True),
    key("node.id", INT, None, at_least(0), HIGH,
        "The number of this node, which no other node of the cluster has, broker or controller.", is_required=True),
    key("broker.id", INT, -1, HIGH, "The old name of node.id; where both are set they must be equal."),
    key("broker.rack", STRING, None,
        "Where this broker stands, so that the replicas of a partition can be spread over racks."),
    key("broker.heartbeat.interval.ms", INT, 2000, "How often a broker sends a heartbeat to the controller."),
    key("broker.session.timeout.ms", INT, 9000, "A broker that sends no heartbeat for this long is fenced."),
    key("initial.broker.registration.timeout.ms", INT, 60000,
        "How long a starting broker tries to register with the controller before it gives up."),
    key("controlled.shutdown.enable", BOOLEAN, True,
        "Whether a broker that is told to stop hands over its leaderships first."),
    key("controller.listener.names", LIST, None, SOME_ENTRIES, HIGH,
        "The listeners that controllers use, by name; brokers reach the controller through the "
        "first.", is_required=True),
    key("controller.quorum.voters", LIST, (), VOTERS, HIGH, "The voters of a static quorum, as id@host:port."),
    key("controller.quorum.bootstrap.servers", LIST, (), ADDRESSES, HIGH,
        "Addresses, as host:port, from which a node learns who is in the quorum."),
    key("controller.quorum.auto.join.enable", BOOLEAN, False, LOW,
        "Whether a controller adds itself to the voters of a dynamic quorum."),
    key("controller.quorum.election.timeout.ms", INT, 1000, at_least(0), HIGH,
        "How long a candidate waits for votes before it begins a new election."),
    key("controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0), HIGH,
        "The longest random pause between two elections, which keeps candidates apart."),
    key("controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0), HIGH,
        "A voter that cannot fetch from the leader for this long stands for election."),
    key("controller.quorum.request.timeout.ms", INT, 2000, at_least(0),
        "How long a request within the quorum may take."),
    key("controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW,
        "The pause before a failed request within the quorum is sent again."),
    key("controller.quorum.append.linger.ms", INT, 25, at_least(0),
        "How long the quorum's leader gathers records before it writes them."),
    key("controller.quorum.fetch.max.bytes", INT, 1_048_576, at_least(1), LOW,
        "The most bytes of the metadata log in one answer to a fetch of the quorum."),
    key("controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, at_least(1), LOW,
        "The most bytes of a snapshot in one answer to FetchSnapshot."),
    key("controller.performance.sample.period.ms", LONG, 60000, at_least(100),
        "How often the controller sums up how long its work takes.", is_internal=True),
    key("controller.performance.always.log.threshold.ms", LONG, 2000, at_least(0),
        "Work of the controller that takes longer than this is always logged.", is_internal=True),
    key("controller.socket.timeout.ms", INT, 30000, "How long a broker waits for the controller's answer."),
    key("metadata.log.dir", STRING, None, HIGH,
        "The directory of the metadata log; the first of log.dirs if it is not set."),
    key("metadata.log.segment.bytes", INT, 1_073_741_824, at_least(8_388_608), HIGH,
        "The size at which the metadata log begins a new segment."),
    key("metadata.log.segment.ms", LONG, 604_800_000, HIGH, "The age at which the metadata log begins a new segment."),
    key("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, at_least(1), HIGH,
        "So many bytes of new records in the metadata log cause a snapshot."),
    key("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, at_least(0), HIGH,
        "At the latest after this time there is a snapshot, if there are new records; 0 asks for none."),
    key("metadata.max.retention.bytes", LONG, 104_857_600, HIGH,
        "The size of the metadata log and its snapshots above which old ones are deleted."),
    key("metadata.max.retention.ms", LONG, 604_800_000, HIGH,
        "The age at which segments and snapshots of the metadata log are deleted."),
    key("metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW,
        "How often an idle leader writes a record that says nothing, so that followers see it lives; 0 never."),
    key("internal.metadata.log.segment.bytes", INT, None, LOW,
        "The same as metadata.log.segment.bytes without its lower limit, for tests.", is_internal=True),
    key("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, LOW,
        "The largest batch in the metadata log.", is_internal=True),
    key("internal.metadata.delete.delay.millis", LONG, 60000, LOW,
        "How long deleted files of the metadata log stay on disk.", is_internal=True),
    key("server.max.startup.time.ms", LONG, MAX_LONG, at_least(0),
        "A server that is not up after this time ends.", is_internal=True),
    key("unstable.api.versions.enable", BOOLEAN, False, HIGH,
        "Whether versions of APIs that are still in development are offered.", is_internal=True),
    key("unstable.feature.versions.enable", BOOLEAN, False, HIGH,
        "Whether levels of features that are still in development may be used.", is_internal=True),
)
# fmt: on
