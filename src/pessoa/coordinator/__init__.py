"""Coordinators: groups and transactions, each with its state in an internal topic.

    request ──► service (shell) ──► runtime (shell) ──► shard (pure) ──► Output: records, replies
                                       │  append, replay, wait for the high watermark, then reply
                                       └─ load by replaying the log when leadership of a partition arrives

One runtime serves one internal topic; one shard holds what stands in one partition of it. `shard` says what a shard
is, `runtime` runs them, `coordinator_log` is the door to the partition's log, and `groups` and `transactions` are the
shards.
"""
