"""The command-line tools, one file per tool; `main.py` holds the table of them."""
