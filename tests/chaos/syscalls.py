"""What the operating system says to a broker when its disk is slow, dying or dishonest.

A broker reaches its disk through a few functions of `os`. A broker that is started by this module asks a file, at each
of these calls, what is to be done instead:

    syscalls = Syscalls(tmp_path / "syscalls")
    Home(data, program=syscalls.program)
    syscalls.do("sync fails", "in-")            to files whose path has "in-" in it; "" is all of them
    syscalls.do("")                             nothing any more

    sync fails      EIO, without anything being synced (which is all that a kernel promises after it)
    sync lies       as if it had been done
    slow            a write or a sync takes a twentieth of a second longer
    tear            half of the bytes of a write arrive; then the process is killed

    python -m tests.chaos.syscalls FILE broker …        is `python -m pessoa broker …` with such a disk
"""

from __future__ import annotations

import errno
import os
import runpy
import select
import signal
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

SLOW_S = 0.05


@cache
def why_no_syscalls() -> str | None:
    return None if Path("/proc/self/fd").exists() else "no file can be told from another without /proc (Linux)"


class Syscalls:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.do("")

    def __repr__(self) -> str:
        return f"<Syscalls: {self._path.read_text() or 'as they are'}>"

    @property
    def program(self) -> tuple[str, ...]:
        """In place of `-m pessoa`."""
        return ("-m", "tests.chaos.syscalls", str(self._path))

    def do(self, what: str, where: str = "") -> None:
        """Put in place whole, because it is read at any moment."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{what}\n{where}")
        new.replace(self._path)


# In the process.


def main(arguments: list[str]) -> None:
    file, *others = arguments
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _syncing(getattr(os, name), file))
    os.pwrite = _writing(os.pwrite, file, _half)
    os.pwritev = _writing(os.pwritev, file, lambda buffers: [_half(b"".join(buffers))])
    sys.argv = ["pessoa", *others]
    runpy.run_module("pessoa", run_name="__main__")


def _asked(file: str, descriptor: int) -> str:
    """What is to be done at a call on this descriptor."""
    with open(file, encoding="utf-8") as control:  # noqa: PTH123  as little as possible: this is asked all the time
        what, _, where = control.read().partition("\n")
    return what if what and where in str(Path(f"/proc/self/fd/{descriptor}").readlink()) else ""


def _syncing(real: Callable[[int], None], file: str) -> Callable[[int], None]:
    def sync(descriptor: int) -> None:
        match _asked(file, descriptor):
            case "sync fails":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case "sync lies":
                return
            case "slow":
                _wait()
        real(descriptor)

    return sync


def _writing(real: Callable[..., int], file: str, half: Callable[[Any], Any]) -> Callable[..., int]:
    def write(descriptor: int, data: Any, position: int) -> int:
        match _asked(file, descriptor):
            case "tear":
                real(descriptor, half(data), position)
                os.kill(os.getpid(), signal.SIGKILL)
            case "slow":
                _wait()
        return real(descriptor, data, position)

    return write


def _wait() -> None:
    # Not `time.sleep`: libfaketime, which may be under us as well, makes an error of its deadline now and then.
    select.select((), (), (), SLOW_S)


def _half(data: Sequence[int]) -> bytes:
    view = memoryview(data).cast("B")  # type: ignore[arg-type]
    return bytes(view[: len(view) // 2])


if __name__ == "__main__":
    main(sys.argv[1:])
