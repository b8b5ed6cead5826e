"""Declarations that no part of Pessoa serves or writes: telemetry, share groups, streams groups, tiered storage.

They are declared so that every message of Kafka is read, written and compared with Apache's, and so that kafka-dump-log
shows what Apache's shows. An API that becomes served moves to `wire/api`, its records to `wire/stored`; a test holds
this package against the rows of the broker.
"""
