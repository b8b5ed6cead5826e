"""Windows: their sizes are checked, grace and retention get their defaults."""

from __future__ import annotations

from pessoa.ksql.analysis.logical_plan import PlannedWindow
from pessoa.ksql.ksql_errors import SemanticFailure
from pessoa.ksql.syntax.query_nodes import Emit, Window, WindowKind

DAY_MS = 86_400_000


def plan_window(window: Window, emit: Emit | None) -> PlannedWindow:
    """Return the window with all its times. Without GRACE, the grace period is a day less the size; with EMIT FINAL,
    zero."""
    size = window.size.ms
    if size <= 0:
        raise SemanticFailure("Window size must be greater than zero", window.size.at)
    advance = window.advance.ms if window.advance is not None else size
    if window.kind is WindowKind.HOPPING and not 0 < advance <= size:
        assert window.advance is not None
        raise SemanticFailure(
            "Window advance must be greater than zero and not larger than the size of the window", window.advance.at
        )
    if window.grace is not None:
        grace = window.grace.ms
    else:
        grace = 0 if emit is Emit.FINAL else max(DAY_MS - size, 0)
    needed = size + grace
    retention = max(window.retention.ms, 0) if window.retention is not None else max(needed, DAY_MS)
    if window.retention is not None and retention < needed:
        hint = "Give a shorter GRACE PERIOD, or a longer RETENTION."
        if window.grace is not None or retention < size:
            raise SemanticFailure(
                "RETENTION must not be shorter than the window's size and grace", window.retention.at, hint=hint
            )
        # The default grace is shortened to fit the RETENTION that was given.
        grace = retention - size
    return PlannedWindow(window.kind, size, advance, grace, retention)
