"""What a disk still has when the power comes back: the part of the simulated disk that remembers what was synced.

A program sees the page cache and the names in memory. The platter is behind: it has what was synced, and of the rest
an unknown part, because the kernel writes back when it likes and in the order it likes. So every file and every
directory exists twice here, as it is seen and as it is durable, and a power loss makes the seen ones anew from the
durable ones and chance.

**Content.** Each 4 KiB page that has changed since the last sync is kept, lost or torn at some byte, independently of
the others. A lost page shows what was durable there, or zeros where the durable file ended; the file may also end
before the pages that are missing at its end. A cut (truncation) that was not synced may not have happened. Then nothing
after it has happened either, because a file system frees the blocks in the same transaction. Hence a file has a row
of states, one before each cut and the present one, and any of them may be the one whose pages were on their way.

    durable     aaaaaaaaaa|aaaaaaaaaa|aaaa                  synced, 3 pages
    seen        aaaaaaaaaa|aaaaBBBBBB|BBBBBBBBBB|BBBBB      appended, one sync later it would be durable
    one chance  aaaaaaaaaa|aaaaBB0000|BBBBBBBBBB            torn, kept, lost: but the first 14 letters never change

**Names.** Creations, removals and renames are operations that wait for a sync of their directory (either of the two, if
a rename crosses directories). In a power loss, each of those that wait happens or not; a rename happens as a whole, so
a file never has two names and never loses its name to a rename. Data and names are independent: a name may arrive whose
content did not, and a file whose content is safe vanishes if its directory was not synced.

This is what ext4 with `data=ordered` allows and somewhat more: ext4 keeps the order of names, and a sync of a new file
also brings its name to the disk. A log that survives here does not depend on such favours. What was synced is never
touched: that is the promise under test, and `fsync` that lies or fails is made in `simulated_disk`.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

PAGE_SIZE = 4096


class Rewrite(NamedTuple):
    """Bytes that were overwritten in place."""

    moment: int
    start: int
    end: int


class Cut(NamedTuple):
    """A truncation of the file to a size, with the content that it had before."""

    moment: int
    size: int
    content: bytes


class Snapshot(NamedTuple):
    """The changes of a file when a sync of it was requested, which that sync makes durable."""

    moment: int
    clean_end: int
    tail: bytes
    rewritten: list[tuple[int, bytes]]


class Inode:
    """One file, under any number of names. Appending is `data += …` and nothing else, so that it costs nothing."""

    __slots__ = (
        "_moment",
        "_rewrites",
        "_synced",
        "_unsynced_truncations",
        "clean_end",
        "data",
        "durable",
        "modified_ms",
        "name",
        "waiting",
    )

    def __init__(self, modified_ms: int = 0) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        # Bytes before it are as the durable ones, except for rewrites; bytes behind it were never synced.
        self.clean_end = 0
        self.modified_ms = modified_ms
        # Where the platter has it, and the operations on it that are not durable.
        self.name: Name | None = None
        self.waiting: list[Operation] = []
        # Counts changes other than appends, so that an old snapshot can be told from a new one.
        self._moment = 0
        self._synced = 0
        self._rewrites: list[Rewrite] = []
        self._unsynced_truncations: list[Cut] = []

    def __repr__(self) -> str:
        return f"<Inode: {len(self.data)} bytes, the first {self.clean_end} durable>"

    def rewrite(self, position: int, data: bytes) -> None:
        self._moment += 1
        self._rewrites.append(Rewrite(self._moment, position, position + len(data)))
        self.data[position : position + len(data)] = data

    def cut(self, size: int) -> None:
        if size < len(self.data):
            self._moment += 1
            self._unsynced_truncations.append(Cut(self._moment, size, bytes(self.data)))
            del self.data[size:]
            self.clean_end = min(self.clean_end, size)

    def snapshot(self) -> Snapshot:
        self._moment += 1
        end = self.clean_end
        rewritten = [
            (start, bytes(self.data[start : min(stop, end)])) for _, start, stop in self._rewrites if start < end
        ]
        return Snapshot(self._moment, end, bytes(self.data[end:]), rewritten)

    def commit(self, snapshot: Snapshot) -> None:
        """Make the changes in the snapshot durable, unless a later sync has done so."""
        if snapshot.moment <= self._synced:
            return
        self._synced = snapshot.moment
        for start, data in snapshot.rewritten:
            self.durable[start : start + len(data)] = data
        self.durable[snapshot.clean_end :] = snapshot.tail
        self._rewrites = [rewrite for rewrite in self._rewrites if rewrite.moment > snapshot.moment]
        self._unsynced_truncations = [cut for cut in self._unsynced_truncations if cut.moment > snapshot.moment]
        self.clean_end = min([len(self.durable), *(cut.size for cut in self._unsynced_truncations)])

    def forget(self) -> None:
        """Take the changed pages as clean, as the kernel does after a failed sync: they never become durable."""
        size = len(self.data)
        self.durable = self.durable[:size].ljust(size, b"\0")
        self._take_as_synced()

    def lose_power(self, rng: Random) -> None:
        self.data = self._content_after_power_loss(rng)
        self.durable = bytearray(self.data)
        self._take_as_synced()

    def _take_as_synced(self) -> None:
        self._moment += 1
        self._synced = self._moment
        self.clean_end = len(self.data)
        self._rewrites = []
        self._unsynced_truncations = []

    def _content_after_power_loss(self, rng: Random) -> bytearray:
        """Return a content that the file may have after a loss of power: the durable one, with some of the later
        changes."""
        base = len(self.durable)
        states: list[tuple[int, bytes | bytearray]] = []
        for cut in self._unsynced_truncations:
            states.append((base, cut.content))
            base = min(base, cut.size)
        states.append((base, self.data))
        base, content = states[rng.randrange(len(states))]
        landed = self.durable[:base].ljust(len(content), b"\0")
        end = base
        # Many pages at independent odds would hardly ever all land, so fates differ from file to file as well.
        odds = rng.choice((0.0, 0.2, 0.5, 0.9, 1.0))
        for page in self._changed_pages(base, len(content)):
            start = page * PAGE_SIZE
            stop = min(start + PAGE_SIZE, len(content))
            if rng.random() >= odds:
                if odds == 0.0 or rng.random() < 0.5:
                    continue
                stop = rng.randrange(start, stop)
            landed[start:stop] = content[start:stop]
            end = max(end, stop)
        if rng.random() < 0.5:
            del landed[end:]
        return landed

    def _changed_pages(self, base: int, size: int) -> list[int]:
        ranges = [(base, size), *((start, min(end, size)) for _, start, end in self._rewrites)]
        return sorted(
            {page for start, end in ranges if start < end for page in range(start // PAGE_SIZE, -(-end // PAGE_SIZE))}
        )


class Directory:
    """Names → files and directories, as seen and as durable."""

    __slots__ = ("durable", "entries", "name", "waiting")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        # As in `Inode`; besides, the operations that wait for a sync of this directory.
        self.name: Name | None = None
        self.waiting: list[Operation] = []


Node = Inode | Directory


class Name(NamedTuple):
    directory: Directory
    text: str


class Operation:
    """A change of names: a node gets a name, loses it, or changes it."""

    __slots__ = ("is_over", "new", "node", "old")

    def __init__(self, node: Node, old: Name | None, new: Name | None) -> None:
        self.node = node
        self.old = old
        self.new = new
        # Durable, or overtaken by one that is.
        self.is_over = False


class Platter:
    """The tree of directories, and the operations on its names that are not durable."""

    __slots__ = ("_operations", "_sweep_at", "root")

    def __init__(self) -> None:
        self.root = Directory()
        # In the order in which they were made; those that are over are swept out now and then.
        self._operations: list[Operation] = []
        self._sweep_at = 64

    def find(self, path: str) -> Node | None:
        try:
            return self.node(path)
        except OSError:
            return None

    def node(self, path: str) -> Node:
        node: Node = self.root
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if not isinstance(node, Directory):
                raise os_error(errno.ENOTDIR)
            found = node.entries.get(part)
            if found is None:
                raise os_error(errno.ENOENT)
            node = found
        return node

    def directory(self, path: str) -> Directory:
        found = self.node(path)
        if not isinstance(found, Directory):
            raise os_error(errno.ENOTDIR)
        return found

    def inode(self, path: str) -> Inode:
        found = self.node(path)
        if not isinstance(found, Inode):
            raise os_error(errno.EISDIR)
        return found

    def name(self, path: str) -> Name:
        """Return the directory and the name that a path ends with, whether or not such a file exists."""
        head, _, text = path.rstrip("/").rpartition("/")
        return Name(self.directory(head), text)

    def create(self, path: str, node: Node) -> None:
        name = self.name(path)
        assert name.text not in name.directory.entries, f"{path} exists"
        self._perform(Operation(node, None, name))

    def remove(self, path: str) -> None:
        self._perform(Operation(self.node(path), self.name(path), None))

    def rename(self, old: str, new: str) -> None:
        before, name = self.name(old), self.name(new)
        node = self.node(old)
        if new.startswith(f"{old}/"):
            raise os_error(errno.EINVAL)
        replaced = name.directory.entries.get(name.text)
        if isinstance(replaced, Directory):
            if not isinstance(node, Directory):
                raise os_error(errno.EISDIR)
            if replaced.entries and replaced is not node:
                raise os_error(errno.ENOTEMPTY)
        elif replaced is not None and isinstance(node, Directory):
            raise os_error(errno.ENOTDIR)
        if replaced is not node:
            self._perform(Operation(node, before, name))

    def _perform(self, operation: Operation) -> None:
        """Change the names that the program sees; the durable names change later."""
        if operation.old is not None:
            del operation.old.directory.entries[operation.old.text]
        if operation.new is not None:
            operation.new.directory.entries[operation.new.text] = operation.node
        for holder in holders_of(operation):
            holder.waiting.append(operation)
        self._operations.append(operation)

    def sync_directory(self, directory: Directory) -> None:
        for operation in list(directory.waiting):
            # A directory also keeps the operations on itself, which wait for the one above it.
            if operation.node is not directory and not operation.is_over:
                self._make_durable(operation)
        if len(self._operations) >= self._sweep_at:
            self._operations = self._pending_operations()
            self._sweep_at = 2 * len(self._operations) + 64

    def _make_durable(self, operation: Operation) -> None:
        """Make an operation durable. Earlier operations on the same node or the same name cannot happen any more."""
        for holder in holders_of(operation):
            for other in holder.waiting:
                if other is operation:
                    break
                if other.node is operation.node or (operation.new is not None and other.new == operation.new):
                    other.is_over = True
        apply(operation)
        operation.is_over = True
        for holder in holders_of(operation):
            holder.waiting = [other for other in holder.waiting if not other.is_over]

    def _pending_operations(self) -> list[Operation]:
        return [operation for operation in self._operations if not operation.is_over]

    def lose_power(self, rng: Random) -> None:
        # Whole journals land or get lost on real file systems, so all and none must not be rare.
        odds = rng.choice((0.0, 0.5, 0.9, 1.0))
        for operation in self._pending_operations():
            if rng.random() < odds:
                apply(operation)
        self._operations = []
        for _, node in walk(self.root, durable=True):
            node.waiting = []
            if isinstance(node, Inode):
                node.lose_power(rng)
            else:
                node.entries = dict(node.durable)

    def files(self) -> Iterator[tuple[str, Inode]]:
        """Yield every file that the program sees, with its path."""
        for path, node in walk(self.root, durable=False):
            if isinstance(node, Inode):
                yield path, node


def os_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def holders_of(operation: Operation) -> list[Node]:
    """Return the nodes that refer to the operation while it is pending: its own, and the directories it changes."""
    holders: list[Node] = [operation.node]
    for name in (operation.old, operation.new):
        if name is not None and name.directory not in holders:
            holders.append(name.directory)
    return holders


def apply(operation: Operation) -> None:
    """Apply the operation to the durable names. Earlier operations may not have happened, so the node can have any name
    or none."""
    node = operation.node
    if node.name is not None:
        del node.name.directory.durable[node.name.text]
        node.name = None
    if operation.new is not None:
        replaced = operation.new.directory.durable.get(operation.new.text)
        if replaced is not None:
            replaced.name = None
        operation.new.directory.durable[operation.new.text] = node
        node.name = operation.new


def walk(directory: Directory, *, durable: bool, path: str = "") -> Iterator[tuple[str, Node]]:
    """Yield a directory and everything under it, in the order of names, so that a seed always gives the same result."""
    yield path or "/", directory
    for text, node in sorted((directory.durable if durable else directory.entries).items()):
        if isinstance(node, Directory):
            yield from walk(node, durable=durable, path=f"{path}/{text}")
        else:
            yield f"{path}/{text}", node
