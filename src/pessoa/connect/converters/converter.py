"""What a converter is: bytes of a topic ⇄ a value of Connect with its schema.

A converter is made for the key or the value of a connector's records, from the settings below `key.converter.` or
`value.converter.`. Converters of headers have the header's name besides, and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pessoa.connect.data import ConnectValue, Schema
from pessoa.connect.definition import Config, Table


class Converter(ABC):
    CONFIG: ClassVar[Table] = Table()

    def __init__(self, settings: Mapping[str, str], *, is_key: bool = False) -> None:
        self.is_key = is_key
        self.settings = settings
        self.configure(self.CONFIG.parse(settings))

    def configure(self, config: Config) -> None:  # noqa: B027
        """Prepare for records with these settings."""

    @abstractmethod
    def to_bytes(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        """Return the value as bytes; DataFailure if it cannot be written."""

    @abstractmethod
    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, ConnectValue]:
        """Return schema and value; DataFailure if the bytes are not in this converter's format."""

    def close(self) -> None:  # noqa: B027
        """Close what `configure` has opened."""
