"""Transactions: who may write under a transactional id, what belongs to the open transaction, and how it ends.

    submit ──► transaction_coordinator (shell) ──► runtime ──► transaction_shard (pure) ──► decisions (pure)
                     │                               │  prepare record committed
                     │                               └──► marker_writer (shell) ──► the leaders of the partitions
                     │                                        └── all written ──► transaction_shard: complete record
                     ├── producer_id_pool (shell): blocks of ids from the controller
                     └── verification (shell): may this producer append to this partition?

State lives in `__transaction_state`, one record (`transaction_encoding`) for a transactional id (`transaction`).
"""
