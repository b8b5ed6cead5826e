"""CRC-32C (Castagnoli), the checksum of a record batch.

Call it as `checksum.crc32c(data)`, through the module: the first call replaces the name by the C function, and a
command-line tool that never checks a batch loads no library.

`import crc32c` would read that package's own metadata and with it half of `email`, which takes longer than the rest of
the start of a tool. So the extension is loaded past its package; where it has moved, the package is imported after all.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_EXTENSION = "_crc32c"


def _load() -> Callable[[bytes | bytearray | memoryview], int]:
    package = find_spec("crc32c")
    for folder in (package.submodule_search_locations if package else None) or ():
        for suffix in EXTENSION_SUFFIXES:
            path = os.path.join(folder, _EXTENSION + suffix)  # noqa: PTH118 - pathlib takes longer to import
            if not os.path.exists(path):  # noqa: PTH110
                continue
            loader = ExtensionFileLoader(f"crc32c.{_EXTENSION}", path)
            spec = spec_from_loader(loader.name, loader)
            assert spec is not None
            extension = module_from_spec(spec)
            loader.exec_module(extension)
            found: Callable[[bytes | bytearray | memoryview], int] = extension.crc32c
            return found
    import crc32c as library

    return library.crc32c


def _load_and_compute(data: bytes | bytearray | memoryview) -> int:
    global crc32c
    crc32c = _load()
    return crc32c(data)


crc32c: Callable[[bytes | bytearray | memoryview], int] = _load_and_compute
