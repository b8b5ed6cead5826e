"""The group coordinator's shard: offsets, classic groups, consumer groups (KIP-848), and moving between the two.

    group_shard          one partition of __consumer_offsets: routes requests, records and timers to the parts below
    group_registry       what the parts share: the groups, the image, the timers
    group_config         the broker's settings of groups
    committed_offsets    committed offsets, those of open transactions, and their expiry
    classic/             groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    consumer/            groups of the consumer protocol: ConsumerGroupHeartbeat
    protocol_migration   a group moves between the protocols
    group_descriptions   what the admin APIs show

All of it is pure: time and new ids are arguments, and the runtime owns the log.
"""
