"""Where a connection's bytes land, and the frames in them.

A socket reads straight into `space()`, and frames are ranges of the same bytearray: a produced batch is never copied
between the kernel and the log, and it can be stamped in place.

    ┌────────── bytearray ───────────────────────────────┐
    │ taken frames │ size │ frame │ size │ half a frame … │   space()
    └──────────────┴──────┴───────┴──────┴────────────────┘
                   ↑ start                               ↑ end

- A size that is negative or above the limit is a `ProtocolViolation` as soon as its four bytes are there.
- Memory grows with the bytes that came, by doubling, never on the word of a peer; a buffer that a large frame has
  grown is given back as soon as it is empty. Beyond `INITIAL_BYTES` its owner is asked first: `has_space` says whether
  there is anything to read into.
- A taken frame may be in use until `release()`: until then its bytes are neither moved nor overwritten. New bytes go
  behind it, or into a fresh buffer.
- Every read should bring much, because each costs a wake-up of the loop: where less than half of the buffer is left,
  the waiting bytes go to the front, and a peer that fills it in one go gets a larger one.
"""

from __future__ import annotations

from struct import Struct
from typing import Protocol

from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import DEFAULT_MAX_FRAME_BYTES, SIZE_BYTES

_read_size = Struct(">i").unpack_from
_read_size_and_api = Struct(">ih").unpack_from

# A request begins with the number of its API.
API_BYTES = 2
# The bytes that hold a frame, and the range in them.
Frame = tuple[bytearray, int, int]

INITIAL_BYTES = 64 * 1024
# What a connection has that has sent little: most of many connections are idle.
_FIRST_BYTES = 4 * 1024
# Less room than this is not worth a system call.
_MIN_SPACE = 4 * 1024
# A buffer grows to this for the sake of fewer reads, and beyond it only for a frame that needs it.
_READ_BYTES = 256 * 1024
# An empty buffer larger than this is not kept. Producers' requests are up to 1 MiB by default.
_KEPT_BYTES = 2 * 1024 * 1024


class Owner(Protocol):
    """The connection that accounts for the memory of a buffer."""

    def may_grow(self, more_bytes: int, frame_bytes: int, *, must: bool) -> bool:
        """Return whether the buffer may take `more_bytes` for a frame of `frame_bytes`. With `must` there is no byte
        left, and nothing can be read without them."""

    def has_grown(self, memory_bytes: int) -> None:
        """Note that the buffer now has `memory_bytes` in all; it may also have shrunk."""


