"""Share groups (KIP-932) in the group coordinator: members, which partitions they fetch from, which are initialised.

    share_group.py             the group and its members
    share_group_replay.py      its records, written and replayed
    share_heartbeat.py         ShareGroupHeartbeat
    share_initialisation.py    which share partitions the share coordinator is told to begin
    simple_assignor.py         which members fetch from which partitions
    share_descriptions.py      ShareGroupDescribe

What is delivered to whom is the affair of the leaders of partitions (`pessoa.share`). They check no membership, and
several members may have one partition; so nothing is ever revoked here, and a member takes its target at once.
"""
