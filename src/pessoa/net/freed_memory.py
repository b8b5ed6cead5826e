"""Keep what was freed, so that the next answer need not ask the kernel for it again.

A fetch of several partitions reads some megabytes into memory, sends them and frees them. The C library gives freed
memory back to the kernel as soon as there is a little of it, and gets it anew for the next fetch, page by page, each
of them cleared by the kernel and then overwritten. That took two thirds of the processor time of a large fetch:
1.2 s per GB, and 0.4 s without it.

So a process whose business is serving tells the library to keep some. It is for the owner of the process to decide,
once, at its start: a test process in which a broker runs along is not ours to tune.

What many large requests took is another matter: that is seldom wanted again, and goes back (`return_freed_memory`).
"""

from __future__ import annotations

# From <malloc.h> of glibc. Setting either ends the library's own guessing about both, so both are set.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

# A consumer fetches 1 MiB from each of its partitions by default, so this is the answer to one that has many.
KEPT_BYTES = 32 * 1024 * 1024
# A single buffer beyond this is seldom, and may go back.
_LARGEST_KEPT_BYTES = 16 * 1024 * 1024


def keep_freed_memory(kept_bytes: int = KEPT_BYTES) -> bool:
    """Let the C library keep `kept_bytes` of freed memory; return whether it can. Only glibc needs and has this
    setting."""
    from ctypes import CDLL

    try:
        mallopt = CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, kept_bytes))


def return_freed_memory() -> bool:
    """Return all freed memory to the kernel. It takes some milliseconds."""
    from ctypes import CDLL

    try:
        trim = CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    return bool(trim(KEPT_BYTES))


def bound_arenas(count: int) -> bool:
    """Limit the number of malloc arenas to `count`, since each keeps freed memory of its own; return whether that was
    possible. For a process with many short-lived threads; must be called before there are any."""
    from ctypes import CDLL

    try:
        mallopt = CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_ARENA_MAX, count))
