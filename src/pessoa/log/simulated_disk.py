"""A disk in memory that crashes, loses power, fills up, lies and decays, all from one seed.

It answers to the same contract as the real disk (`files`), and adds what a test can do to it:

    crash_process()   kill -9: open files are dead, everything written is still there
    lose_power()      what was synced is there, and some of the rest (see `simulated_platter`)
    crash_at(…)       the process dies within its n-th call; `Crashed` flies through the code under test
    fail(…)           the n-th call of a kind, on paths like a pattern, is refused
    tear(…)           a write puts down a part of its bytes and then fails, or dies
    fill(room)        only so many more bytes fit
    lie_about_sync(…) sync says yes and does nothing
    slow_down(…)      calls are marked as slow without a wait; `delayed_ms` adds up
    flip_bit(…), cut(…)   a file at rest decays
    heal()            no more faults: what was done stays done
    record()          from now on `journal` has every call, so that a test can speak about order

A call passes three stations: the dead are turned away, a fault may claim it, and the platter does what is left of it.

**Speed.** A simulation makes millions of calls, nearly all on files without any fault in sight. So a file remembers
the `turn` of the disk at which it found nothing to attend to (it is open, alive, found under its name, no faults, no
journal); each call that could change that makes a new turn. While the turns agree, an append is `bytearray +=` and
nothing else.

**Stricter than the real one.** A pooled file that is not found under its `path` fails on its next use; on a real disk
it does so only after an eviction. A sync that fails makes the pages clean that it did not write, as Linux does: a
second sync, even through another `File`, says yes, and the bytes are gone after the next loss of power.

The same seed and the same calls give the same bytes. Nothing here knows threads: what `sync_later` returns may be
called at any time, but not at the same time as something else.
"""

from __future__ import annotations

import errno
import io
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, TypeAlias

from pessoa.log.files import LOCK_FILE, Bytes, DiskError, Names, disk_errors, parent_directory, replace_file
from pessoa.log.simulated_platter import Directory, Inode, Platter, Snapshot, os_error

if TYPE_CHECKING:
    from collections.abc import Callable

Kind: TypeAlias = Literal[
    "open", "create", "read", "write", "truncate", "sync", "sync_directory", "rename", "remove", "make_directory",
    "list", "look_up",
]  # fmt: skip
# Besides the kinds themselves, a fault may wait for any call, or for any that leaves a trace.
KindOrAll: TypeAlias = Kind | Literal["any", "change"]
CHANGES: frozenset[Kind] = frozenset(
    ("create", "write", "truncate", "sync", "sync_directory", "rename", "remove", "make_directory")
)
Outcome: TypeAlias = Literal["done", "failed", "lied", "crashed"]

# What `free_bytes` says of a disk that cannot fill up.
ENDLESS = 1 << 40


class Crashed(BaseException):
    """The process died in the middle of a call. Not an `Exception`: a dead process handles nothing."""


class Call(NamedTuple):
    """One call of the journal. `path` is the old name in a rename and `target` the new one."""

    kind: Kind
    path: str
    position: int = 0
    size: int = 0
    target: str = ""
    outcome: Outcome = "done"
    delay_ms: int = 0


@dataclass(slots=True)
class Fault:
    """A fault that waits for the n-th call of a kind on a path like the pattern, and hits it and the next ones."""

    kind: KindOrAll
    path: str
    outcome: Outcome
    # Calls to let pass first, and calls to claim then; None for all that come.
    skip: int = 0
    times: int | None = 1
    error: int = errno.EIO
    # How many bytes of a write come through; None for a number that chance gives.
    keep: int | None = 0

    def claims(self, kind: Kind, path: str) -> bool:
        if self.kind not in (kind, "any") and not (self.kind == "change" and kind in CHANGES):
            return False
        if self.times == 0 or not fnmatchcase(path, self.path):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True

    def kept(self, size: int, rng: Random) -> int:
        return rng.randrange(size + 1) if self.keep is None else min(self.keep, size)


class Slowness(NamedTuple):
    kind: KindOrAll
    path: str
    delay_ms: int


