"""The clock and the random numbers of this machine, for evaluations in the server and in Spark's workers."""

from __future__ import annotations

import secrets
import time


class SystemEvaluationContext:
    """An `EvaluationContext` of this machine."""

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def octets(self, count: int) -> bytes:
        return secrets.token_bytes(count)
