"""Sending what stands in files from the page cache to a socket, without a copy in our memory (sendfile).

An answer is a list of buffers. Where `InFile` stands in place of one, it is a range of a file of which only the size is
needed until it is sent. On uvloop's own TCP transports `FileSender` gives the socket what it takes, and keeps the rest:

    answers ──▶ send ──▶ socket
                  └── the socket is full: one piece goes to the transport, as bytes
                                          which says when that has been sent (resume_writing) ──▶ go_on ──▶ socket …

So the transport, which owns the socket and alone may wait for it, is asked in the one way that it has; and a peer that
does not read costs the memory of one piece, however large its answer is. On other transports (TLS, asyncio's, the wires
of tests) the ranges are read and written as bytes.

What stands in a file may go before it is sent: its segment is deleted, the log is truncated. Then the connection is cut
(`RangeLost`), for the size of the answer has been said.

Copying large answers, out of the page cache and into the socket, took two fifths of the broker's processor time for a
consumed gigabyte.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

    from pessoa.wire.frames import Buffer

# What is smaller is cheaper to read, and to send together with what stands around it (docs/decisions/0014).
WORTH_SENDING_BYTES = 128 * 1024
# What the transport gets of an answer while the socket is full.
_PIECE_BYTES = 16 * 1024
# What is read at a time of a file that has no descriptor.
_READ_BYTES = 256 * 1024
_ALL = sys.maxsize


class RangeLost(Exception):
    """The bytes of a file range cannot be read any more. Their size was announced to the peer, so its connection must
    be closed."""


class FilePlace(NamedTuple):
    descriptor: int
    position: int


class InFile:
    """Stands among the buffers of an answer for bytes of a file."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def place(self) -> FilePlace | None:
        """Return the descriptor and the position of these bytes, valid until any other file is used; None for a file in
        memory. Raises RangeLost."""
        raise NotImplementedError

    def read(self, size: int = _ALL) -> bytes:
        """Return the first `size` of these bytes, or all of them. Raises RangeLost."""
        raise NotImplementedError

    def behind(self, count: int) -> InFile:
        """Return the range without its first `count` bytes."""
        raise NotImplementedError


def read_ranges(answers: Iterable[object]) -> list[Buffer]:
    """Return the same buffers with the bytes of file ranges read into memory. Raises RangeLost."""
    return [cast("Buffer", one.read() if isinstance(one, InFile) else one) for one in answers]


class FileSender:
    """Sends responses with file ranges over one connection. Call `close` when the connection is lost."""

    __slots__ = ("_socket", "_transport", "_unsent")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # The transport owns the descriptor, and keeps its own socket object to itself.
        self._socket = socket.socket(fileno=transport.get_extra_info("socket").fileno())
        self._socket.setblocking(False)
        # Whatever the transport cannot send at once makes it tell when it is sent, and not before.
        transport.set_write_buffer_limits(0, 0)
        # What is to be sent behind the piece that the transport has.
        self._unsent: deque[object] = deque()

    def __repr__(self) -> str:
        return f"<FileSender to {self._socket.fileno()}, {len(self._unsent)} buffers to go>"

    @property
    def is_busy(self) -> bool:
        """Whether earlier bytes are not sent yet."""
        return bool(self._unsent)

    def send(self, answers: Sequence[object]) -> None:
        """Send the buffers, or as much as the socket takes; `go_on` sends the rest. Raises RangeLost."""
        is_first = not self._unsent
        self._unsent += answers
        if is_first:
            self.go_on()

    def go_on(self) -> None:
        """Send as much as the socket takes: the transport has sent its part. Raises RangeLost."""
        rest, transport = self._unsent, self._transport
        while rest and not transport.is_closing():
            if not transport.get_write_buffer_size():
                self._fill_socket()
            if rest:
                transport.write(self._take_piece())
                if transport.get_write_buffer_size():
                    return

    def flush(self) -> None:
        """Write all of the rest to the transport, which is about to be closed. Raises RangeLost."""
        rest = read_ranges(self._unsent)
        self._unsent.clear()
        if rest and not self._transport.is_closing():
            self._transport.writelines(rest)

    def _fill_socket(self) -> None:
        rest = self._unsent
        try:
            while rest:
                first = rest[0]
                if isinstance(first, InFile):
                    sent = self._send_range(first)
                else:
                    # A header should not be a packet of its own, nor wake the peer.
                    sent = self._socket.send(cast("Buffer", first), socket.MSG_MORE if len(rest) > 1 else 0)
                self._remove_sent(sent)
        except BlockingIOError:
            pass
        except OSError as problem:
            # The peer has gone, or the disk has failed: which, the range finds out.
            for one in rest:
                if isinstance(one, InFile) and not isinstance(problem, ConnectionError):
                    one.read()
            raise RangeLost(problem.strerror) from problem

    def _send_range(self, one: InFile) -> int:
        place = one.place()
        if place is None:
            return self._socket.send(one.read(_READ_BYTES))
        descriptor, position = place
        sent = os.sendfile(self._socket.fileno(), descriptor, position, len(one))
        if not sent:
            raise RangeLost("the file ends before the range does")
        return sent

    def _remove_sent(self, count: int) -> None:
        """Remove `count` bytes, which have been sent, from the first buffer."""
        first = cast("Buffer | InFile", self._unsent[0])
        if count == len(first):
            self._unsent.popleft()
        elif isinstance(first, InFile):
            self._unsent[0] = first.behind(count)
        else:
            self._unsent[0] = memoryview(first)[count:]

    def _take_piece(self) -> Buffer:
        first = cast("Buffer | InFile", self._unsent[0])
        if not isinstance(first, InFile):
            self._unsent.popleft()
            return first
        piece = first.read(_PIECE_BYTES)
        self._remove_sent(len(piece))
        return piece

    def close(self) -> None:
        self._unsent.clear()
        self._socket.detach()


def file_sender(transport: asyncio.Transport) -> FileSender | None:
    """Return a sender for the transport; None unless it is a plain TCP transport of uvloop on Linux."""
    uvloop = sys.modules.get("uvloop.loop")
    if uvloop is None or type(transport) is not uvloop.TCPTransport or not sys.platform.startswith("linux"):
        return None
    return FileSender(transport)
