"""Typed expressions as Python functions over rows: closures, no text is compiled.

`expression_functions.py` makes them, `predicate_functions.py` has comparisons and logic. A value that cannot be
computed is an EvaluationFailure on the way up; `row_functions.py` turns it into null (a column), false (a condition) or
no row (a key).
"""
