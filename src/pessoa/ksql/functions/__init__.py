"""The functions of the language: one table, a file per topic.

A row (`function_rows.py`) says everything about a function: name, category, documentation, examples, and its variants,
each a signature (`signatures.py`) and what computes it. `function_table.py` collects the rows and finds the variant for
a call. Aggregates are in `aggregates.py`, functions that give several rows in `table_functions.py`.

Times, chance and the like come from the `EvaluationContext` of an evaluation: the functions themselves are pure.
"""