class SimulatedDisk:
    """Files in memory, with faults: calls fail, the process crashes, power is lost."""

    def __init__(self, seed: int | Random = 0, *, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.rng = seed if isinstance(seed, Random) else Random(seed)
        # For the times of files.
        self.now_ms = now_ms
        self.platter = Platter()
        self.journal: list[Call] = []
        # The sum of what slow calls would have taken.
        self.delayed_ms = 0
        # How many processes have died on it: an open file belongs to one process.
        self.incarnation = 0
        # See above, under Speed. Files start at -1, which no turn is.
        self.turn = 0
        self._is_recording = False
        # Dead, and `crash_process` or `lose_power` has not been called.
        self._is_down = False
        self._faults: list[Fault] = []
        self._slow: list[Slowness] = []
        # How many more bytes fit; None for as many as you like.
        self._room: int | None = None
        # Which process holds the lock of a directory, counted by crashes.
        self._locked: dict[str, int] = {}

    def __repr__(self) -> str:
        state = "down" if self._is_down else f"life {self.incarnation}"
        return f"<SimulatedDisk: {len(self.contents())} files, {state}, {len(self._faults)} faults>"

    # What a test does to it.

    def crash_process(self) -> None:
        """Act as after kill -9 and a restart: every open file is unusable, and everything that was written is there."""
        self.incarnation += 1
        self._is_down = False
        self.turn += 1

    def lose_power(self, rng: Random | None = None) -> None:
        """Act as after a loss of power: what was synced is there, and some of the rest."""
        self.platter.lose_power(rng or self.rng)
        self.crash_process()

    def crash_at(self, kind: KindOrAll = "change", path: str = "*", *, nth: int = 1) -> None:
        """Raise `Crashed` in the n-th call: a write has written a part, a sync may have been done, other calls have
        done nothing."""
        self._expect(Fault(kind, path, "crashed", skip=nth - 1, keep=None))

    def fail(
        self, kind: KindOrAll, path: str = "*", *, nth: int = 1, times: int | None = 1, error: int = errno.EIO
    ) -> None:
        """Let the n-th call and the next ones fail with an errno, `times` in all (None: for ever)."""
        self._expect(Fault(kind, path, "failed", skip=nth - 1, times=times, error=error))

    def tear(
        self, path: str = "*", *, nth: int = 1, keep: int | None = None, error: int = errno.EIO, crash: bool = False
    ) -> None:
        """Let the n-th write write only `keep` bytes (None: a random number), and then fail, or crash the process."""
        self._expect(Fault("write", path, "crashed" if crash else "failed", skip=nth - 1, error=error, keep=keep))

    def lie_about_sync(self, path: str = "*") -> None:
        """Let syncs of such files return without doing anything, from now on."""
        self._expect(Fault("sync", path, "lied", times=None))

    def slow_down(self, kind: KindOrAll, path: str = "*", *, delay_ms: int) -> None:
        """Let such calls count as taking so long, from now on."""
        self._slow.append(Slowness(kind, path, delay_ms))
        self.turn += 1

    def fill(self, room: int) -> None:
        """Let only so many more bytes fit; truncations and removals free space again."""
        self._room = room
        self.turn += 1

    def heal(self) -> None:
        """Remove all faults, delays and the limit of space."""
        self._faults = []
        self._slow = []
        self._room = None
        self.turn += 1

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flip one bit of a file, in its durable content too."""
        inode = self.platter.inode(path)
        inode.data[position] ^= 1 << bit
        if position < inode.clean_end:
            inode.durable[position] ^= 1 << bit

    def cut(self, path: str, size: int) -> None:
        """Truncate a file, in its durable content too. Open files do not notice: crash first."""
        inode = self.platter.inode(path)
        inode.cut(size)
        inode.commit(inode.snapshot())

    def record(self) -> list[Call]:
        """Start a new journal and return it."""
        self.journal = []
        self._is_recording = True
        self.turn += 1
        return self.journal

    def calls(self, kind: KindOrAll = "any", path: str = "*") -> list[Call]:
        """Return the calls of a kind in the journal, on paths like the pattern."""
        wanted = Fault(kind, path, "done", times=None)
        return [call for call in self.journal if wanted.claims(call.kind, call.path)]

    def contents(self) -> dict[str, bytes]:
        """Return the content of every file that the program sees, by path."""
        return {path: bytes(inode.data) for path, inode in self.platter.files()}

    # What the program does.

    def open(self, path: str, *, create: bool = False, pooled: bool = True, read_only: bool = False) -> SimulatedFile:
        with disk_errors("open", path):
            if create and self.platter.find(path) is None:
                self.attend("create", path)
                self.platter.create(path, Inode(self.now_ms()))
            else:
                self.attend("open", path)
            return SimulatedFile(self, path, self.platter.inode(path), pooled=pooled, read_only=read_only)

    def exists(self, path: str) -> bool:
        with disk_errors("look up", path):
            self.attend("look_up", path)
        return self.platter.find(path) is not None

    def size(self, path: str) -> int:
        with disk_errors("look up", path):
            self.attend("look_up", path)
            return len(self.platter.inode(path).data)

    def modified_ms(self, path: str) -> int:
        with disk_errors("look up", path):
            self.attend("look_up", path)
            return self.platter.inode(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with disk_errors("set the time of", path):
            self.attend("look_up", path)
            self.platter.inode(path).modified_ms = modified_ms

    def list(self, path: str) -> Names:
        with disk_errors("list", path):
            self.attend("list", path)
            return sorted(self.platter.directory(path).entries)

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        with disk_errors("make the directory", path):
            found = self.platter.find(path)
            if found is not None:
                if isinstance(found, Inode):
                    raise os_error(errno.EEXIST)
                return False
            parent = parent_directory(path)
            if isinstance(self.platter.find(parent), Inode):
                raise os_error(errno.ENOTDIR)
            self.make_directory(parent)
            self.attend("make_directory", path)
            self.platter.create(path, Directory())
        if durable:
            self.sync_directory(parent)
        return True

    def remove(self, path: str, *, missing_ok: bool = False) -> None:
        with disk_errors("remove", path):
            self.attend("remove", path)
            if missing_ok and self.platter.find(path) is None:
                return
            inode = self.platter.inode(path)
            self.platter.remove(path)
            self._make_room(len(inode.data))
            self.turn += 1

    def remove_tree(self, path: str, *, missing_ok: bool = False) -> None:
        with disk_errors("remove", path):
            if missing_ok and self.platter.find(path) is None:
                return
            for text, node in sorted(self.platter.directory(path).entries.items()):
                (self.remove if isinstance(node, Inode) else self.remove_tree)(f"{path}/{text}")
            self.attend("remove", path)
            self.platter.remove(path)

    def rename(self, old: str, new: str) -> None:
        with disk_errors(f"rename to {new}", old):
            self.attend("rename", old, target=new)
            replaced = self.platter.find(new)
            self.platter.rename(old, new)
            if isinstance(replaced, Inode):
                self._make_room(len(replaced.data))
            self.turn += 1

    def sync_directory(self, path: str) -> None:
        with disk_errors("sync the directory", path):
            self.attend("sync_directory", path)
            self.platter.sync_directory(self.platter.directory(path))

    def read_file(self, path: str) -> bytes:
        with closing(self.open(path, pooled=False, read_only=True)) as file:
            return file.read(0, file.size)

    def write_file(self, path: str, data: Bytes, *, durable: bool = True) -> None:
        replace_file(self, path, data, durable=durable)

    def free_bytes(self, path: str) -> int:
        with disk_errors("ask for the free space of", path):
            self.attend("look_up", path)
            self.platter.node(path)
        return ENDLESS if self._room is None else self._room

    def lock(self, path: str) -> Callable[[], None]:
        name = f"{path}/{LOCK_FILE}"
        with disk_errors("lock", name):
            self.attend("look_up", path)
            if self._locked.get(name) == self.incarnation:
                raise OSError(errno.EWOULDBLOCK, "another process has the lock")
        self._locked[name] = self.incarnation
        return partial(self._locked.__delitem__, name)

    # The stations of a call.

    @property
    def is_quiet(self) -> bool:
        """Whether calls need no attention: the process runs, and no fault, delay, limit of space or journal is set."""
        return not (self._is_down or self._is_recording or self._faults or self._slow or self._room is not None)

    def attend(self, kind: Kind, path: str, *, target: str = "") -> None:
        """Write the journal and raise the error of a fault, for calls that a fault stops before they do anything."""
        if not self.is_quiet:
            fault = self.begin(kind, path, target=target)
            if fault is not None and fault.outcome != "lied":
                self.strike(fault, path)

    def begin(
        self, kind: Kind, path: str, *, position: int = 0, size: int = 0, growth: int = 0, target: str = ""
    ) -> Fault | None:
        """Raise if the process has crashed, write the journal, and return the fault that hits this call; None if none
        does."""
        if self._is_down:
            raise Crashed(f"{kind} {path}: this process is dead")
        fault = next((fault for fault in self._faults if fault.claims(kind, path)), None)
        if fault is not None and fault.times == 0:
            self._faults.remove(fault)
            self.turn += 1
        if fault is None and self._room is not None and growth > self._room:
            # A full disk takes what still fits, or a part of it.
            fault = Fault(kind, path, "failed", error=errno.ENOSPC, keep=self.rng.randrange(self._room + 1))
        delay_ms = sum(slow.delay_ms for slow in self._slow if Fault(slow.kind, slow.path, "done").claims(kind, path))
        self.delayed_ms += delay_ms
        if self._is_recording:
            outcome = "done" if fault is None else fault.outcome
            self.journal.append(Call(kind, path, position, size, target, outcome, delay_ms))
        return fault

    def strike(self, fault: Fault, path: str) -> NoReturn:
        if fault.outcome == "crashed":
            self._is_down = True
            self.turn += 1
            raise Crashed(f"{fault.kind} {path}: the process dies here")
        raise os_error(fault.error)

    def write(self, inode: Inode, path: str, position: int, data: bytes) -> None:
        growth = position + len(data) - len(inode.data)
        fault = self.begin("write", path, position=position, size=len(data), growth=growth)
        if fault is not None:
            data = data[: fault.kept(len(data), self.rng)]
        if growth > 0:
            inode.data += data
            self._make_room(-len(data))
        else:
            inode.rewrite(position, data)
        inode.modified_ms = self.now_ms()
        if fault is not None:
            self.strike(fault, path)

    def truncate(self, inode: Inode, path: str, size: int) -> None:
        fault = self.begin("truncate", path, size=size)
        if fault is not None:
            self.strike(fault, path)
        self._make_room(len(inode.data) - size)
        inode.cut(size)
        inode.modified_ms = self.now_ms()

    def sync(self, inode: Inode, path: str, snapshot: Snapshot) -> None:
        fault = self.begin("sync", path)
        if fault is None:
            inode.commit(snapshot)
        elif fault.outcome == "crashed":
            if self.rng.random() < 0.5:
                inode.commit(snapshot)
            self.strike(fault, path)
        elif fault.outcome == "failed":
            inode.forget()
            self.strike(fault, path)

    def _expect(self, fault: Fault) -> None:
        assert fault.skip >= 0, "calls are counted from 1"
        self._faults.append(fault)
        self.turn += 1

    def _make_room(self, size: int) -> None:
        if self._room is not None:
            self._room += size


class SimulatedFile:
    """One open file of a `SimulatedDisk`. The fast way of each method is taken while the turns agree."""

    __slots__ = (
        "_broken",
        "_closed",
        "_disk",
        "_incarnation",
        "_inode",
        "_pooled",
        "_read_only",
        "_turn",
        "path",
        "size",
    )

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode, *, pooled: bool, read_only: bool) -> None:
        self.path = path
        self.size = len(inode.data)
        self._disk = disk
        self._inode = inode
        self._pooled = pooled
        self._read_only = read_only
        self._closed = False
        self._broken: DiskError | None = None
        self._incarnation = disk.incarnation
        self._turn = -1

    def __repr__(self) -> str:
        state = "closed" if self._closed else "dead" if self._incarnation != self._disk.incarnation else "open"
        return (
            f"<SimulatedFile {self.path}: {self.size} bytes, {state}{', broken' if self._broken is not None else ''}>"
        )

    def append(self, data: Bytes) -> None:
        if self._turn != self._disk.turn:
            self._append_attended("append to", data)
            return
        inode = self._inode
        content = inode.data
        assert len(content) == self.size, f"{self!r} has two writers"
        content += data
        self.size = len(content)
        inode.modified_ms = self._disk.now_ms()

    def _append_attended(self, action: str, data: Bytes) -> None:
        self._attend(action, writes=True)
        data = bytes(data)
        try:
            self._disk.write(self._inode, self.path, self.size, data)
        except OSError as error:
            failure = DiskError(action, self.path, error)
            try:
                self._disk.truncate(self._inode, self.path, self.size)
            except OSError:
                self._break(failure)
            raise failure from error
        self.size += len(data)

    def write_again(self, position: int) -> None:
        self._attend("write to", writes=True)
        if position < self.size:
            self.write_at(position, self.read(position, self.size - position))

    def write_at(self, position: int, data: Bytes) -> None:
        """Overwrite bytes within the file: to damage it, or as a model of pages that are written twice."""
        data = bytes(data)
        assert 0 <= position <= self.size - len(data), f"{self!r} has no {len(data)} bytes at {position}"
        self._attend("write to", writes=True)
        with disk_errors("write to", self.path):
            self._disk.write(self._inode, self.path, position, data)

    def read(self, position: int, size: int) -> bytes:
        assert position >= 0, f"{self!r} has no position {position}"
        if self._turn != self._disk.turn:
            self._attend("read")
            with disk_errors("read", self.path):
                self._disk.attend("read", self.path)
        end = position + size
        return bytes(self._inode.data[position : end if end < self.size else self.size])

    def truncate(self, size: int) -> None:
        assert 0 <= size <= self.size, f"{self!r} cannot be truncated to {size} bytes"
        self._attend("truncate", writes=True)
        with disk_errors("truncate", self.path):
            self._disk.truncate(self._inode, self.path, size)
        self.size = size

    def trim(self) -> None:
        """Do nothing: no space is reserved here."""

    def sync(self) -> None:
        self._attend("sync", writes=True)
        self._sync(self._inode.snapshot())

    def sync_later(self) -> Callable[[], None]:
        self._attend("sync", writes=True)
        waiting: list[Snapshot] = [self._inode.snapshot()]

        def sync() -> None:
            if not waiting:
                raise ValueError(f"this sync of {self.path} was done already")
            snapshot = waiting.pop()
            if self._incarnation != self._disk.incarnation:
                raise Crashed(f"sync {self.path}: this process is dead")
            if self._broken is not None:
                raise self._refusal("sync")
            self._sync(snapshot)

        return sync

    def _sync(self, snapshot: Snapshot) -> None:
        try:
            self._disk.sync(self._inode, self.path, snapshot)
        except OSError as error:
            failure = DiskError("sync", self.path, error)
            self._break(failure)
            raise failure from error

    def fileno(self) -> int:
        raise io.UnsupportedOperation(f"{self.path} is simulated and has no descriptor")

    def close(self) -> None:
        self._closed = True
        self._turn = -1

    def _attend(self, action: str, *, writes: bool = False) -> None:
        """Raise if the file cannot be used; otherwise allow the fast path until the disk's state changes."""
        disk = self._disk
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if self._incarnation != disk.incarnation:
            raise Crashed(f"{action} {self.path}: the process that opened it is dead")
        if writes and self._broken is not None:
            raise self._refusal(action)
        if writes and self._read_only:
            raise DiskError(action, self.path, OSError(errno.EBADF, "opened for reading only"))
        if self._pooled and (found := disk.platter.find(self.path)) is not self._inode:
            reason = os_error(errno.ENOENT) if found is None else "another file has taken its place"
            raise DiskError("open", self.path, reason)
        if disk.is_quiet and not self._read_only and self._broken is None:
            self._turn = disk.turn

    def _break(self, failure: DiskError) -> None:
        self._broken = failure
        self._turn = -1

    def _refusal(self, action: str) -> DiskError:
        assert self._broken is not None
        return DiskError(action, self.path, f"broken since it failed to {self._broken.action}: {self._broken.reason}")
