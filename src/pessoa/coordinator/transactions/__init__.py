"""Transactions: who may write under a transactional id, what belongs to the open transaction, and how it ends.

    submit ──► coordinator (shell) ──► runtime ──► shard (pure) ──► decisions (pure) over `transaction`
                     │                               │  prepare record committed
                     │                               └──► markers (shell) ──► the leaders of the partitions
                     │                                        └── all written ──► shard: complete record
                     ├── producer_ids (shell): blocks of ids from the controller
                     └── verification (shell): may this producer append to this partition?

State lives in `__transaction_state`, one record for a transactional id (`stored`).
"""
