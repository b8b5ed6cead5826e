"""The REST interface, a file for each kind of thing; `desk.py` is what they share."""
