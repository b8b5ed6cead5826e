"""`make bench`: runs the measurements and prints each part as one aligned table.

A part is a file `bench/<family>_<name>.py` (`micro_wire.py`) which has

    def run(report: Report) -> None

and adds its numbers to the report (`bench/report.py`). `python -m bench` runs every part, `python -m bench micro_wire`
only the named ones; a prefix is enough. A part measures all that it compares in the same run, because two runs on a
shared machine cannot be compared.
"""

from __future__ import annotations

import importlib
import platform
import signal
import sys
from pathlib import Path

from bench.report import Report

FOLDER = Path(__file__).resolve().parent


def parts() -> list[str]:
    """Return the names of the files that have a `run`; parts share the other files."""
    return sorted(path.stem for path in FOLDER.glob("*_*.py") if "\ndef run(" in path.read_text(encoding="utf-8"))


def chosen(arguments: list[str]) -> list[str]:
    if not arguments:
        return parts()
    unknown = [argument for argument in arguments if not any(part.startswith(argument) for part in parts())]
    if unknown:
        raise SystemExit(
            f"no part of the bench is called {', '.join(unknown)}; there are: {', '.join(parts()) or 'none'}"
        )
    return [part for part in parts() if part.startswith(tuple(arguments))]


def main(arguments: list[str]) -> int:
    # SIGTERM must end the brokers as well, which would otherwise run for ever.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(f"Python {platform.python_version()} on {platform.machine()}")
    for part in chosen(arguments):
        print(f"\n{part}", flush=True)
        report = Report()
        importlib.import_module(f"bench.{part}").run(report)
        print("\n".join(f"  {line}" for line in report.lines()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
