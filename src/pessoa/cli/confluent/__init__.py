"""`confluent`; `confluent.py` is the command."""
