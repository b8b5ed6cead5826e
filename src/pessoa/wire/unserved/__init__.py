"""Declarations that no part of Pessoa serves or writes: the records of tiered storage.

They are declared so that every message of Kafka is read, written and compared with Apache's. An API that no listener
serves would be declared here too; one that becomes served moves to `wire/api`, and records that are written to
`wire/stored`. A test holds this package against the rows of the broker.
"""
