"""The keys of brokers, groups and client metrics, by subject. Those of topics stand with the log (`log.topic_config`).

`broker` puts the subjects together into one table. The tables are on the floor because the controller checks settings
that a broker will live with, and neither may import the other.
"""
