"""Which differences of two transcripts are normalised before they are compared, and which are not."""

from __future__ import annotations

import pytest

from tests.apache.tool_server import Outcome
from tests.tools.stage import OURS, THEIRS, Cluster, normalised

CLUSTER = Cluster("127.0.0.1:9092", "127.0.0.1:9093")


def normalise_output(text: str, prefix: str) -> str:
    return normalised(Outcome(0, text, ""), CLUSTER, prefix).out


@pytest.mark.parametrize(("prefix", "other"), [(THEIRS, OURS), (OURS, THEIRS)])
def test_a_line_is_kept_when_only_its_random_id_has_the_letters_of_the_other_tool(prefix: str, other: str) -> None:
    assert normalise_output(f"Cluster ID: Mk3OE{other}NTcwNTJENDM2Qkx\n", prefix) == "Cluster ID: <id>\n"


@pytest.mark.parametrize(("prefix", "other"), [(THEIRS, OURS), (OURS, THEIRS)])
def test_a_line_with_a_name_of_the_other_tool_is_left_out(prefix: str, other: str) -> None:
    assert normalise_output(f"{other}-orders\n{prefix}-orders\n", prefix) == f"{THEIRS}-orders\n"


@pytest.mark.parametrize("now_ms", [1_600_000_000_000, 1_799_999_999_999, 1_800_000_000_000, 1_999_999_999_999])
def test_a_timestamp_in_milliseconds_is_replaced_before_the_comparison(now_ms: int) -> None:
    assert normalise_output(f"created at {now_ms}\n", THEIRS) == "created at <ms>\n"


def test_the_digits_of_a_fraction_are_not_replaced_as_a_timestamp() -> None:
    assert normalise_output("sent 652.1683168316832 a second\n", THEIRS) == "sent 652.1683168316832 a second\n"
