"""Disks that can lose power, fail and fill up: file systems in images, mounted in a namespace of their own.

    with Disks(tmp_path) as disks:
        homes = {number: Home(disks.path(number) / "data") for number in BROKERS}
        …
        brokers.pause(1)
        disks.remember(1)       copy the image: synced data, and what the kernel happened to have written
        brokers.kill(1)
        disks.go_back(1)        power is back: mount the copied image, which replays the file system's journal

The images are ext4 on a loop device, and are in memory. A process that is killed loses nothing, because the kernel has
its writes; the image has only what reached the "disk". The journal is committed every five minutes instead of every
five seconds, so data that was not synced is not there by accident. `Namespace` explains how the mounts are removed.

A failing disk returns an error for every write and sync from one moment on: an ioctl of ext4 does that.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Self

from tests.chaos.namespaces import Namespace
from tests.chaos.processes import BROKERS, TIMEOUT_S

_IMAGE_BYTES = 192 << 20
# linux/ext4: EXT4_IOC_SHUTDOWN, _IOR('X', 125, u32), with EXT4_GOING_FLAGS_NOLOGFLUSH: nothing is written any more.
_SHUTDOWN = 0x8004587D
_NO_FLUSH = (2).to_bytes(4, "little")
_OPTIONS = "loop,commit=300,noatime"


@cache
def why_no_disks() -> str | None:
    """Return a sentence about why no image can be mounted here, or None if one can."""
    if os.geteuid() != 0:
        return "images of disks are mounted by root alone"
    missing = [tool for tool in ("mkfs.ext4", "mount", "nsenter", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"images of disks want {', '.join(missing)} (Debian: e2fsprogs, mount, util-linux)"
    script = (
        "mount -t tmpfs none /mnt && truncate -s 8M /mnt/image && mkfs.ext4 -qF /mnt/image && mkdir /mnt/disk"
        " && mount -o loop /mnt/image /mnt/disk"
    )
    tried = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, timeout=TIMEOUT_S)
    if tried.returncode != 0:
        return f"the kernel mounts no image of a disk: {tried.stderr.decode().strip()}"
    return None


class Disks:
    def __init__(self, directory: Path, numbers: Iterable[int] = BROKERS) -> None:
        self._numbers = tuple(numbers)
        self._namespace = Namespace("mount")
        self._inside = directory / "disks"
        self._inside.mkdir()
        # The same directory, for processes outside the namespace.
        self._outside = Path(f"/proc/{self._namespace.pid}/root{self._inside}")

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __repr__(self) -> str:
        return f"<Disks {self._numbers} in {self._outside}>"

    def __enter__(self) -> Self:
        try:
            self._namespace.run("mount", "-t", "tmpfs", "none", str(self._inside))
            for number in self._numbers:
                self.path(number).mkdir()
                with self._image(number).open("wb") as image:
                    image.truncate(_IMAGE_BYTES)
                self._namespace.run("mkfs.ext4", "-q", "-F", str(self._inside / self._image(number).name))
                self._mount(number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._namespace.close()

    def path(self, number: int) -> Path:
        return self._outside / str(number)

    def remember(self, *numbers: int) -> None:
        """Copy the images as they are. The brokers that write to them must be paused: all images are of one moment."""
        for number in numbers:
            image = self._image(number)
            # Sparse copies, which take a few milliseconds.
            command = ["cp", "--sparse=always", str(image), str(image.with_suffix(".then"))]
            subprocess.run(command, check=True, timeout=TIMEOUT_S)

    def go_back(self, *numbers: int) -> None:
        """Mount the remembered images again. No process may have a file open there."""
        for number in numbers:
            self._unmount(number)
            self._image(number).with_suffix(".then").replace(self._image(number))
            self._mount(number)

    def fail(self, number: int) -> None:
        """Make the disk fail: it refuses everything from now on, and does not write pending data."""
        folder = os.open(self.path(number), os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, _NO_FLUSH)
        finally:
            os.close(folder)

    def repair(self, number: int) -> None:
        self._unmount(number)
        self._mount(number)

    def fill(self, number: int) -> None:
        """Fill the disk to the last byte."""
        filler = self.path(number) / "filler"
        with filler.open("wb", buffering=0) as file:
            # In steps, since a write that does not fit writes nothing.
            for step in (1 << 20, 1 << 12):
                try:
                    while True:
                        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
                except OSError as problem:
                    if problem.errno != errno.ENOSPC:
                        raise

    def make_room(self, number: int) -> None:
        (self.path(number) / "filler").unlink()

    def _image(self, number: int) -> Path:
        return self._outside / f"{number}.image"

    def _mount(self, number: int) -> None:
        image = self._inside / self._image(number).name
        self._namespace.run("mount", "-o", _OPTIONS, str(image), str(self._inside / str(number)))

    def _unmount(self, number: int) -> None:
        self._namespace.run("umount", str(self._inside / str(number)))
