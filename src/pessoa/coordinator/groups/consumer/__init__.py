"""Groups of the consumer protocol (KIP-848).

    consumer_group      a consumer group: members, epochs, targets; the names of their timers
    consumer_heartbeat  ConsumerGroupHeartbeat; heartbeat_steps: what it is made of
    reconciliation      a member's next step towards its target; assignors: who gets which partition
    regex_refresh       when the expressions of subscriptions are matched against the topics
    metadata_hash       the hash of the topics that a group is subscribed to
    consumer_records    the records of a group, and replaying them
    classic_members     members that speak the classic protocol to a consumer group

All of it is pure (see `coordinator.groups`).
"""
