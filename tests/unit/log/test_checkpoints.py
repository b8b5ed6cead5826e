"""Checkpoint files: their exact text, and an error message for every way in which it can be invalid."""

from __future__ import annotations

import pytest

from pessoa.log.checkpoints import (
    RECOVERY_POINT_FILE,
    CorruptCheckpoint,
    parse_offsets,
    render_offsets,
)

OFFSETS = {("orders", 0): 1723, ("a.b_c-d", 11): 0, ("orders", 1): 2**63 - 1}


def test_the_text_of_a_checkpoint() -> None:
    assert render_offsets(OFFSETS) == "0\n3\norders 0 1723\na.b_c-d 11 0\norders 1 9223372036854775807\n"
    assert render_offsets({}) == "0\n0\n"


def test_rendered_offset_checkpoints_parse_to_the_same_offsets() -> None:
    assert parse_offsets(render_offsets(OFFSETS), RECOVERY_POINT_FILE) == OFFSETS


@pytest.mark.parametrize("text", ["", "0\n", "0\n0\n", "0\n0"])
def test_a_checkpoint_may_be_empty(text: str) -> None:
    assert parse_offsets(text, RECOVERY_POINT_FILE) == {}


@pytest.mark.parametrize("text", ["0\n1\nt 0 5", "0\r\n1\r\nt 0 5\r\n", "0\n1\nt   0\t5\n"])
def test_a_checkpoint_may_have_additional_white_space(text: str) -> None:
    assert parse_offsets(text, RECOVERY_POINT_FILE) == {("t", 0): 5}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1\n0\n", "line 1: the version is 1, and only 0 is known"),
        ("x\n0\n", "line 1: 'x' is not a number"),
        ("\n0\n", "line 1: '' is not a number"),
        ("0\n-1\n", "line 2: -1 is not between 0 and 2147483647"),
        ("0\n0x1\n", "line 2: '0x1' is not a number"),
        ("0\n²\n", "line 2: '²' is not a number"),
        ("0\n2147483648\n", "line 2: 2147483648 is not between 0 and 2147483647"),
        ("0\n1\n", "line 2: 1 entries are promised, and 0 follow"),
        ("0\n1\nt 0 1\nt 1 1\n", "line 2: 1 entries are promised, and 2 follow"),
        ("0\n1\nt 0 1\n\n", "line 4: '' is not topic, partition, offset"),
        ("0\n1\nt 0\n", "line 3: 't 0' is not topic, partition, offset"),
        ("0\n1\nt 0 1 2\n", "line 3: 't 0 1 2' is not topic, partition, offset"),
        ("0\n1\nt x 1\n", "line 3: 'x' is not a number"),
        ("0\n1\nt 0 1.5\n", "line 3: '1.5' is not a number"),
        ("0\n1\nt 0 -1\n", "line 3: -1 is not between 0 and 9223372036854775807"),
        ("0\n1\nt 0 9223372036854775808\n", "line 3: 9223372036854775808 is not between 0 and 9223372036854775807"),
        (f"0\n1\nt 0 {'9' * 5000}\n", f"line 3: '{'9' * 5000}' is not a number"),
        ("0\n1\nt 2147483648 1\n", "line 3: 2147483648 is not between 0 and 2147483647"),
        ("0\n1\n../t 0 1\n", "line 3: '../t' cannot be the name of a topic"),
        ("0\n1\n.. 0 1\n", "line 3: '..' cannot be the name of a topic"),
        (f"0\n1\n{'t' * 250} 0 1\n", f"line 3: '{'t' * 250}' cannot be the name of a topic"),
        ("0\n2\nt 0 1\nt 0 2\n", "line 4: partition 0 of t comes a second time"),
    ],
)
def test_a_damaged_checkpoint_says_what_is_wrong_and_where(text: str, problem: str) -> None:
    with pytest.raises(CorruptCheckpoint) as corrupt:
        parse_offsets(text, RECOVERY_POINT_FILE)
    assert str(corrupt.value) == f"recovery-point-offset-checkpoint, {problem}"
