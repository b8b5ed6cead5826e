"""The shell of the metadata quorum: its log, its files, and the order in which its records reach everybody.

formatting, state_file    what a node's directory says before it has said anything itself; epoch and vote
batches, snapshot_file    records as batches, snapshots as files
metadata_log              the log on the disk with its snapshots, and the voters that they name
raft_quorum               the machine of `pessoa.raft` with a log, a clock and peers
opening, waiting          what a new leader writes first; those who wait for something to happen
serving, exchange         its answers and its questions; translation says both in Kafka's words
reconfiguration, membership
                          how voters are changed, and how a controller looks after its own place
publishing, snapshotting  from committed batches to images, and from images to snapshots
describe                  what tools get to see
"""
