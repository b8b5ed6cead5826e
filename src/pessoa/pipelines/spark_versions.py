"""The versions that pipelines are built on, in one table: Spark's, and the jars that its wheel lacks to read Kafka.

An upgrade is a change here, in pyproject.toml (the wheel) and in requirements.lock, and then `make spark`. Each jar is
taken for what its `why` says; its SHA-256 is that of the file on Maven Central.

The newest connector there is that of Spark 4.2, one release behind the wheel. Its source and sink were seen to work
with 4.3 at both speeds, in a classic session and through Spark Connect.
"""

from __future__ import annotations

from dataclasses import dataclass

# PySpark's wheel: Spark itself, with Scala 2.13. Since 4.3 aggregates and windows run in real-time mode.
SPARK_VERSION = "4.3.0"


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str
    why: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path_in_repository(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


KAFKA_JARS = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
        "Spark's Kafka source and sink; the newest that is published",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
        "the connector needs its classes; none newer is published, and they are the same",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
        "what the connector reads and writes with; it was compiled against 3.9",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
        "the connector's pool of consumers",
    ),
)
