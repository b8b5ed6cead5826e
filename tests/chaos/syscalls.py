"""Injected results of system calls, as from a disk that is slow, fails or only claims to sync.

A broker reaches its disk through a few functions of `os`. A broker that is started by this module reads from a file, at
each of these calls, what to do instead:

    syscalls = Syscalls(tmp_path / "syscalls")
    Home(data, program=syscalls.program)
    syscalls.do("sync fails", "in-")            for files with "in-" in their path; "" is all files
    syscalls.do("")                             no fault any more

    sync fails      EIO, and nothing is synced (a kernel promises no more after EIO)
    sync lies       success, but nothing is synced
    slow            a write or a sync takes a twentieth of a second longer
    tear            half of the bytes of a write arrive; then the process is killed

    python -m tests.chaos.syscalls FILE broker …        runs `python -m pessoa broker …` with such a disk
"""

from __future__ import annotations

import errno
import os
import runpy
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

SLOW_S = 0.05
_ORDER_BYTES = 256


@cache
def why_no_syscalls() -> str | None:
    return None if Path("/proc/self/fd").exists() else "no file can be told from another without /proc (Linux)"


class Syscalls:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.do("")

    def __repr__(self) -> str:
        return f"<Syscalls: {self._path.read_text().strip() or 'as they are'}>"

    @property
    def program(self) -> tuple[str, ...]:
        """Return the arguments of Python that replace `-m pessoa`."""
        return ("-m", "tests.chaos.syscalls", str(self._path))

    def do(self, what: str, where: str = "") -> None:
        """Set the fault, in one write of fixed size, because the file may be read at any moment; and in place, because
        the broker keeps the file open: without a free descriptor it could not open it again."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            os.pwrite(descriptor, f"{what}\n{where}".encode().ljust(_ORDER_BYTES), 0)
        finally:
            os.close(descriptor)


# In the process.


def main(arguments: list[str]) -> None:
    file, *others = arguments
    control = os.open(file, os.O_RDONLY)
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _syncing(getattr(os, name), control))
    os.pwrite = _writing(os.pwrite, control, _half)
    os.pwritev = _writing(os.pwritev, control, lambda buffers: [_half(b"".join(buffers))])
    # With libfaketime, which may be loaded too, time.sleep sometimes fails with EINVAL.
    setattr(time, "sleep", _wait)  # noqa: B010
    sys.argv = ["pessoa", *others]
    runpy.run_module("pessoa", run_name="__main__")


def _asked(control: int, descriptor: int) -> str:
    """Return what is to be done at a call on this descriptor."""
    what, _, where = os.pread(control, _ORDER_BYTES, 0).decode().rstrip(" ").partition("\n")
    return what if what and where in str(Path(f"/proc/self/fd/{descriptor}").readlink()) else ""


def _syncing(real: Callable[[int], None], control: int) -> Callable[[int], None]:
    def sync(descriptor: int) -> None:
        match _asked(control, descriptor):
            case "sync fails":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case "sync lies":
                return
            case "slow":
                _wait()
        real(descriptor)

    return sync


def _writing(real: Callable[..., int], control: int, half: Callable[[Any], Any]) -> Callable[..., int]:
    def write(descriptor: int, data: Any, position: int) -> int:
        match _asked(control, descriptor):
            case "tear":
                real(descriptor, half(data), position)
                os.kill(os.getpid(), signal.SIGKILL)
            case "slow":
                _wait()
        return real(descriptor, data, position)

    return write


def _wait(seconds: float = SLOW_S) -> None:
    select.select((), (), (), seconds)


def _half(data: Sequence[int]) -> bytes:
    view = memoryview(data).cast("B")  # type: ignore[arg-type]
    return bytes(view[: len(view) // 2])


if __name__ == "__main__":
    main(sys.argv[1:])
