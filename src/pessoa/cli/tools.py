"""The table of Kafka's command-line tools: the command, and the module of this package that is it.

The entry points in pyproject.toml follow it, each also under its `.sh` name; the shell and `confluent` start tools
from it.
"""

from __future__ import annotations

TOOLS = {
    "kafka-topics": "topics",
    "kafka-console-producer": "console_producer",
    "kafka-console-consumer": "console_consumer",
    "kafka-consumer-groups": "consumer_groups",
    "kafka-get-offsets": "get_offsets",
    "kafka-configs": "configs",
    "kafka-broker-api-versions": "broker_api_versions",
    "kafka-cluster": "cluster",
    "kafka-features": "features",
    "kafka-metadata-quorum": "metadata_quorum",
    "kafka-log-dirs": "log_dirs",
    "kafka-delete-records": "delete_records",
    "kafka-leader-election": "leader_election",
    "kafka-groups": "groups",
    "kafka-client-metrics": "client_metrics",
    "kafka-reassign-partitions": "reassign_partitions",
    "kafka-transactions": "transactions",
    "kafka-acls": "acls",
    "kafka-delegation-tokens": "delegation_tokens",
    "kafka-storage": "storage",
    "kafka-producer-perf-test": "producer_perf_test",
    "kafka-consumer-perf-test": "consumer_perf_test",
    "kafka-e2e-latency": "e2e_latency",
    "kafka-verifiable-producer": "verifiable_producer",
    "kafka-verifiable-consumer": "verifiable_consumer",
    "kafka-avro-console-producer": "avro_console_producer",
    "kafka-avro-console-consumer": "avro_console_consumer",
    "kafka-json-schema-console-producer": "json_schema_console_producer",
    "kafka-json-schema-console-consumer": "json_schema_console_consumer",
    "kafka-protobuf-console-producer": "protobuf_console_producer",
    "kafka-protobuf-console-consumer": "protobuf_console_consumer",
    "kafka-dump-log": "dump_log",
}
