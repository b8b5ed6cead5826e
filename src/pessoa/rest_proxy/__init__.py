"""Kafka over HTTP: the REST proxy on port 8082, and its APIs v2 (`/topics`, `/consumers`) and v3 (`/v3/clusters`).

The way of a produce:

    app.py            the table of endpoints, and what they share
    v2/produce.py     one request: its body, its embedded format, its schemas
    embedded.py       a JSON value ⇄ the bytes of a record, for each format
    schemas.py        the schema registry, asked once for each schema
    topics.py         which topics and partitions there are, remembered
    producing.py      one producer for everybody; delivery reports come back to the loop in batches

The way of a read: v2/consumers.py → consumers.py (the table of instances, and when they end) → instance.py (a member
of a consumer group, which belongs to one worker thread at a time) → embedded.py.

Everything else (topics, configs, ACLs, groups) goes through cluster.py, to librdkafka's Admin or to our own client.
problems.py is the table of error codes.

The proxy is a Kafka client like any other: it runs in front of our brokers and in front of Apache Kafka.
"""
