"""The Portuguese of every sentence on the pages: `portuguese.txt` has `English = Português` on each line.

Kafka's words stay Kafka's where people in Brazil and Portugal say them in English (broker, offset, lag, schema).
"""

from __future__ import annotations

from pathlib import Path

_TABLE = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

PORTUGUESE: dict[str, str] = {
    english: portuguese for english, _, portuguese in (line.partition(" = ") for line in _TABLE.splitlines() if line)
}
