"""Which leader wrote which part of a log.

Every leader of a partition has an epoch, given by the controller and higher than all before it. A log notes where each
epoch begins in it:

    epoch   start offset
        0              0
        2             15        epoch 1 wrote nothing that reached this log
        5             40

so epoch 2 has the offsets 15 to 39, and the last one goes on to the end of the log. Two logs that have an offset in the
same epoch are equal up to there; that is how a follower finds where its log parts from the leader's (KIP-101, KIP-279),
and how a consumer notices that records it has read are gone (KIP-320).

Invariant: epochs and start offsets both rise strictly. An entry that would break it wins over those it contradicts,
because it was learned later: from a batch that is being appended, after a truncation that the others outlived.

`assign`, `truncate_from_end` and `truncate_from_start` say whether anything changed, which is when
`leader-epoch-checkpoint` has to be written. Its lines are `epoch start-offset` in the frame of `checkpoints`.

Epoch and offset -1 mean "not known", as in Kafka's protocol.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple, Self

from pessoa.log.checkpoints import INT32_MAX, INT64_MAX, parse_lines, parse_number, render_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """The largest epoch of the log up to a requested one, and the end offset of that epoch."""

    epoch: int
    end_offset: int


UNDEFINED = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache:
    """The leader epochs of one log. `latest_epoch` is an attribute, because every append compares it with the
    batch's."""

    __slots__ = ("_epochs", "_start_offsets", "latest_epoch")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        self.latest_epoch: int | None = None
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @classmethod
    def parse(cls, text: str, file_name: str = LEADER_EPOCH_FILE) -> Self:
        """Read the checkpoint; raises `CorruptCheckpoint`."""
        return cls(
            (
                parse_number(epoch, INT32_MAX, file_name, line_number),
                parse_number(start_offset, INT64_MAX, file_name, line_number),
            )
            for line_number, (epoch, start_offset) in parse_lines(text, file_name, ("epoch", "start offset"))
        )

    def render(self) -> str:
        return render_lines(f"{epoch} {start_offset}" for epoch, start_offset in self.entries())

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add `epoch` with its start offset, unless it is the latest already and starts there or earlier; return
        whether it was added."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"no leader has epoch {epoch} from offset {start_offset}")
        epochs, start_offsets = self._epochs, self._start_offsets
        if epochs and epochs[-1] == epoch and start_offsets[-1] <= start_offset:
            return False
        while epochs and (epochs[-1] >= epoch or start_offsets[-1] >= start_offset):
            epochs.pop()
            start_offsets.pop()
        epochs.append(epoch)
        start_offsets.append(start_offset)
        self.latest_epoch = epoch
        return True

    def entries(self) -> list[EpochEntry]:
        return list(map(EpochEntry, self._epochs, self._start_offsets))

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[0], self._start_offsets[0]) if self._epochs else None

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        """The epoch before `epoch`, which is the latest if not given."""
        index = len(self._epochs) - 1 if epoch is None else bisect_left(self._epochs, epoch)
        return self._epochs[index - 1] if index > 0 else None

    def start_offset_above(self, epoch: int) -> int | None:
        """Return the start offset of the first epoch above this one; None if there is none."""
        index = bisect_right(self._epochs, epoch)
        return self._start_offsets[index] if index < len(self._epochs) else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that an offset of this log was written in, or None below the first known one."""
        index = bisect_right(self._start_offsets, offset)
        return self._epochs[index - 1] if index else None

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the largest epoch up to the requested one, and its end offset."""
        epochs = self._epochs
        if requested_epoch == UNDEFINED_EPOCH:
            return UNDEFINED
        if requested_epoch == self.latest_epoch:
            return EpochEndOffset(requested_epoch, log_end_offset)
        index = bisect_right(epochs, requested_epoch)
        if index == len(epochs):
            # Higher than any: the follower knows of a leader that has written nothing here.
            return UNDEFINED
        if index == 0:
            # Lower than any: what it wrote is gone from the head of the log, and all that the follower has is to be
            # truncated to where the log starts.
            return EpochEndOffset(requested_epoch, self._start_offsets[0])
        return EpochEndOffset(epochs[index - 1], self._start_offsets[index])

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove the epochs that start at `end_offset` or later: the log now ends there. Return whether there were
        any."""
        keep = bisect_left(self._start_offsets, end_offset)
        if end_offset < 0 or keep == len(self._epochs):
            return False
        del self._epochs[keep:]
        del self._start_offsets[keep:]
        self.latest_epoch = self._epochs[-1] if self._epochs else None
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove the epochs that end before `start_offset`, where the log now starts, and let the epoch of that offset
        start there. Return whether anything changed."""
        passed = bisect_right(self._start_offsets, start_offset)
        if passed == 0 or (passed == 1 and self._start_offsets[0] == start_offset):
            return False
        del self._epochs[: passed - 1]
        del self._start_offsets[: passed - 1]
        self._start_offsets[0] = start_offset
        return True

    def truncate_above(self, epoch: int) -> int | None:
        """Remove the epochs above this one; return the start offset of the first that was removed, None if there was
        none."""
        start_offset = self.start_offset_above(epoch)
        if start_offset is not None:
            self.truncate_from_end(start_offset)
        return start_offset

    def clear(self) -> None:
        self._epochs.clear()
        self._start_offsets.clear()
        self.latest_epoch = None

    def __len__(self) -> int:
        return len(self._epochs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LeaderEpochCache):
            return NotImplemented
        return self._epochs == other._epochs and self._start_offsets == other._start_offsets

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"LeaderEpochCache({', '.join(f'{epoch} from {offset}' for epoch, offset in self.entries())})"
