"""Carries out what the raft machine wants done: `Ready`, from its first field to its last.

    persist        `quorum-state` is on the disk before anything else happens
    truncate_to    then the log is truncated,
    records        or appended to; damaged records are fetched again
    opens_epoch    the first records of a leader
    snapshot       a download begins, in a task
    sends          each request is a task, whose response goes back into the machine

A step may put more into the machine, which is then ready again. So `carry_out` is called until there is nothing left.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.quorum.state_file import QUORUM_STATE_FILE, state_of, write_quorum_state
from pessoa.raft.messages import ElectionState, Request, Unanswered
from pessoa.raft.roles import Follower
from pessoa.records.invalid_batch import InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.raft.messages import OffsetAndEpoch

log = logging.getLogger("pessoa.quorum")


class ReadySteps:
    def __init__(self, quorum: RaftQuorum) -> None:
        self._quorum = quorum
        self._is_downloading = False

    def __repr__(self) -> str:
        return f"<ReadySteps{' while a snapshot is downloaded' if self._is_downloading else ''}>"

    def carry_out(self) -> bool:
        """Carry out the machine's `Ready`. Return whether there was anything to do."""
        quorum, raft = self._quorum, self._quorum.raft
        ready = raft.take_ready()
        if ready.persist is not None:
            self._persist(ready.persist)
        if ready.truncate_to is not None:
            quorum.log.truncate_to(ready.truncate_to, quorum.now_ms())
            quorum.note_voters()
            raft.appended(quorum.monotonic_ms())
        if ready.records is not None:
            self._append_fetched(ready.records)
        if ready.opens_epoch is not None:
            self._open_epoch(ready.opens_epoch)
        if ready.snapshot is not None:
            self._begin_download(ready.snapshot)
        for peer, request in ready.sends:
            quorum.spawn(self._exchange(peer, request))
        return not ready.is_empty

    def _persist(self, election: ElectionState) -> None:
        quorum = self._quorum
        state, version = state_of(election, quorum.node_id, quorum.log.history)
        write_quorum_state(quorum.disk, f"{quorum.log.directory}/{QUORUM_STATE_FILE}", state, version)

    def _append_fetched(self, records: memoryview) -> None:
        quorum, raft = self._quorum, self._quorum.raft
        try:
            quorum.log.append_fetched(records, raft.epoch, quorum.now_ms())
        except InvalidBatch as problem:
            log.warning("node %s has sent damaged records: %s", raft.leader_id, problem)
            raft.fetch_again(quorum.monotonic_ms())
        else:
            quorum.note_voters()
            raft.appended(quorum.monotonic_ms())

    def _open_epoch(self, granting: Sequence[int]) -> None:
        from pessoa.quorum.opening import opening_messages

        quorum = self._quorum
        messages = opening_messages(quorum.node_id, quorum.log.history, granting)
        quorum.log.append_control(messages, quorum.epoch, quorum.now_ms())
        quorum.note_voters()

    async def _exchange(self, peer: int, request: Request) -> None:
        from pessoa.quorum.peer_requests import exchange

        quorum = self._quorum
        reply = await exchange(quorum, peer, request)
        if not quorum.is_working:
            return
        if isinstance(reply, Unanswered):
            quorum.raft.failed(quorum.monotonic_ms(), peer, request, reply)
        else:
            quorum.raft.replied(quorum.monotonic_ms(), peer, request, reply)
        quorum.step()
        quorum.wake()

    def _begin_download(self, snapshot: OffsetAndEpoch) -> None:
        if self._is_downloading:
            # One file is written at a time; the download that is under way will see that its leader is gone.
            self._quorum.raft.fetch_again(self._quorum.monotonic_ms())
        else:
            self._is_downloading = True
            self._quorum.spawn(self._download(snapshot))

    async def _download(self, snapshot: OffsetAndEpoch) -> None:
        from pessoa.quorum.peer_requests import download_snapshot

        quorum = self._quorum
        try:
            is_whole = await download_snapshot(quorum, snapshot)
        finally:
            self._is_downloading = False
        if not quorum.is_working or not isinstance(quorum.raft.role, Follower):
            return
        now_ms = quorum.monotonic_ms()
        if is_whole and snapshot.offset > quorum.high_watermark:
            quorum.restart_at(snapshot)
            quorum.raft.snapshot_loaded(now_ms)
        else:
            quorum.raft.fetch_again(now_ms)
        quorum.step()
