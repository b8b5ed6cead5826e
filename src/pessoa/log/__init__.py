"""One partition on one disk, byte for byte Kafka's. Read in this order:

files                     the door for the disk: everything below reaches files through it (descriptors: the pool)
config, topic_config      what a topic's configuration says about its log
index                     the sparse offset index and time index beside a segment
segment                   one `.log` file with its indexes: append, look up, read, recover
leader_epochs, producer_state, aborted_transactions
                          what a log knows besides its bytes (pure); replay learns it again from batches
partition_log             the whole: append as leader or follower, read, truncate, offsets of every kind
loading                   from the files of a directory to a partition log, after a clean stop or a crash
snapshots, checkpoints, properties
                          the small files
directory                 a log directory: its partitions and checkpoints, and what happens when its disk fails
flushing, upkeep          one fsync for all who wait; what is done while nobody asks
retention                 which segments may go, by time, size and log start offset
cleaner                   compaction: when, what, and the swap; the work is in cleaning_plan, cleaning_pass,
                          cleaning_batches, cleaning_transactions, offset_map; cleaning_shell runs it
simulated_disk, simulated_platter
                          a disk in memory that tears writes, fills up and loses power
"""
