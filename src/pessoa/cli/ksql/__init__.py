"""The `ksql` command line: local commands, statements to a server, and their answers as tables."""
