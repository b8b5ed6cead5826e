"""Groups of the classic protocol.

    classic_group      a classic group: members, generation, state, and its record
    rebalance          the rounds of joining and syncing that all of the classic protocol shares
    join               JoinGroup
    sync               SyncGroup, Heartbeat, LeaveGroup
    consumer_payloads  what consumers put into JoinGroup and SyncGroup

All of it is pure (see `coordinator.groups`).
"""
