"""The share coordinator (KIP-932): it stores how far share groups are in partitions.

    share_state.py          the state of one share partition, and the records that it is stored in
    share_shard.py          decides about the requests for one partition of `__share_group_state`
    share_coordinator.py    the APIs: a request for many share partitions goes to their shards

The leaders of partitions and group coordinators are its clients; what the leaders keep is in `pessoa.share`.
"""
