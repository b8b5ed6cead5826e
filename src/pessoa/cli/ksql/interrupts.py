"""Ctrl-C at the prompt of `ksql`: it ends the statement that runs, and never the command.

While the prompt reads, the terminal is raw and Ctrl-C is a key. While a statement runs, it is a SIGINT. Between them:

- A line was entered, and the terminal is still raw: Ctrl-C would stay among the keys for the next prompt, and the query
  would run on without it. `take_typed_ahead` finds it there.
- A statement has ended, and the prompt is not there yet: SIGINT would end the command. Outside of `run` it does
  nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.keys import Keys


class Interrupts:
    """The handler of SIGINT while it is entered, in the main thread."""

    def __init__(self) -> None:
        self._may_raise = False

    def __repr__(self) -> str:
        return f"<Interrupts {'raised' if self._may_raise else 'ignored'}>"

    def __enter__(self) -> Self:
        self._previous_handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._previous_handler)

    def _interrupt(self, _: int, __: FrameType | None) -> None:
        if self._may_raise:
            raise KeyboardInterrupt

    def run(self, work: Callable[[], None]) -> bool:
        """Run `work`; return False if Ctrl-C ended it."""
        try:
            self._may_raise = True
            work()
        except KeyboardInterrupt:
            # Python looks for signals at calls and jumps back: none comes between here and the assignment.
            self._may_raise = False
            return False
        finally:
            self._may_raise = False
        return True


def take_typed_ahead(keyboard: Input) -> bool:
    """Return whether Ctrl-C was typed after the line; keys typed before the Ctrl-C are dropped, as a terminal does."""
    keys = [*get_typeahead(keyboard), *keyboard.read_keys()]
    found = [number for number, press in enumerate(keys) if press.key == Keys.ControlC]
    store_typeahead(keyboard, keys[found[-1] + 1 :] if found else keys)
    return bool(found)
