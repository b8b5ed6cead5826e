"""The logs of the brokers of a `pessoa up` beside which the control centre runs: what they print and what they write.

    printed                             $HOME/logs/broker-1.log
    access, error, agent, referrer, …   $HOME/logs/broker-1/access.log, JSON on each line (pessoa.logs)

Brokers on other machines keep their logs there: the page says so, and what to type. A log that is off has no file;
`LOGGERS` says by which logger it is turned on until the broker's next start.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

KINDS = ("error", "access", "audit", "agent", "referrer", "authorizer", "printed")
LOGGERS = {
    "access": ("kafka.request.logger", "DEBUG"), "error": ("pessoa.error", "WARN"), "agent": ("pessoa.agent", "INFO"),
    "referrer": ("pessoa.referrer", "INFO"), "audit": ("pessoa.audit", "INFO"),
}  # fmt: skip
# A log of gigabytes stays out of memory.
TAIL_BYTES = 512 * 1024
_FIRST = ("time", "level", "client_id", "principal", "host", "request", "api", "event", "message")


class LogLines(NamedTuple):
    """Log lines, the newest first; `columns` is empty for plain text."""

    columns: list[str]
    rows: list[list[str]]


def log_path(home: str | None, broker: int, kind: str) -> Path | None:
    """Return the path of a broker's log on this machine; None if no `pessoa up` runs here."""
    if home is None or kind not in KINDS:
        return None
    folder = Path(home) / "logs"
    if not (folder / f"broker-{broker}.log").exists():
        return None
    return folder / f"broker-{broker}.log" if kind == "printed" else folder / f"broker-{broker}" / f"{kind}.log"


def read_tail(path: Path, count: int, wanted: str = "") -> LogLines:
    """Return the newest `count` lines that contain `wanted`, ignoring case. OSError if the file cannot be read."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL_BYTES))
        data = file.read(TAIL_BYTES)
    # At newlines alone: `splitlines` would also split at characters that a client has put into a name.
    lines = data.decode(errors="replace").split("\n")
    if size > TAIL_BYTES:
        # The first is a piece of one.
        del lines[0]
    wanted = wanted.casefold()
    found = [one for one in lines if one and wanted in one.casefold()]
    return _as_columns(found[-count:][::-1])


def _as_columns(lines: list[str]) -> LogLines:
    objects = []
    for line in lines:
        try:
            value = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return LogLines([], [[one] for one in lines])
        if not isinstance(value, dict):
            return LogLines([], [[one] for one in lines])
        objects.append(value)
    names = dict.fromkeys(name for one in objects for name in one)
    columns = sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return LogLines(columns, [[_cell(one.get(name)) for name in columns] for one in objects])


def _cell(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
