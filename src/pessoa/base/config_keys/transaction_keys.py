"""Transactions and idempotent producers."""

from __future__ import annotations

from pessoa.base.config_table import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT, ConfigKey, key
from pessoa.base.config_values import at_least

# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    key("transaction.max.timeout.ms", INT, 900000, at_least(1), HIGH,
        "The longest timeout that a producer may ask for its transactions."),
    key("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH,
        "After what time without a transaction a transactional id is forgotten."),
    key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, at_least(1), LOW,
        "How often transactions past their timeout are looked for and aborted."),
    key("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), LOW,
        "How often expired transactional ids are looked for."),
    key("transaction.partition.verification.enable", BOOLEAN, True, LOW, CLUSTER_WIDE,
        "Whether a partition asks the coordinator if a transaction is open before it takes records."),
    key("transaction.two.phase.commit.enable", BOOLEAN, False, LOW,
        "Whether producers may take part in two-phase commits (KIP-939)."),
    key("transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH,
        "How many partitions __transaction_state is created with."),
    key("transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH,
        "How many replicas __transaction_state is created with."),
    key("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH, "The min.insync.replicas of __transaction_state."),
    key("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
        "The size of a segment of __transaction_state."),
    key("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
        "How many bytes are read at once when transactions are loaded."),
    key("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH,
        "How long the broker waits before it tries again to add a partition whose transaction is ending."),
    key("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH,
        "The most time that those attempts may take together."),
    key("producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, CLUSTER_WIDE,
        "After what time without writes a partition forgets an idempotent producer."),
    key("producer.id.expiration.check.interval.ms", INT, 600000, at_least(1), LOW,
        "How often such producers are looked for.", is_internal=True),
)
# fmt: on
