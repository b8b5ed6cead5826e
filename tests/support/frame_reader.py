"""Frames from bytes: for tests that talk to a broker through a socket, and for tests of the receive buffer itself."""

from __future__ import annotations

from pessoa.net.receive_buffer import ReceiveBuffer


class FrameReader(ReceiveBuffer):
    """The receive buffer of a connection, which a test fills with bytes."""

    def feed(self, data: bytes) -> None:
        while data:
            space = self.space()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            self.received(count)
            data = data[count:]

    def next_frame(self) -> memoryview | None:
        """Return a copy of the next complete frame without its size, or None if more bytes are needed."""
        frame = self.take_frame()
        if frame is None:
            return None
        data, start, end = frame
        self.release()
        return memoryview(bytes(memoryview(data)[start:end]))