class ReceiveBuffer:
    __slots__ = ("_data", "_end", "_is_lent", "_lent_bytes", "_owner", "_start", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES, owner: Owner | None = None) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._owner = owner
        self._data = bytearray(_FIRST_BYTES)
        self._view = memoryview(self._data)
        self._start = 0
        self._end = 0
        self._is_lent = False
        # Of buffers before this one, which hold frames that are in use.
        self._lent_bytes = 0

    def __repr__(self) -> str:
        lent = ", a frame is in use" if self._is_lent else ""
        return f"<ReceiveBuffer: {self._end - self._start} bytes waiting of {len(self._data)}{lent}>"

    @property
    def waiting_bytes(self) -> int:
        return self._end - self._start

    @property
    def is_empty(self) -> bool:
        """Whether no bytes wait in the buffer, and no taken frame is in use."""
        return self._start == self._end and not self._is_lent

    def space(self) -> memoryview:
        """Return the memory for the next bytes; `received` must follow with their number."""
        size = len(self._data)
        if self._start == self._end and not self._is_lent:
            self._start = self._end = 0
        elif self._end > size // 2 and not self._make_room(size) and self._end == size:
            # Its owner has said no, and reads all the same.
            self._move(self._capacity_wanted(size))
        return self._view[self._end :]

    def has_space(self) -> bool:
        """Whether bytes can be received; False if the buffer is full and its owner allows it no more memory."""
        size = len(self._data)
        return self._end < size or self.is_empty or self._make_room(size)

    def received(self, count: int) -> None:
        self._end += count

    def take_frame(self) -> Frame | None:
        """Return the buffer that holds the next complete frame, and the frame's range in it; None if more bytes are
        needed."""
        start = self._start
        available = self._end - start
        if available < SIZE_BYTES:
            return None
        size = _read_size(self._data, start)[0]
        if not 0 <= size <= self.max_frame_bytes:
            raise ProtocolViolation(f"a frame of {size} bytes was announced; the limit is {self.max_frame_bytes}")
        if available < SIZE_BYTES + size:
            return None
        start += SIZE_BYTES
        self._start = start + size
        self._is_lent = True
        return self._data, start, start + size

    def next_api(self) -> int:
        """Return the API key of the next frame, whether it is complete or not; -1 if it was not received."""
        if self._end - self._start < SIZE_BYTES + API_BYTES:
            return -1
        api: int = _read_size_and_api(self._data, self._start)[1]
        return api

    def frame_bytes(self) -> int:
        """The size of the next frame, whether it is complete or not; 0 if its size was not received."""
        if self._end - self._start < SIZE_BYTES:
            return 0
        return SIZE_BYTES + int(_read_size(self._data, self._start)[0])

    def release(self) -> None:
        """End the use of the frames taken so far; their memory may be overwritten."""
        self._is_lent = False
        if self._lent_bytes:
            self._lent_bytes = 0
            self._report_memory()
        if len(self._data) > _KEPT_BYTES and self._start:
            capacity = self._capacity_wanted(len(self._data)) if self._start < self._end else INITIAL_BYTES
            if 2 * capacity <= len(self._data):
                self._move(capacity)

    def disown(self) -> None:
        """Stop reporting memory to the owner: otherwise an owner and its buffer would keep each other alive."""
        self._owner = None

    def shrink(self) -> None:
        """Free memory that the waiting bytes do not need, unless a taken frame is in use."""
        waiting = self._end - self._start
        if len(self._data) > INITIAL_BYTES and waiting <= INITIAL_BYTES - _MIN_SPACE and not self._is_lent:
            self._move(INITIAL_BYTES)

    def _make_room(self, size: int) -> bool:
        """Make room for `size` bytes if the owner allows it; return whether there is any room now."""
        capacity = self._capacity_wanted(size)
        if capacity > size or (size - self._end < _MIN_SPACE and self._is_lent):
            more = capacity if self._is_lent else capacity - size
            must = self._end == size
            if (
                self._owner is None
                or capacity <= INITIAL_BYTES
                or self._owner.may_grow(more, self.frame_bytes(), must=must)
            ):
                self._move(capacity)
                return True
        if self._start and not self._is_lent:
            waiting = self._end - self._start
            self._view[:waiting] = self._view[self._start : self._end]
            self._start, self._end = 0, waiting
        return self._end < size

    def _capacity_wanted(self, size: int) -> int:
        waiting = self._end - self._start
        capacity = size if size <= _KEPT_BYTES else INITIAL_BYTES
        if self._end == size and capacity < _READ_BYTES:
            # The read filled it, so there is more where that came from.
            capacity = max(2 * capacity, INITIAL_BYTES)
        wanted = self.frame_bytes()
        worth_growing_to = max(_READ_BYTES, wanted)
        while capacity < waiting + _MIN_SPACE or (capacity < 2 * waiting and capacity < worth_growing_to):
            capacity *= 2
        if capacity > _KEPT_BYTES:
            # What is so large is not kept for the next frame.
            capacity = max(_KEPT_BYTES, waiting + _MIN_SPACE, min(capacity, wanted + _MIN_SPACE))
        return capacity

    def _move(self, capacity: int) -> None:
        """Copy the waiting bytes into a new buffer. Views of taken frames keep the old one alive."""
        waiting = self._end - self._start
        if self._is_lent:
            self._lent_bytes += len(self._data)
        fresh = bytearray(capacity)
        view = memoryview(fresh)
        view[:waiting] = self._view[self._start : self._end]
        self._data, self._view, self._start, self._end, self._is_lent = fresh, view, 0, waiting, False
        self._report_memory()

    def _report_memory(self) -> None:
        if self._owner is not None:
            self._owner.has_grown(len(self._data) + self._lent_bytes)
