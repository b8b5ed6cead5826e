"""Tables as CSV that a spreadsheet opens without harm: a cell that could be a formula begins with a quote."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence


def csv_cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t") else text


def csv_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(heads)
    # Numbers cannot be formulas, and -5 is to stay one.
    writer.writerows([one if isinstance(one, int | float) else csv_cell(one) for one in row] for row in rows)
    return out.getvalue().encode()
