"""The hash by which a consumer group notices that its topics have changed, as Kafka stores it (KIP-1101).

    topic   XXH3-64 of: byte 0, topic id, name, partition count, then for each partition its number and the racks of its
            replicas, sorted, each as length and text
    group   XXH3-64 of the hashes of its topics, in the order of their names; 0 without topics

Numbers are little-endian. A text is hashed as UTF-16 followed by its length as int32, and a rack has its length
before it too. The topic id goes in as two longs, each of them turned to little-endian.

The hash is stored with the group epoch. A coordinator that computed another would bump the epoch of every group that
it takes over, so it must be this one to the bit.

XXH3 takes inputs of up to 16, 128 and 240 bytes by three short ways of its own, and longer ones by stripes; all four
are below, for seed 0 and the default secret, since topics are hashed once and remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

from pessoa.coordinator.shard import Cluster, Topic

_MASK = (1 << 64) - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_PMX_1, _PMX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_SECRET_STEP = 8
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // _SECRET_STEP
_BLOCK = _STRIPE * _STRIPES_PER_BLOCK

_u32 = Struct("<I").unpack_from
_u64 = Struct("<Q").unpack_from
_u64x8 = Struct("<8Q").unpack_from


def topic_hash(topic: Topic, cluster: Cluster) -> int:
    parts = [
        b"\0",
        topic.id[:8][::-1],
        topic.id[8:][::-1],
        _text(topic.name),
        len(topic.partitions).to_bytes(4, "little"),
    ]
    for index in range(len(topic.partitions)):
        parts.append(index.to_bytes(4, "little"))
        brokers = (cluster.brokers.get(broker_id) for broker_id in topic.partitions[index].replicas)
        for rack in sorted(broker.rack for broker in brokers if broker is not None and broker.rack is not None):
            parts += (_length(rack), _text(rack))
    return _to_signed(xxh3_64(b"".join(parts)))


def group_hash(topic_hashes: Mapping[str, int]) -> int:
    if not topic_hashes:
        return 0
    ordered: Iterable[int] = (topic_hashes[name] for name in sorted(topic_hashes))
    return _to_signed(xxh3_64(b"".join((value & _MASK).to_bytes(8, "little") for value in ordered)))


def _text(text: str) -> bytes:
    return text.encode("utf-16-le") + _length(text)


def _length(text: str) -> bytes:
    return (len(text.encode("utf-16-le")) // 2).to_bytes(4, "little")


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def xxh3_64(data: bytes) -> int:
    size = len(data)
    if size <= 16:
        return _up_to_16(data)
    if size <= 128:
        return _up_to_128(data)
    if size <= 240:
        return _up_to_240(data)
    return _long(data)


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PMX_1 & _MASK
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    value = (value ^ value >> 33) * _P64_2 & _MASK
    value = (value ^ value >> 29) * _P64_3 & _MASK
    return value ^ value >> 32


def _mix16(data: bytes, position: int, secret_position: int) -> int:
    low, high = _u64(data, position)[0], _u64(data, position + 8)[0]
    return _fold(low ^ _u64(_SECRET, secret_position)[0], high ^ _u64(_SECRET, secret_position + 8)[0])


def _up_to_16(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = _u64(data)[0] ^ _u64(_SECRET, 24)[0] ^ _u64(_SECRET, 32)[0]
        high = _u64(data, size - 8)[0] ^ _u64(_SECRET, 40)[0] ^ _u64(_SECRET, 48)[0]
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _fold(low, high)) & _MASK)
    if size >= 4:
        value: int = _u32(data, size - 4)[0] + (_u32(data)[0] << 32)
        value ^= _u64(_SECRET, 8)[0] ^ _u64(_SECRET, 16)[0]
        value ^= (value << 49 | value >> 15) & _MASK ^ (value << 24 | value >> 40) & _MASK
        value = value * _PMX_2 & _MASK
        value ^= (value >> 35) + size
        value = value * _PMX_2 & _MASK
        return value ^ value >> 28
    if size:
        value = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _avalanche_64(value ^ _u32(_SECRET)[0] ^ _u32(_SECRET, 4)[0])
    return _avalanche_64(_u64(_SECRET, 56)[0] ^ _u64(_SECRET, 64)[0])


def _up_to_128(data: bytes) -> int:
    size = len(data)
    total = size * _P64_1
    for pair in range((size - 1) // 32 + 1):
        total += _mix16(data, pair * 16, pair * 32)
        total += _mix16(data, size - 16 * (pair + 1), pair * 32 + 16)
    return _avalanche(total & _MASK)


def _up_to_240(data: bytes) -> int:
    size = len(data)
    total = size * _P64_1
    for index in range(8):
        total += _mix16(data, index * 16, index * 16)
    total = _avalanche(total & _MASK)
    for index in range(8, size // 16):
        total += _mix16(data, index * 16, (index - 8) * 16 + 3)
    # The last 16 bytes, with a secret that ends 17 bytes before the smallest that a secret may be (136).
    total += _mix16(data, size - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _long(data: bytes) -> int:
    size = len(data)
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    blocks = (size - 1) // _BLOCK
    for block in range(blocks):
        for stripe in range(_STRIPES_PER_BLOCK):
            _accumulate(lanes, data, block * _BLOCK + stripe * _STRIPE, stripe * _SECRET_STEP)
        for lane, key in enumerate(_u64x8(_SECRET, len(_SECRET) - _STRIPE)):
            value = lanes[lane]
            lanes[lane] = ((value ^ value >> 47) ^ key) * _P32_1 & _MASK
    start = blocks * _BLOCK
    for stripe in range((size - 1 - start) // _STRIPE):
        _accumulate(lanes, data, start + stripe * _STRIPE, stripe * _SECRET_STEP)
    _accumulate(lanes, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = size * _P64_1
    for pair in range(4):
        low, high = _u64(_SECRET, 11 + pair * 16)[0], _u64(_SECRET, 11 + pair * 16 + 8)[0]
        total += _fold(lanes[pair * 2] ^ low, lanes[pair * 2 + 1] ^ high)
    return _avalanche(total & _MASK)


def _accumulate(lanes: list[int], data: bytes, position: int, secret_position: int) -> None:
    values, keys = _u64x8(data, position), _u64x8(_SECRET, secret_position)
    for lane in range(8):
        keyed = values[lane] ^ keys[lane]
        lanes[lane ^ 1] = (lanes[lane ^ 1] + values[lane]) & _MASK
        lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK
