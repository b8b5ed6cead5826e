"""The keys that are accepted, kept and described, and that nothing reads: which, and why.

A key of the tables is either read by some code or it stands here. A test compares the two, so that no setting can be
declared and forgotten. `*` at the end is every key that begins so and is not read: parts of Kafka that are missing as a
whole (docs/DEVIATIONS.md).
"""

from __future__ import annotations

# Reason → broker's keys.
BROKER_KEYS_WITHOUT_EFFECT: dict[str, str] = {
    "numbers of threads: one event loop does it": """
        num.network.threads num.io.threads background.threads num.recovery.threads.per.data.dir
        num.replica.alter.log.dirs.threads group.coordinator.threads group.coordinator.background.threads
        share.coordinator.threads
    """,
    "requests are served as they are read: there is no queue between two kinds of threads": "queued.max.requests",
    "a request that waits is dropped when it is answered: nothing is left to tidy": """
        fetch.purgatory.purge.interval.requests producer.purgatory.purge.interval.requests
        delete.records.purgatory.purge.interval.requests share.fetch.purgatory.purge.interval.requests
    """,
    "records are appended at once: in the quorum one sync is for all that came during the one before it": """
        controller.quorum.append.linger.ms group.coordinator.append.linger.ms share.coordinator.append.linger.ms
    """,
    "no node waits for records that say nothing": "metadata.max.idle.interval.ms",
    "buffers are of the size that is needed, and go with what they were needed for": """
        log.cleaner.io.buffer.size group.coordinator.cached.buffer.max.bytes
        share.coordinator.cached.buffer.max.bytes
    """,
    "the system sizes the buffer of a connection as it goes": "replica.socket.receive.buffer.bytes",
    "the time that a request may take holds for connecting too": """
        controller.socket.timeout.ms socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms
    """,
    "a directory that failed is told with every heartbeat until the controller knows": "log.dir.failure.timeout.ms",
    "rates of replication are measured over one second": """
        replication.quota.window.num replication.quota.window.size.seconds
        alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    """,
    "no version that is in development is offered, InitProducerId 6 with two-phase commits among them": """
        unstable.api.versions.enable unstable.feature.versions.enable transaction.two.phase.commit.enable
    """,
    "for Apache's own tests and logs": """
        internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
        internal.metadata.delete.delay.millis server.max.startup.time.ms controller.performance.sample.period.ms
        controller.performance.always.log.threshold.ms
    """,
    "there are no JMX metrics": """
        metric.reporters metrics.num.samples metrics.sample.window.ms metrics.recording.level kafka.metrics.reporters
        kafka.metrics.polling.interval.secs
    """,
    "Java classes": "security.providers config.providers *.class *.class.name",
    "how Java goes about TLS: OpenSSL does it, and tries the newest version first": """
        ssl.protocol ssl.provider ssl.secure.random.implementation ssl.keymanager.algorithm ssl.trustmanager.algorithm
    """,
    "missing: Kerberos, and tokens that a node asks for, as far as their keys are not read": """
        sasl.* early.start.listeners
    """,
    "share groups have one assignor": "group.share.assignors",
    "missing: log directories that get no new replicas (KIP-1066)": "cordoned.log.dirs",
    "missing: tiered storage": """
        remote.* follower.fetch.last.tiered.offset.enable log.local.retention.ms log.local.retention.bytes
    """,
    "files reserve their space in steps, with either value": "log.preallocate",
}

# Reason → topic's keys.
TOPIC_KEYS_WITHOUT_EFFECT: dict[str, str] = {
    "files reserve their space in steps, with either value": "preallocate",
    "missing: tiered storage": """
        local.retention.ms local.retention.bytes remote.log.copy.disable remote.log.delete.on.disable
    """,
}
