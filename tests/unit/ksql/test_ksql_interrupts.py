"""Ctrl-C between the prompt and a statement."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.input.typeahead import clear_typeahead, get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from pessoa.cli.ksql.interrupts import Interrupts, take_typed_ahead


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def fail() -> None:
    raise LookupError


def test_ctrl_c_ends_the_running_statement_and_nothing_else() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        press_ctrl_c()
        assert not interrupts.run(press_ctrl_c)
        press_ctrl_c()
        assert interrupts.run(lambda: None)
        press_ctrl_c()
        with pytest.raises(LookupError):
            interrupts.run(fail)
        press_ctrl_c()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def keyboard() -> Iterator[PipeInput]:
    with create_pipe_input() as keyboard:
        yield keyboard
        clear_typeahead(keyboard)


def rest(keyboard: PipeInput) -> str:
    return "".join(press.data for press in get_typeahead(keyboard))


def test_ctrl_c_typed_ahead_discards_the_keys_before_it(keyboard: PipeInput) -> None:
    store_typeahead(keyboard, [KeyPress("a", "a"), KeyPress(Keys.ControlC, "\x03"), KeyPress("b", "b")])
    assert take_typed_ahead(keyboard)
    assert rest(keyboard) == "b"


def test_ctrl_c_that_the_prompt_has_not_read_is_detected(keyboard: PipeInput) -> None:
    store_typeahead(keyboard, [KeyPress("a", "a")])
    keyboard.send_text("b\x03c")
    assert take_typed_ahead(keyboard)
    assert rest(keyboard) == "c"


def test_keys_typed_ahead_stay_for_the_next_prompt(keyboard: PipeInput) -> None:
    store_typeahead(keyboard, [KeyPress("a", "a")])
    keyboard.send_text("b")
    assert not take_typed_ahead(keyboard)
    assert rest(keyboard) == "ab"
