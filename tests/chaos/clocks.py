"""Wall clocks that jump: a broker under libfaketime, which reads the offset of its clock from a file.

    clock = JumpingClock(tmp_path / "clock")
    Home(data, command=clock.command)
    clock.jump(3600)            an hour forward, at once; negative: back

The monotonic clock is not changed, as when an administrator or a time server sets a real clock.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")


@cache
def _library() -> Path | None:
    return next((found for pattern in _LIBRARIES for found in Path("/").glob(pattern[1:])), None)


@cache
def why_no_jumps() -> str | None:
    return None if _library() else "no clock can be made to jump without libfaketime (Debian: faketime)"


class JumpingClock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.jump(0)

    def __repr__(self) -> str:
        return f"<JumpingClock {self._path.read_text()}>"

    @property
    def command(self) -> tuple[str, ...]:
        return (
            "env",
            f"LD_PRELOAD={_library()}",
            f"FAKETIME_TIMESTAMP_FILE={self._path}",
            # libfaketime reads the file whenever the process reads the clock.
            "FAKETIME_NO_CACHE=1",
            "DONT_FAKE_MONOTONIC=1",
            # Times of files stay those of the file system.
            "NO_FAKE_STAT=1",
        )

    def jump(self, seconds: int) -> None:
        """Set the offset from the real time, by replacing the file, because it may be read at any moment."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{seconds:+d}")
        new.replace(self._path)
