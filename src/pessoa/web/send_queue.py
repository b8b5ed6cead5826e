"""The size of what a connection has written and its caller has not read.

The buffer of the transport alone says too little: the socket below it may hold megabytes, and takes more only when a
third of them have left, for which a caller on a slow line needs longer than a deadline gives it.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes that the transport and its socket hold; 0 as soon as the transport holds none."""
    held = transport.get_write_buffer_size()
    connected = transport.get_extra_info("socket") if held else None
    if connected is None:
        return held
    try:
        # SIOCOUTQ of Linux, which has the same number: what the other end has not acknowledged.
        return held + int(*struct.unpack("i", fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4))))
    except (OSError, ValueError):
        # The socket is closed.
        return held
