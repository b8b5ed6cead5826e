"""A raft machine has no deadline in the past after a tick: otherwise the timer of its node would fire without end.

One member gets inputs in any order that is possible with a shell: responses that are late, refuse, name other leaders,
or have records, truncations or snapshots; requests of others; snapshot downloads that end at any time, also in a later
epoch than they began in. Before each input the shell executes `Ready`, as the real one does.
"""

from __future__ import annotations

import os
from random import Random

from pessoa.raft.machine import Raft
from pessoa.raft.memory import Memory
from pessoa.raft.messages import (
    NO_NODE,
    BeginEpoch,
    ElectionState,
    EndEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    OffsetAndEpoch,
    ReplicaKey,
    Reply,
    Request,
    Unanswered,
    Vote,
    VoteReply,
)
from pessoa.raft.ready import Timeouts
from pessoa.raft.roles import Follower
from pessoa.raft.voters import VoterSet
from pessoa.wire.errors import ErrorCode
from tests.property.raft_world import ListLog

SEEDS = int(os.environ.get("RAFT_SEEDS", "300"))
INPUTS = 120
PATIENT = Timeouts(election_timeout_ms=40, election_backoff_max_ms=40, fetch_timeout_ms=60, retry_backoff_ms=5)
# The least that settings give.
HASTY = Timeouts(election_timeout_ms=1, election_backoff_max_ms=0, fetch_timeout_ms=1, retry_backoff_ms=0)
ME = ReplicaKey(1)
ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR)


