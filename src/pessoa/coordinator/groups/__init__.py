"""The group coordinator's shard: offsets, classic groups, consumer groups (KIP-848), and moving between the two.

    shard            one partition of __consumer_offsets: routes requests, records and timers to the parts below
    registry         what the parts share: the groups, the image, the timers
    offsets          committed offsets, those of open transactions, and their expiry

    classic_group    a classic group: members, generation, state, and its record
    classic          JoinGroup, and the rounds of joining that all of the classic protocol shares
    classic_sync     SyncGroup, Heartbeat, LeaveGroup

    consumer_group   a consumer group: members, epochs, targets
    consumer         ConsumerGroupHeartbeat; consumer_steps: what it is made of; reconciliation: a member's next step
    consumer_regex   when expressions are matched; regex: how
    consumer_records the records; metadata_hash, assignors: pure functions

    migration        a group moves between the protocols; classic_in_consumer: classic members of a consumer group
    embedded         what consumers put into the classic protocol
    describe         what the admin APIs show

All of it is pure: time and new ids are arguments, and the log is somebody else's.
"""
