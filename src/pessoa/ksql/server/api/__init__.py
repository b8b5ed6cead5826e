"""The endpoints of the ksql server, a file per kind."""
