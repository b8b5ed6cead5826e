"""The file of a request log: buffered lines, rotation, and a full disk."""

from __future__ import annotations

import pytest

from pessoa.base.clock import ManualClock
from pessoa.broker.logs.log_file import FLUSH_MS, MAX_BUFFERED_BYTES, RETRY_MS, LogFile, Rotation
from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import SimulatedDisk

PATH = "/logs/access.log"
LINE = b"x" * 99 + b"\n"


class FullDisk(SimulatedDisk):
    """A disk that refuses to open files while it is full."""

    is_full = False

    def open(self, path: str, *, create: bool = False, pooled: bool = True, read_only: bool = False):  # type: ignore[no-untyped-def]
        if self.is_full:
            raise DiskError("open", path, OSError(28, "No space left on device"))
        return super().open(path, create=create, pooled=pooled, read_only=read_only)


class Stage:
    def __init__(self, max_bytes: int = 1 << 20, max_files: int = 3) -> None:
        self.clock = ManualClock()
        self.disk = FullDisk(now_ms=self.clock.now_ms)
        self.file = LogFile(
            self.disk, PATH, Rotation(max_bytes, max_files), self.clock, lambda count: b"dropped %d\n" % count
        )

    def content(self, path: str = PATH) -> bytes:
        return self.disk.read_file(path)

    def names(self) -> list[str]:
        return self.disk.list("/logs")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_lines_are_written_together_after_a_moment(stage: Stage) -> None:
    stage.file.append(b"one\n")
    stage.file.append(b"two\n")
    assert not stage.disk.exists(PATH)
    stage.clock.advance_ms(FLUSH_MS)
    assert stage.content() == b"one\ntwo\n"


def test_closing_writes_what_was_collected(stage: Stage) -> None:
    stage.file.append(b"one\n")
    stage.file.close()
    assert stage.content() == b"one\n"


def test_a_full_log_file_is_rotated_and_the_oldest_is_deleted() -> None:
    stage = Stage(max_bytes=250, max_files=3)
    for number in range(10):
        stage.file.append(LINE[:-2] + b"%d\n" % number)
        stage.file.flush()
    assert stage.names() == ["access.log", "access.log.1", "access.log.2"]
    assert stage.content().endswith(b"9\n")
    assert stage.content(PATH + ".1").endswith(b"7\n")
    assert stage.content(PATH + ".2").startswith(LINE[:-2] + b"4\n")


def test_with_max_files_1_rotation_truncates_the_log_file() -> None:
    stage = Stage(max_bytes=150, max_files=1)
    for number in range(3):
        stage.file.append(LINE[:-2] + b"%d\n" % number)
        stage.file.flush()
    assert stage.names() == ["access.log"]
    assert stage.content() == LINE[:-2] + b"2\n"


def test_a_full_disk_keeps_a_bounded_buffer_and_counts_what_it_drops(stage: Stage) -> None:
    stage.disk.is_full = True
    fits = MAX_BUFFERED_BYTES // len(LINE)
    for _ in range(fits + 7):
        stage.file.append(LINE)
    assert stage.file.dropped == 7
    stage.disk.is_full = False
    stage.clock.advance_ms(RETRY_MS)
    assert stage.content() == LINE * fits
    stage.clock.advance_ms(FLUSH_MS)
    assert stage.content() == LINE * fits + b"dropped 7\n"


def test_a_line_larger_than_the_buffer_is_written(stage: Stage) -> None:
    line = b"x" * MAX_BUFFERED_BYTES + b"\n"
    stage.file.append(line)
    assert (stage.content(), stage.file.dropped) == (line, 0)


def test_lines_after_a_failure_are_written_when_the_disk_has_room_again(stage: Stage) -> None:
    stage.disk.is_full = True
    stage.file.append(b"one\n")
    stage.clock.advance_ms(FLUSH_MS)
    stage.file.append(b"two\n")
    stage.disk.is_full = False
    stage.clock.advance_ms(RETRY_MS)
    assert stage.content() == b"one\ntwo\n"
    assert stage.file.dropped == 0
