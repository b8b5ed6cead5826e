"""Spark's classes as Java keeps them in memory, in a file: a start maps it instead of reading and checking 300 jars.

    first start      java -XX:DumpLoadedClassList=NAME.classes     writes down which classes it loads
    a while later    java -Xshare:dump … NAME.partial → NAME.jsa   makes the archive, once, when the processor is idle
    later starts     java -XX:SharedArchiveFile=NAME.jsa

The name holds what the archive is good for: this Java and these jars, with their sizes and times. Java looks at that
itself too, and takes the jars if an archive is not the right one. It is whole when it has its name. The two that were
used last are kept. docs/decisions/0020 has what it wins and what it costs.

    PESSOA_CLASS_ARCHIVE=off    neither make one nor use one
    PESSOA_CLASS_ARCHIVE=use    use one that is there, and make none
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pessoa.pipelines.jars import cache_directory
from pessoa.pipelines.java import Java, options

# Until then the first queries have started, so their classes are in the list.
MAKE_AFTER_S = 30.0
MAKE_TIMEOUT_S = 600.0
ARCHIVES_KEPT = 2
LOWEST_PRIORITY = 19

log = logging.getLogger(__name__)


class ClassArchive:
    def __init__(self, java: Java, class_path: Sequence[Path]) -> None:
        self._java = java
        self._class_path = class_path
        folder = cache_directory() / "classes"
        self.path = folder / f"{_fingerprint(java, class_path)}.jsa"
        self._list = self.path.with_suffix(f".{os.getpid()}.classes")
        self._partial = self.path.with_suffix(f".{os.getpid()}.partial")
        self._is_over = threading.Event()
        self._maker: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<ClassArchive {self.path}, {'there' if self.path.exists() else 'not made'}>"

    def options(self, *, may_make: bool) -> list[str]:
        """Return Java's options that use the archive, or that write the class list if an archive may be made."""
        wish = os.environ.get("PESSOA_CLASS_ARCHIVE", "")
        if wish == "off":
            return []
        if self.path.exists():
            # Those that are used last are kept.
            self.path.touch()
            return [f"-XX:SharedArchiveFile={self.path}"]
        if not may_make or wish == "use":
            return []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(self.path.parent)
        return [f"-XX:DumpLoadedClassList={self._list}"]

    def make_later(self) -> None:
        """Make the archive in the background, if Java is writing its class list."""
        if self._list.exists() and self._maker is None:
            self._maker = threading.Thread(target=self._make, name="pessoa-class-archive", daemon=True)
            self._maker.start()

    def stop(self) -> None:
        """Stop making the archive; the next start tries again."""
        self._is_over.set()
        if self._maker is not None:
            self._maker.join()
        self._list.unlink(missing_ok=True)

    def _make(self) -> None:
        if self._is_over.wait(MAKE_AFTER_S):
            return
        try:
            if self._dump() == 0 and self._partial.exists():
                self._partial.chmod(0o444)
                self._partial.rename(self.path)
                self._remove_old()
                log.info("Spark starts faster from now on: %s", self.path)
        except OSError as failed:
            # A full disk, say. Spark starts without it.
            log.warning("no archive of Spark's classes was made: %s", failed)
        finally:
            self._partial.unlink(missing_ok=True)

    def _dump(self) -> int:
        """Run the dump and return Java's exit code; not 0 if it was stopped."""
        process = subprocess.Popen(
            [
                *(sys.executable, "-S", "-E", str(Path(__file__).with_name("guardian.py"))),
                *(str(self._java.executable), "-Xshare:dump", *options()),
                f"-XX:SharedClassListFile={self._list}",
                f"-XX:SharedArchiveFile={self._partial}",
                *("-cp", os.pathsep.join(map(str, self._class_path))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Before the guardian starts Java, which inherits it.
        os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST_PRIORITY)
        try:
            for _ in range(int(MAKE_TIMEOUT_S)):
                if self._is_over.wait(0 if process.poll() is not None else 1):
                    return -1
                if process.poll() is not None:
                    return process.returncode
            return -1
        finally:
            assert process.stdin is not None
            # The guardian kills Java then.
            process.stdin.close()
            process.wait()

    def _remove_old(self) -> None:
        archives = sorted(self.path.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in archives[ARCHIVES_KEPT:]:
            path.unlink(missing_ok=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files of processes that have ended."""
    for path in (*folder.glob("*.classes"), *folder.glob("*.partial")):
        try:
            os.kill(int(path.suffixes[0][1:]), 0)
        except ProcessLookupError:
            path.unlink(missing_ok=True)
        except PermissionError:
            # It is another user's, and running.
            continue


def _fingerprint(java: Java, class_path: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in (java.executable.resolve(), *class_path):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
