"""`KafkaSettings` in the words of two that take them: Spark's Kafka source and sink, and the client of the registry.

The settings of Kafka's clients say to serialisers where the schema registry is and how to log in there. Those keys are
no settings of Spark's consumers and producers, so Spark does not get them.
"""

from __future__ import annotations

from pessoa.client.librdkafka import serialiser_settings
from pessoa.client.registry_client import URL, RegistryClient
from pessoa.pipelines.plan import KafkaSettings


def spark_settings(kafka: KafkaSettings) -> dict[str, str]:
    """Return Kafka's settings as options of Spark's Kafka source and sink."""
    others = serialiser_settings(kafka.options)
    options = {f"kafka.{key}": value for key, value in kafka.options.items() if key not in others}
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}


def registry_client(kafka: KafkaSettings) -> RegistryClient | None:
    """Return a client of the schema registry, with its login; None if no registry is configured."""
    settings = serialiser_settings(kafka.options)
    if kafka.schema_registry_url:
        settings[URL] = kafka.schema_registry_url
    return RegistryClient(settings) if settings.get(URL) else None
