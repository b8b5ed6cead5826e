"""Consensus about the metadata log, as a machine that does nothing by itself (KIP-595, KIP-853, KIP-996).

    inputs      start, tick(now), a peer's request, a peer's answer, "so much of the log is on the disk"
    outputs     the answer to a request; and `Ready`: what to persist, truncate, write and send, in this order

Read `messages` (requests and replies), `voters` (the voter set), `roles` (what a member can be), `progress` (what a
leader knows of the others), `comparing` (where logs diverge), `member` (the state, and the way from role to role),
then `machine` (the inputs). The shell that owns the loop, the files and the connections is `pessoa.quorum`.

The rules that everything rests on:

- Epoch and vote are on the disk before anything is said or done in that epoch; so no voter votes twice in one.
- A member says that it has a record when the record is on its disk; so what a majority has, a majority keeps.
- A vote goes only to a candidate whose log reaches as far as the voter's own; so a leader has all that was committed.
- A leader counts a record of an earlier epoch as committed only together with one of its own.
- A member asks whether it would be elected before it begins an epoch (pre-vote); so one that was away, and heard
  nothing of a leader that is well, disturbs no other node when it comes back.
- Voters change one at a time, each change committed before the next. A voter that is removed stands, without a vote of
  its own, until that is committed; so the one log that has the change can still lead.
- A member that may have forgotten something does not vote until it has it again (`memory`).
- A leader that a majority has not fetched from for a while resigns; so one that is cut off stops answering for the
  cluster.
"""
