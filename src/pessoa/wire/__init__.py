"""Kafka's protocol as bytes: frames, headers, messages, errors. Pure: nothing here waits, or touches a socket or a
file.

- `schema`: how a message is declared. `api/` has one file per API, `stored/` the records that Kafka keeps in its own
  topics and files. `catalogue` finds a declaration by its number.
- `compiler`, `decoding`, `encoding`: from a declaration to a codec for one version, on first use.
- `headers`, `frames`: what stands around a message on a connection.
- `errors`: the error table, and what it means that bytes are not Kafka's. `request_context`: who sent a request.
"""
