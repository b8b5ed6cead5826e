"""SQL types (`sql_types.py`)."""
