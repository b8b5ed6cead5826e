"""A value that an expression cannot be computed of: the selected column becomes null and the row goes on."""

from __future__ import annotations


class EvaluationFailure(Exception):
    """The message goes to the processing log."""
