"""What every HTTP service of the platform shares, in the order in which a request meets it.

    serving.py      sockets, TLS, signals: uvicorn, started and stopped by us
    http.py         one connection: requests out of bytes, within limits and deadlines
    asgi_app.py     one request: authentication, route, media types, handler, answer or problem
    routing.py      the table of endpoints as a tree of path segments
    negotiation.py  which media type comes in, which goes out
    auth.py         who calls, with its credentials; HTTP Basic against a file of users
    kafka_users.py  HTTP Basic against the users of the Kafka cluster
    bodies.py       request bodies: size limit, JSON, validation by msgspec
    answers.py      a whole answer
    problems.py     the one exception that becomes an error body
    metrics.py      counters and latencies for Prometheus
    settings.py     a service's settings: a dataclass whose fields are rows with name, default and meaning
    http_settings.py  the rows that all services have: listeners, HTTPS, users; and a service as a process
    trust.py        which servers a service trusts over HTTPS
    openapi.py      the same table of endpoints as an OpenAPI document and as a page to read

A service is a table of `Endpoint`s handed to `make_app`; everything else here follows from the table.
"""
