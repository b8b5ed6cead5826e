"""Kafka's UUID: sixteen bytes that people see as 22 characters of URL-safe base64.

Topic ids, directory ids, incarnation ids, cluster ids and member ids are all of this kind. A `Uuid` *is* its bytes,
so it hashes, compares and packs as fast as bytes do; only its text form is Kafka's.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Self

UUID_SIZE = 16
_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


class Uuid(bytes):
    """A UUID as sixteen bytes. Invariant: `len(self) == 16`."""

    __slots__ = ()

    def __new__(cls, raw: bytes) -> Self:
        if len(raw) != UUID_SIZE:
            raise ValueError(f"a UUID has {UUID_SIZE} bytes, not {len(raw)}")
        return bytes.__new__(cls, raw)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the UUID with this base64 text, with or without its padding."""
        # The decoder alone would pass over characters that are none of base64's.
        if not _TEXT.fullmatch(text):
            raise ValueError(f"{text!r} is not a UUID in URL-safe base64")
        return cls(urlsafe_b64decode(text.rstrip("=") + "=="))

    @classmethod
    def of(cls, number: int) -> Self:
        """Return the UUID whose 128 bits are this number: Kafka reserves the first hundred for itself."""
        return cls(number.to_bytes(UUID_SIZE, "big"))

    def __str__(self) -> str:
        return urlsafe_b64encode(self).decode("ascii").rstrip("=")

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"


ZERO_UUID = Uuid(bytes(UUID_SIZE))
