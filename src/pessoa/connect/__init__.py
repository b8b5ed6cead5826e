"""Kafka Connect: connectors described by a flat configuration, run as streaming queries, ruled over HTTP.

    data.py          Connect's values: schemas, logical types, records
    definition.py    tables of configuration keys and what `validate` says about a configuration
    converters/      bytes ⇄ values;  transforms/ and predicates.py: what may happen to a record on its way
    connector.py     what a connector is: a table of keys and a few methods
    connectors/      those that come with the platform;  plugins.py finds these and the user's own
    source_task.py   a source inside its query: poll → transforms → converters → rows, and its offsets
    sink_task.py     a sink inside its query: rows → converters → transforms → put, dead letters
    store.py         the internal topics, with Kafka's keys;  state.py: what they say, replayed
    herder.py        what should run and what does;  running.py: a connector as queries of the engine
    api/             the REST interface;  service.py: all of it together

What happens to a record is plain Python without Spark: the tasks are handed to `pipelines`, which ships them to where
the query runs.
"""
