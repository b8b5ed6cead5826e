from __future__ import annotations

import importlib
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from bench.__main__ import chosen, parts
from bench.report import Report


def test_subjects_of_one_case_share_a_line_with_ours_first() -> None:
    report = Report()
    report.add("Metadata v12 encode", "kio", 900, "µs")
    report.add("Metadata v12 encode", "pessoa", 60, "µs")
    report.add("Produce v9 decode", "pessoa", 12.345, "µs")
    assert report.lines() == [
        "case                 unit  pessoa               kio",
        "Metadata v12 encode  µs        60  900 (ours 15.0×)",
        "Produce v9 decode    µs      12.3                 -",
    ]


def test_where_more_is_better_the_larger_number_wins() -> None:
    report = Report()
    report.add("produce", "apache", 1000, "rec/s")
    report.add("produce", "pessoa", 1500, "rec/s")
    assert report.lines()[1].split() == ["produce", "rec/s", "1,500", "1,000", "(ours", "1.50×)"]


def test_measuring_a_subject_twice_is_a_mistake() -> None:
    report = Report()
    report.add("produce", "pessoa", 1, "rec/s")
    with pytest.raises(AssertionError, match="measured twice"):
        report.add("produce", "pessoa", 2, "rec/s")


def test_an_unknown_part_is_named_in_the_error() -> None:
    with pytest.raises(SystemExit, match="no part of the bench is called levitation; there are: "):
        chosen(["levitation"])


def test_every_part_of_the_bench_can_be_run_and_stands_in_the_table_of_its_page() -> None:
    assert [part for part in parts() if not hasattr(importlib.import_module(f"bench.{part}"), "run")] == []
    page = (Path(__file__).parents[2] / "docs/BENCH.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`([\w*]+)`", cell)]
    assert [part for part in parts() if not any(fnmatch(part, name) for name in named)] == []
