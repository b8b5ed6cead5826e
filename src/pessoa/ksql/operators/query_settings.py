"""The inputs of a query besides records: the time, random numbers, and the server's settings that affect results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pessoa.ksql.functions.function_rows import EvaluationContext
from pessoa.ksql.operators.records import ProcessingFailure

FAIL_ON_BAD_RECORD = "ksql.fail.on.deserialization.error"
FAIL_ON_BAD_TIMESTAMP = "ksql.timestamp.throw.on.invalid"
WRAP_SINGLE_VALUES = "ksql.persistence.wrap.single.values"
COLLECT_LIST_LIMIT = "ksql.functions.collect_list.limit"
COLLECT_SET_LIMIT = "ksql.functions.collect_set.limit"


class FixedEvaluationContext:
    """A clock that never advances and repeatable random numbers: for cases and tests."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._drawn = 0

    def octets(self, count: int) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(count, "big")


def _ignore(_: ProcessingFailure) -> None:
    return


@dataclass(frozen=True)
class QuerySettings:
    evaluation_context: EvaluationContext = field(default_factory=FixedEvaluationContext)
    # The processing log.
    log: Callable[[ProcessingFailure], None] = _ignore
    # Properties of the server and the session, by their full names.
    properties: Mapping[str, str] = field(default_factory=dict)

    def is_true(self, name: str, default: bool = False) -> bool:
        return self.properties.get(name, str(default)).lower() == "true"

    def number(self, name: str) -> int | None:
        """Return a numeric limit; None if it is not set or negative."""
        found = self.properties.get(name)
        return None if found is None or int(found) < 0 else int(found)
