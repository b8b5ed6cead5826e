"""How much of the interpreter's stack is left.

A RecursionError is an end that can be reported, as long as it happens in Python. The package that follows the
references of JSON Schemas keeps its registry in Rust. Where the stack ends within a comparison of keys there, it
panics: an exception that no handler of `Exception` sees, and a page of backtrace. So code that goes down into a schema,
with references to follow on the way, asks here first.
"""

from __future__ import annotations

import sys

# What following a reference takes, with much to spare.
_NEEDED_FRAMES = 150


def is_stack_nearly_full() -> bool:
    try:
        sys._getframe(sys.getrecursionlimit() - _NEEDED_FRAMES)
    except ValueError:
        return False
    return True
