"""The group coordinator's shard: offsets, classic groups, consumer groups (KIP-848), and moving between the two.

    shard          one partition of __consumer_offsets: routes requests, records and timers to the parts below
    registry       what the parts share: the groups, the image, the timers
    offsets        committed offsets, those of open transactions, and their expiry
    classic*       the classic protocol: the barrier of JoinGroup, the leader's SyncGroup, generations
    consumer*      the KIP-848 protocol: heartbeats, member epochs, target assignments, reconciliation
    migration      a group moves between the protocols while its members live
    describe       what the admin APIs show

All of it is pure: time and new ids are arguments, and the log is somebody else's.
"""
