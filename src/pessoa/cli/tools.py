"""The table of Kafka's command-line tools, and how one is started.

The entry points in pyproject.toml follow the table, each also under its `.sh` name; the shell and `confluent` start
tools from it, and so does `python -m pessoa.cli.tools kafka-topics --list …`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.cli.subcommands import ParsedTool
    from pessoa.cli.tool_run import Tool

# The command → its module in this package, and the name in it unless that is `main`.
TOOLS = {
    "kafka-topics": "topics",
    "kafka-console-producer": "console.console_producer",
    "kafka-console-consumer": "console.console_consumer",
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
    "kafka-share-groups": "share_groups",
    "kafka-console-share-consumer": "console.console_share_consumer",
    "kafka-share-consumer-perf-test": "share_consumer_perf_test",
    "kafka-verifiable-share-consumer": "verifiable_share_consumer",
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
    "kafka-avro-console-producer": "console.schema_console:avro_producer",
    "kafka-avro-console-consumer": "console.schema_console:avro_consumer",
    "kafka-json-schema-console-producer": "console.schema_console:json_schema_producer",
    "kafka-json-schema-console-consumer": "console.schema_console:json_schema_consumer",
    "kafka-protobuf-console-producer": "console.schema_console:protobuf_producer",
    "kafka-protobuf-console-consumer": "console.schema_console:protobuf_consumer",
    "kafka-streams-application-reset": "streams_application_reset",
    "kafka-streams-groups": "streams_groups",
    "kafka-dump-log": "dump_log.dump_log",
}


def load(command: str) -> Tool | ParsedTool:
    module, _, name = TOOLS[command].partition(":")
    found: Tool | ParsedTool = getattr(import_module(f"pessoa.cli.{module}"), name or "main")
    return found


if __name__ == "__main__":
    del sys.argv[0]
    sys.exit(load(sys.argv[0])())
