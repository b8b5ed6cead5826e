"""What a converter is: bytes of a topic ⇄ a value of Connect with its schema.

A converter is made for the key or the value of a connector's records, from the settings below `key.converter.` or
`value.converter.`. Converters of headers have the header's name besides, and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pessoa.connect.data import Schema
from pessoa.connect.definition import Table


class Converter(ABC):
    CONFIG: ClassVar[Table] = Table()

    def __init__(self, settings: Mapping[str, str], *, is_key: bool = False) -> None:
        self.is_key = is_key
        self.settings = settings
        self.configure(self.CONFIG.parse(settings))

    def configure(self, config: dict[str, Any]) -> None:  # noqa: B027
        """Take what is needed from typed settings."""

    @abstractmethod
    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """DataFailure if the value cannot be written."""

    @abstractmethod
    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Schema and value; DataFailure if the bytes are none of this converter's."""

    def close(self) -> None:  # noqa: B027
        """Give back what `configure` took."""
