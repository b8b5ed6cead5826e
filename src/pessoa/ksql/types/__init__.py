"""SQL types, and what a value can do wrong (`sql_types.py`), and their rules.

What an operator gives (`operator_types.py`) and how it computes (`number_arithmetic.py`), which types stand for others
(`implicit_casts.py`), what CAST does (`explicit_casts.py`), values as text (`value_text.py`), and times as text
(`time_text.py`).
"""
