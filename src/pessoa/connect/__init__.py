"""Kafka Connect: connectors described by a flat configuration, run as streaming queries, controlled over HTTP.

    data.py          Connect's values: schemas, logical types, records;  values.py: values as text
    definition.py    tables of configuration keys;  config_validation.py: what `validate` says about a configuration;
                     config_providers.py: values that it refers to;  config_references.py: those in a validation
    converters/      bytes ⇄ values;  transforms/ and predicates.py: what may happen to a record on its way
    connector.py     what a connector is: a table of keys and a few methods
    connectors/      those that come with the platform;  plugins.py finds these and the user's own
    source_task.py   a source inside its query: poll → transform_chain.py → record_converters.py → rows;
                     query_offset.py: its offset;  repeated_batch.py: a batch again, after a crash
    sink_task.py     a sink inside its query: rows → record_converters.py → transform_chain.py → put
    error_tolerance.py   records that cannot be handled: tried again, skipped, dead letters
    worker_store.py  the internal topics, with Kafka's keys;  cluster_state.py: their records, replayed
    herder.py        starts and stops tasks;  runner.py: how;  spark_runner.py: as queries of the engine
    api/             the REST interface;  worker_service.py: the process of a worker

What happens to a record is plain Python without Spark: the tasks are handed to `pipelines`, which ships them to where
the query runs.
"""
