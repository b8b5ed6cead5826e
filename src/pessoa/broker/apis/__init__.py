"""One file per API, named after its `ApiKey`; `broker/api_table.py` collects their rows.

The head of a file says what the API does, what changed in which version, and where it differs from Apache Kafka; its
row (`broker/api_row.py`) says the versions, the listeners, how it reaches the controller, how it is sliced, refused,
authorised and throttled; and its functions answer requests, or name what decides about them in `controller/`, `quorum/`
and `coordinator/`.
"""
