"""The shell of the metadata quorum: its log, its files, and the order in which its records reach the listeners.

formatting, state_file    what a node's directory says before it has said anything itself; epoch and vote
batches, snapshot_file    records as batches, snapshots as files
metadata_log              the log on the disk with its snapshots, and the voters that they name
raft_quorum               the machine of `pessoa.raft` with a log, a clock and peers. Its parts:
  ready_steps, alarm      what the machine wants done, and when it wants to be called again
  log_sync                the disk, behind the log
  uncommitted_appends, committed_delivery
                          what waits for a majority, and what the listeners get when it has it
  peer_addresses          where the others listen
opening, waiting          what a new leader writes first; those who wait for something to happen
quorum_requests, peer_requests
                          its answers and its questions; translation says both in Kafka's words
reconfiguration, voter_membership
                          how voters are changed, and how a controller looks after its own place
publishing, snapshotting  from committed batches to images, and from images to snapshots
describe                  what tools get to see
"""
