"""`pessoa ksql test FILE…`: the cases of files, run in this process; no broker, no server, no Spark.

    sensors.case
      ok    rows are counted by key
      FAIL  late rows are dropped
            out, line 2: …
    2 cases, 1 failed

A directory stands for the `*.case` files below it. The exit status is 0 if all cases hold, 1 if one does not, 2 if a
file cannot be read. User functions are those of `*.py` beside a case file that import
`pessoa.ksql.functions.user_functions`; other scripts that lie there are not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ENDING = ".case"


def run_case_files(paths: Sequence[Path], say: Callable[[str], object]) -> int:
    """Run all cases, and return the exit status."""
    from pessoa.ksql.case_files import CaseProblem, read_cases

    if not paths:
        say("Name a file with cases: pessoa ksql test FILE. docs/KSQL.md says what stands in it.")
        return 2
    count = failed = 0
    for path in _files(paths):
        try:
            cases = read_cases(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, CaseProblem) as problem:
            say(f"{path}: {problem}")
            return 2
        _load_functions(path.parent)
        say(str(path))
        for case in cases:
            count += 1
            wrong = _failure_of(case)
            say(f"  {'FAIL' if wrong else 'ok':<5} {case.name}")
            if wrong:
                failed += 1
                say("        " + wrong.replace("\n", "\n        "))
    say(f"{count} cases, {failed} failed" if failed else f"{count} cases, all hold")
    return 1 if failed else 0


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob(f"*{ENDING}"))
        else:
            yield path


def _failure_of(case: object) -> str:
    """Return what is wrong with a case; "" if it holds."""
    from pessoa.ksql.case_files import Case
    from pessoa.ksql.ksql_errors import KsqlError
    from pessoa.ksql.operators.case_runner import CaseFailure, run_case
    from pessoa.ksql.operators.records import QueryFailure

    assert isinstance(case, Case)
    try:
        run_case(case)
    except (CaseFailure, QueryFailure, KsqlError) as wrong:
        return str(wrong) or "it does not hold"
    return ""


def _load_functions(folder: Path) -> None:
    from pessoa.ksql.server.function_loading import load_directory

    load_directory(folder, only_declaring=True)
