"""`kafka-dump-log`; `dump_log.py` is the command."""
