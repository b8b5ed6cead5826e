"""Kafka over HTTP: the REST proxy on port 8082, and its APIs v2 (`/topics`, `/consumers`) and v3 (`/v3/clusters`).

The way of a produce:

    proxy_app.py              the table of endpoints, and what they share
    caller_clients.py         whose Kafka clients serve a request: the proxy's, or its caller's
    v2/produce_endpoints.py   one request: its body, its embedded format, its schemas
    embedded.py               a JSON value ⇄ the bytes of a record, for each format
    record_schemas.py         the schema registry, asked once for each schema
    known_topics.py           which topics and partitions there are, remembered
    producing.py              a producer for each principal; delivery reports come back to the loop in batches

The way of a read: v2/consumer_endpoints.py → consumer_instances.py (the table of instances, and when they end) →
instance.py (a member of a consumer group, which belongs to one worker thread at a time) → embedded.py.

Everything else (topics, configs, ACLs, groups) goes through async_admin.py, to librdkafka's Admin or to our own client.
proxy_problems.py is the table of error codes.

The proxy is a Kafka client like any other: it runs in front of our brokers and in front of Apache Kafka.
"""
