"""Share groups (KIP-932) in a broker: the shells around `pessoa.share`, and the client of the share coordinators.

share_partitions.py       what this broker leads, group by group; share sessions and the ends of their connections
led_share_partition.py    the shell around one `share.share_partition.SharePartition`: loads, writes, keeps time
share_reads.py            what one ShareFetch finds: reads the log and acquires records
share_acknowledging.py    what ShareFetch and ShareAcknowledge say about records that were delivered
state_persister.py        asks the share coordinators
latest_offsets.py         asks the leaders of partitions where their logs end
share_state_pruner.py     deletes what `__share_group_state` does not need any more
share_settings.py         the settings of all of it
"""
