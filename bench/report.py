"""The results of measurements, and the table that is printed of them.

`report.add(case, subject, value, unit)`: the case is what was measured ("Metadata v12 encode"), the subject is the
implementation ("pessoa", "kio"). Subjects of the same case and unit share a line, ours first. For every other subject
the table has the factor by which we are better, "ours 12.3×": below 1 we are worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OURS = "pessoa"
# Units in which a larger number is better; in all others (µs, ms, MB of memory) a smaller one is.
PERCENT_KEPT = "% kept"
MORE_IS_BETTER = {"rec/s", "req/s", "msg/s", "MB/s", "ops/s", PERCENT_KEPT}


@dataclass(slots=True)
class Report:
    """The results that were added so far; `lines` returns their table."""

    measured: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    def add(self, case: str, subject: str, value: float, unit: str) -> None:
        assert value >= 0, f"{case}: {subject} measured {value} {unit}"
        subjects = self.measured.setdefault((case, unit), {})
        assert subject not in subjects, f"{case} was measured twice for {subject}"
        subjects[subject] = value

    def lines(self) -> list[str]:
        names = sorted({name for subjects in self.measured.values() for name in subjects}, key=lambda n: (n != OURS, n))
        rows = [["case", "unit", *names]]
        rows += [
            [case, unit, *(cell(subjects, name, unit) for name in names)]
            for (case, unit), subjects in self.measured.items()
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return [aligned(row, widths) for row in rows]


def cell(subjects: dict[str, float], name: str, unit: str) -> str:
    if name not in subjects:
        return "-"
    value, ours = subjects[name], subjects.get(OURS)
    if name == OURS or not ours or not value:
        return rounded(value)
    times = ours / value if unit in MORE_IS_BETTER else value / ours
    return f"{rounded(value)} (ours {times:.{2 if times < 2 else 1}f}×)"


def rounded(value: float) -> str:
    """Return the value with three significant digits: more would be noise."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def aligned(row: list[str], widths: list[int]) -> str:
    # Text is left-aligned, numbers are right-aligned.
    cells = [
        text.ljust(width) if column < 2 else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
