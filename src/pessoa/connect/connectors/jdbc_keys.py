"""The keys for a connection to a database, the same for source and sink."""

from __future__ import annotations

from pessoa.base.config_values import Value, at_least
from pessoa.connect.connector import RetriableFailure
from pessoa.connect.connectors.databases import Database, connect
from pessoa.connect.data import DataFailure
from pessoa.connect.definition import (
    HIGH,
    INT,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    REQUIRED,
    STRING,
    Config,
    Key,
    Settings,
    key,
)


def _complaint(value: Value, settings: Settings) -> str | None:
    """Return what is wrong with a JDBC URL; a database that does not answer is not an error of its URL."""
    if "${" in str(value):
        return None
    try:
        connect(str(value), settings.get("connection.user"), settings.get("connection.password")).close()
    except DataFailure as wrong:
        return str(wrong)
    except RetriableFailure:
        return None
    return None


def connect_with(config: Config) -> Database:
    return connect(
        config.string("connection.url"),
        config.optional_string("connection.user"),
        config.optional_string("connection.password"),
    )


def connection_keys() -> list[Key]:
    group = "Connection"
    return [
        key("connection.url", STRING, REQUIRED, _complaint, HIGH, "Where the database is: jdbc:postgresql://… or "
            "jdbc:sqlite:/path.", group=group, width="LONG", display="JDBC URL"),
        key("connection.user", STRING, None, HIGH, "The user.", group=group, width="MEDIUM", display="JDBC User"),
        key("connection.password", PASSWORD, None, HIGH, "The password.", group=group, width="MEDIUM",
            display="JDBC Password"),
        key("connection.attempts", INT, 3, at_least(1), LOW, "How often a connection is tried.", group=group),
        key("connection.backoff.ms", LONG, 10000, at_least(0), LOW, "The pause between two attempts.", group=group),
        key("dialect.name", STRING, "", LOW, "The dialect follows from the address.", group=group),
        key("quote.sql.identifiers", STRING, "always", MEDIUM, "Names are always quoted.", group=group),
    ]  # fmt: skip
