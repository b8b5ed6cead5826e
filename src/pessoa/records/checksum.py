"""CRC-32C (Castagnoli), the checksum of a record batch.

Call it as `checksum.crc32c(data)`, through the module: the first call replaces the name by the C function. Importing
that library costs tens of milliseconds (it reads its own package metadata), which a command-line tool that never checks
a batch need not pay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def _import_and_compute(data: bytes | bytearray | memoryview) -> int:
    global crc32c
    import crc32c as library

    crc32c = library.crc32c
    return crc32c(data)


crc32c: Callable[[bytes | bytearray | memoryview], int] = _import_and_compute
