"""One partition on one disk, byte for byte Kafka's. Read in this order:

files           the door for the disk: everything below reaches files through it
config          what a topic's configuration says about its log
index           the sparse offset index and time index beside a segment
segment         one `.log` file with its indexes: append, look up, read, recover
leader_epochs, producer_state, aborted_transactions
                what a log knows besides its bytes (pure)
partition_log   the whole: append as leader or follower, read, truncate, offsets of every kind loading
from the files of a directory to a partition log, after a clean stop or a crash retention       which segments may
go, by time, size and log start offset cleaner         compaction directory       a log directory: its partitions,
checkpoints, `meta.properties`, and what happens when its disk fails
"""
