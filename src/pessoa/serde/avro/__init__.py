"""Avro: `avro_schema.py` is what a schema is, `parsing.py` and `printing.py` its text, `codec.py` the data."""
