"""The randomness door: which UUIDs are drawn."""

from __future__ import annotations

from pessoa.base.entropy import SystemEntropy, new_uuid
from pessoa.base.ids import Uuid


class FixedEntropy:
    """Returns the given bytes, one value for each draw."""

    def __init__(self, *draws: bytes) -> None:
        self._draws = list(draws)

    def octets(self, count: int) -> bytes:
        return self._draws.pop(0)


def test_a_new_uuid_is_drawn_again_if_kafka_reserves_it_or_its_text_looks_like_an_option() -> None:
    like_an_option = b"\xfb" * 16
    good = bytes(range(16))
    assert str(Uuid(like_an_option)).startswith("-")
    assert new_uuid(FixedEntropy(bytes(15) + b"\x63", like_an_option, good)) == good


def test_new_uuids_of_the_system_differ() -> None:
    assert len({new_uuid(SystemEntropy()) for _ in range(500)}) == 500
