"""One partition on one disk, byte for byte Kafka's. Read in this order:

files                     the door for the disk: everything below reaches files through it (descriptor_pool: open files)
log_config, topic_config  what a topic's configuration says about its log
index                     the sparse offset index and time index beside a segment
segment                   one `.log` file with its indexes: append, look up, read, recover (timestamp_search: by time)
lazy_segment              the segment of a log without files
leader_epoch_cache, producer_state, aborted_transactions
                          what a log knows besides its bytes (pure); replay learns it again from batches
readable_log, durable_log, partition_log
                          what can be read of a log; how much of it is on the disk; appending and truncating
log_loader                from the files of a directory to a partition log, after a clean stop or a crash
producer_snapshot_files, producer_snapshot_format, checkpoints, meta_properties
                          the small files
directory                 a log directory: its partitions and checkpoints, and what happens when its disk fails
flusher, upkeep           one fsync for all writers that wait; the background jobs of the logs
retention, compaction/    which segments may be deleted; which records may be taken out
future_log                a copy of a log in another directory, which takes the log's place
simulated_disk, simulated_platter
                          a disk in memory that tears writes, fills up and loses power
"""
