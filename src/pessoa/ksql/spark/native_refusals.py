"""Why a plan does not run on Spark's own operators. It is no error: the ordered operator takes every plan."""

from __future__ import annotations


class NotNative(Exception):
    """What in the plan Spark cannot be trusted to mean as ksql does; a part of a sentence behind `because`."""
