"""Share groups (KIP-932) as the leader of a partition sees them: which records are with which member, and for how long.

A share group reads a partition as a queue: a record is acquired by one member, under a lock that ends, and is then
acknowledged, or becomes available to the others. The leader of the partition keeps this in memory, one
`share_partition.SharePartition` for every group, and stores it with the share coordinator (`coordinator/share/`).

    share_partition.py    the machine: acquire, acknowledge, release, time, writes to the share coordinator
    acquisition.py        which records of a fetch a member gets
    acknowledgement.py    which transitions a member asks for, and which are refused
    in_flight.py          the records in flight as runs of equal state
    state_batches.py      what is stored of them, and how two stored states become one
    share_sessions.py     which partitions a member fetches from on this broker, request by request

Everything here is pure: offsets and `now_ms` in, decisions out.
"""
