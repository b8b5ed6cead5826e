"""ksql: SQL over topics. This package is the front end: text in, typed plan out; pure, and nothing runs a plan.

    text ─ syntax/lexer.py ─ tokens ─ syntax/parser.py ─ statement ─ analysis/analyser.py ─ logical plan
                                                             │
                                          syntax/statement_text.py writes it back as SQL

- `types/` has the SQL types and what becomes of them: coercion, arithmetic, comparison, casts.
- `functions/` is the one table of functions: signatures, meaning, documentation, examples.
- `evaluate/` turns a typed expression into a Python function over a row.

A statement that is wrong raises `KsqlError` (`ksql_errors.py`): what, where (line, column and caret), and what to write
instead.
"""
