"""The door for chance.

Code that needs an id which cannot be guessed, or jitter, asks an `Entropy`: the operating system's, or one that comes
from a seed, so that a simulation can be run again.
"""

from __future__ import annotations

import os
from random import Random
from typing import Protocol

from pessoa.base.ids import UUID_SIZE, Uuid

# Kafka keeps the first ids for itself (zero is "none", one is the metadata topic), and never starts one with a dash,
# which a command line would take for an option.
_RESERVED = 100


class Entropy(Protocol):
    def octets(self, count: int) -> bytes:
        """Return `count` random bytes."""


class SystemEntropy:
    def octets(self, count: int) -> bytes:
        return os.urandom(count)


class SeededEntropy:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def octets(self, count: int) -> bytes:
        return self._random.randbytes(count)


def new_uuid(entropy: Entropy) -> Uuid:
    while True:
        found = Uuid(entropy.octets(UUID_SIZE))
        if int.from_bytes(found, "big") >= _RESERVED and not str(found).startswith("-"):
            return found


def below(entropy: Entropy, bound: int) -> int:
    """Return a random number from 0 up to, and without, the bound."""
    return int.from_bytes(entropy.octets(8), "big") % bound


def positive_int32(entropy: Entropy) -> int:
    """Return a random number from 1 to 2^31 - 1."""
    while True:
        found = int.from_bytes(entropy.octets(4), "big") & 0x7FFFFFFF
        if found:
            return found