class Shell:
    """The shell of one member, with its unanswered requests, and a snapshot that is being downloaded."""

    def __init__(self, seed: int) -> None:
        random = self.random = Random(seed)
        self.now_ms = 0
        self.log = ListLog([(1, None)] * random.randrange(3))
        self.asked: list[tuple[int, Request]] = []
        self.download: OffsetAndEpoch | None = None
        # Who leads an epoch: one node, whatever is said of it.
        self.leaders: dict[int, int] = {}
        voters = VoterSet.of(*random.choice(((1, 2, 3), (1, 2, 3, 4), (2, 3), (1,))))
        memory = random.choice((Memory.WHOLE, Memory.WHOLE, Memory.NEW, Memory.DAMAGED))
        bootstrap = random.choice(((), (2, 3)))
        timeouts = random.choice((PATIENT, PATIENT, HASTY))
        self.raft = Raft(ME, voters, self.log, timeouts, random.randrange, bootstrap, memory=memory)
        self.raft.start(0, ElectionState(1, 2) if random.random() < 0.5 and 1 in voters.by_id else None)
        self.obey()

    def obey(self) -> None:
        raft, log = self.raft, self.log
        while not (ready := raft.take_ready()).is_empty:
            if ready.truncate_to is not None:
                del log.entries[ready.truncate_to :]
                log.durable_end_offset = min(log.durable_end_offset, ready.truncate_to)
                raft.appended(self.now_ms)
            if ready.records is not None:
                if self.random.random() < 0.2:
                    raft.fetch_again(self.now_ms)
                else:
                    log.entries.append((raft.epoch, None))
                    raft.appended(self.now_ms)
            if ready.opens_epoch is not None:
                log.entries.append((raft.epoch, None))
                self.leaders[raft.epoch] = ME.id
            if ready.snapshot is not None:
                if self.download is not None:
                    raft.fetch_again(self.now_ms)
                else:
                    self.download = ready.snapshot
            self.asked += ready.sends

    def step(self) -> None:
        """Give the machine one input, then the time."""
        random, raft = self.random, self.raft
        self.now_ms += random.choice((0, 0, 1, 3, 10, 50))
        give = random.choice(
            (self.answer, self.answer, self.answer, self.fail, self.ask, self.flush, self.end_download)
        )
        give()
        self.obey()
        if random.random() < 0.5:
            self.now_ms = max(self.now_ms, min(raft.deadline_ms, self.now_ms + 100))
        raft.tick(self.now_ms)
        self.obey()
        raft.tick(self.now_ms)
        assert raft.deadline_ms > self.now_ms, f"{raft!r} has something due at {raft.deadline_ms} at {self.now_ms} ms"

    def leader_of(self, epoch: int) -> int:
        if epoch == self.raft.epoch and self.raft.election.leader_id != NO_NODE:
            return self.raft.election.leader_id
        return self.leaders.setdefault(epoch, self.random.choice((2, 3)))

    def answer(self) -> None:
        if not self.asked:
            return
        random, raft = self.random, self.raft
        peer, request = self.asked.pop(random.randrange(len(self.asked)))
        epoch = random.choice((request.epoch, raft.epoch, raft.epoch, raft.epoch + 1))
        leader_id = random.choice((NO_NODE, self.leader_of(epoch)))
        error = random.choice((ErrorCode.NONE, ErrorCode.NONE, random.choice(ERRORS)))
        reply: Reply
        if isinstance(request, Fetch):
            reply = self.answer_to_fetch(request, FetchReply(error, epoch, leader_id, raft.high_watermark))
        elif isinstance(request, Vote):
            reply = VoteReply(error, epoch, leader_id, random.random() < 0.6)
        else:
            reply = EpochReply(error, epoch, leader_id)
        raft.replied(self.now_ms, peer, request, reply)

    def answer_to_fetch(self, request: Fetch, reply: FetchReply) -> FetchReply:
        random, log = self.random, self.log
        if reply.error is not ErrorCode.NONE or reply.epoch != request.epoch:
            return reply
        kind = random.randrange(4)
        if kind == 0:
            return reply._replace(records=memoryview(b"one"), high_watermark=log.log_end_offset)
        if kind == 1:
            return reply._replace(snapshot=OffsetAndEpoch(log.log_end_offset + 3, max(1, request.epoch)))
        if kind == 2 and self.raft.high_watermark == 0:
            return reply._replace(diverging=OffsetAndEpoch(max(0, log.log_end_offset - 1), log.last_epoch))
        return reply

    def fail(self) -> None:
        if self.asked:
            peer, request = self.asked.pop(self.random.randrange(len(self.asked)))
            self.raft.failed(self.now_ms, peer, request, self.random.choice((Unanswered.GONE, Unanswered.LATE)))

    def ask(self) -> None:
        random, raft = self.random, self.raft
        epoch = raft.epoch + random.choice((0, 0, 1, 2))
        if random.random() < 0.5:
            who = ReplicaKey(random.choice((2, 3)))
            raft.vote(self.now_ms, Vote(epoch, who, 9, 99, random.random() < 0.5, ME))
            return
        leader_id = self.leader_of(epoch)
        if leader_id == ME.id:
            return
        if random.random() < 0.5:
            raft.begin_epoch(self.now_ms, BeginEpoch(epoch, leader_id, ME))
        else:
            raft.end_epoch(self.now_ms, EndEpoch(epoch, leader_id, random.choice(((), (ME,), (ReplicaKey(2), ME)))))

    def flush(self) -> None:
        self.log.durable_end_offset = self.log.log_end_offset
        self.raft.flushed(self.now_ms)

    def end_download(self) -> None:
        """End the download as `ReadySteps._download` does, in the present epoch."""
        snapshot, self.download = self.download, None
        if snapshot is None or not isinstance(self.raft.role, Follower):
            return
        if self.random.random() < 0.5 and snapshot.offset > self.log.log_end_offset:
            self.log.entries += [(snapshot.epoch, None)] * (snapshot.offset - self.log.log_end_offset)
            self.log.durable_end_offset, self.log.latest_snapshot = snapshot.offset, snapshot
            self.raft.snapshot_loaded(self.now_ms)
        else:
            self.raft.fetch_again(self.now_ms)


def test_no_raft_deadline_stays_due_after_tick_whatever_is_received() -> None:
    for seed in range(SEEDS):
        shell = Shell(seed)
        for number in range(INPUTS):
            try:
                shell.step()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, input {number}: {error}") from error
