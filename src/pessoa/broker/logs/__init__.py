"""The logs of a broker, each a file of its own with rotation (`pessoa logs broker-1 --access` shows them):

    access      every request: client, principal, API and version, topics, bytes, time, result
    agent       the software of clients, by connection (KIP-511)
    referrer    on whose behalf a connection was made: service, connector, ksql query
    audit       changes of the cluster: topics, configurations, ACLs, credentials, quotas; who, from where, outcome
    error       warnings and errors of this process, with their tracebacks
    authorizer  decisions about access, as Kafka's authorizer logs them

`pessoa.logs` names those that are written. Which requests a log looks at is asked by the row of an API, so a log that
is off, and a log about other APIs, cost a request nothing (`broker.observers`). Each has a logger, whose level can be
changed while the broker runs (BROKER_LOGGER, KIP-412), and which belongs to the process as all loggers do.

    node_logs.py       which logs are on, and their files           access_log.py, audit_log.py, connection_logs.py
    log_file.py        a bounded buffer, a file, rotation           what they note of requests
    log_lines.py       JSON or text, escaped                        python_logging.py: error and authorizer
    repeated_lines.py  standard error, which is no file of these, with a bound for repeated warnings

No secret gets in: what is noted of a request is named field by field, and everything else is left out.
"""
