"""The REST interface, a file for each kind of thing; `json_messages.py` is what they share."""
