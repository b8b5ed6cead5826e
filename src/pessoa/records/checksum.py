"""CRC-32C (Castagnoli), the checksum of a record batch.

Call it as `checksum.crc32c(data)`, through the module: the first call replaces the name by the C function, and a
command-line tool that never checks a batch loads no library.

`import crc32c` would read that package's own metadata and with it half of `email`, which takes longer than the rest of
the start of a tool. So the extension is loaded past its package; where it has moved, the package is imported after all.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def _load() -> Callable[[bytes | bytearray | memoryview], int]:
    package = PathFinder.find_spec("crc32c")
    inside = None if package is None else package.submodule_search_locations
    spec = None if inside is None else PathFinder.find_spec("crc32c._crc32c", inside)
    if spec is None or spec.loader is None:
        import crc32c as library

        return library.crc32c
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    found: Callable[[bytes | bytearray | memoryview], int] = extension.crc32c
    return found


def _load_and_compute(data: bytes | bytearray | memoryview) -> int:
    global crc32c
    crc32c = _load()
    return crc32c(data)


crc32c: Callable[[bytes | bytearray | memoryview], int] = _load_and_compute
