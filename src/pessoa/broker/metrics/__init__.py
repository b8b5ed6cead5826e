"""The metrics of a node: `GET /metrics` in Prometheus' text format, `GET /health`, on a port of their own.

    families.py         the table of all metrics: name, type, what it means
    exposition.py       samples with their labels, as text
    request_metrics.py  what is counted while requests are served: a watcher of `broker.observers`
    time_quantiles.py   how long requests took, in a bounded histogram; recent_average.py: an average of the last minute
    metadata_counts.py  what is counted when the metadata changes: the in-sync replicas, unclean elections
    collectors.py       everything else, looked at when it is asked for
    group_lag.py        the lag of consumer groups, as kafka_exporter names it
    client_telemetry.py what clients push of their own metrics (KIP-714); telemetry_subscriptions.py: who pushes what,
                        otlp_metrics.py: the format, pushed_metrics.py: what is kept and shown of it
    http_endpoint.py    a small HTTP server with bounds
    node_metrics.py     the stage that puts them together

Names are those that Prometheus' JMX exporter and Strimzi give to Kafka's own metrics, so that their dashboards show
Pessoa too; docs/grafana-dashboard.json is one. Without `pessoa.metrics.port` nothing of this is imported.
"""
