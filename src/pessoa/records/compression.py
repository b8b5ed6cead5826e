"""The four codecs of a batch, in the framings that Kafka's clients read and write, and with a bound on what comes out.

The records of a batch are compressed as one piece. What that piece looks like:

    gzip    a gzip file; several members in a row are one piece, as for Java
    snappy  the "xerial" framing of snappy-java: 82 'SNAPPY' 00, int32 version 1, int32 oldest compatible version 1,
            then [int32 size, raw snappy block]... with 32 KiB of input a block. Some clients send one bare snappy
            block without it, so that is read as well
    lz4     an LZ4 frame. Java refuses blocks that depend on each other (KIP-57), so we write what it writes:
            independent blocks of 64 KiB, no checksums, no content size
    zstd    a Zstandard frame, usually without the content size, because Java writes it as a stream

**Bounded.** A few kilobytes can unpack into gigabytes, and their sender may be hostile. `decompress` takes
the `limit` of bytes that may come out, and knows how much that will be at most *before* it lets a codec write: gzip is
unpacked in steps that zlib bounds; snappy blocks state their size; LZ4 and Zstandard frames are walked block by block,
where every block has a largest possible size, and then unpacked into a buffer of that size that cannot grow. The peak
is about twice `limit`, the buffer and the bytes that are returned, plus the window of the codec.

Too much is MESSAGE_TOO_LARGE; a broken stream is INVALID_RECORD, since its CRC was right and sending it again will not
help.

cramjam is imported when a batch is first packed or unpacked: most batches pass a broker unopened.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING

from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    Bytes = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The values of the codec bits; the names in lower case are the values of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# 128 times the default max.message.bytes. Honest batches stay far below; a topic with larger ones passes its own limit.
DECOMPRESSED_LIMIT: Final = 128 * 1024 * 1024

# zlib's window bits, plus 16 for the gzip wrapper.
_GZIP_WINDOW_BITS = 15 + 16

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024

_LZ4_MAGIC = 0x184D2204
# Version 1 and independent blocks; blocks of 64 KiB; the header checksum of these two bytes.
_LZ4_HEADER = struct.pack("<I", _LZ4_MAGIC) + b"\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_END_MARK = b"\0\0\0\0"
_LZ4_STORED_FLAG = 0x80000000

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_SKIPPABLE_MASK = 0xFFFFFFF0
# RFC 8878, 3.1.1.2.4: no block regenerates more than this.
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_DEFAULT_LEVEL = 3  # Kafka's, KIP-390

_INT32 = struct.Struct(">i")
_UINT32_LE = struct.Struct("<I")


def compress(codec: Codec, data: Bytes, level: int | None = None) -> bytes:
    """Compress `data`; `level` is that of Kafka's `compression.<codec>.level`, and snappy has none."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Bytes, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """Decompress `data`. Raises `InvalidBatch` if it is corrupt or would give more than `limit` bytes."""
    if codec is Codec.NONE:
        if len(data) > limit:
            raise _too_large_error("none", limit)
        return bytes(data)
    return _DECOMPRESSORS[codec](data, limit)


def _too_large_error(name: str, limit: int) -> InvalidBatch:
    return InvalidBatch(ErrorCode.MESSAGE_TOO_LARGE, f"the {name} data unpacks to more than {limit} bytes")


def _corrupt_error(name: str, reason: object) -> InvalidBatch:
    return InvalidBatch(ErrorCode.INVALID_RECORD, f"the {name} data is broken: {reason}")


# ── gzip ──


def _compress_gzip(data: Bytes, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return packer.compress(data) + packer.flush()


def _decompress_gzip(data: Bytes, limit: int) -> bytes:
    members: list[bytes] = []
    room = limit
    rest: Bytes = data
    while True:
        unpacker = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            # One byte more than fits tells "exactly the limit" from "too much"; 0 would mean no bound at all.
            member = unpacker.decompress(rest, room + 1)
        except zlib.error as error:
            raise _corrupt_error("gzip", error) from None
        room -= len(member)
        if room < 0:
            raise _too_large_error("gzip", limit)
        if not unpacker.eof:
            raise _corrupt_error("gzip", "it ends early")
        members.append(member)
        rest = unpacker.unused_data
        if not rest:
            return members[0] if len(members) == 1 else b"".join(members)


# ── snappy ──


def _compress_snappy(data: Bytes, level: int | None) -> bytes:
    del level
    from cramjam import snappy

    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_snappy(data: Bytes, limit: int) -> bytes:
    from cramjam import DecompressionError, snappy

    blocks = _snappy_blocks(memoryview(data))
    try:
        sizes = [snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > limit:
            raise _too_large_error("snappy", limit)
        unpacked = bytearray(sum(sizes))
        view = memoryview(unpacked)
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            written = snappy.decompress_raw_into(block, view[position : position + size])
            if written != size:
                raise _corrupt_error("snappy", f"a block promised {size} bytes and gave {written}")
            position += size
    except DecompressionError as error:
        raise _corrupt_error("snappy", error) from None
    return bytes(unpacked)


def _snappy_blocks(view: memoryview) -> list[memoryview]:
    """Return the raw blocks inside the framing, or all of `view` if it has no framing."""
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return [view]
    blocks = []
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise _corrupt_error("snappy", "it ends inside the framing's header")
    while position < len(view):
        start = position + _INT32.size
        if start > len(view):
            raise _corrupt_error("snappy", "it ends inside the size of a block")
        position = start + _INT32.unpack_from(view, start - _INT32.size)[0]
        # A block has at least one byte, the varint of its unpacked size. So a size cannot send us back or keep us here.
        if not start < position <= len(view):
            raise _corrupt_error("snappy", f"a block claims {position - start} bytes, and {len(view) - start} are left")
        blocks.append(view[start:position])
    return blocks


# ── lz4 ──


def _compress_lz4(data: Bytes, level: int | None) -> bytes:
    from cramjam import lz4

    view = memoryview(data)
    pieces = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        block = view[start : start + _LZ4_BLOCK_BYTES]
        if level is None:
            packed = bytes(lz4.compress_block(block, store_size=False))
        else:
            packed = bytes(lz4.compress_block(block, mode="high_compression", compression=level, store_size=False))
        if len(packed) < len(block):
            pieces += (_UINT32_LE.pack(len(packed)), packed)
        else:
            pieces += (_UINT32_LE.pack(len(block) | _LZ4_STORED_FLAG), bytes(block))
    pieces.append(_LZ4_END_MARK)
    return b"".join(pieces)


def _decompress_lz4(data: Bytes, limit: int) -> bytes:
    from cramjam import lz4

    return _unpack_into("lz4", lz4.decompress_into, data, _max_size("lz4", _lz4_max_size, data, limit), limit)


def _lz4_max_size(view: memoryview, limit: int) -> int:
    """Return the most bytes that these frames can decompress to. The walk ends once that is more than `limit`."""
    most = position = 0
    while position < len(view) and most <= limit:
        magic, flags, block_descriptor = struct.unpack_from("<IBB", view, position)
        if magic != _LZ4_MAGIC:
            raise _corrupt_error("lz4", f"no frame begins with {magic:#010x}")
        block_bytes = 1 << (8 + 2 * (block_descriptor >> 4 & 0x07))
        # Content size (8 bytes, bit 3) and dictionary id (4 bytes, bit 0) are optional; the header's checksum is not.
        position += 7 + (flags & 0x08) + (flags & 0x01) * 4
        checksum_bytes = 4 if flags & 0x10 else 0
        while most <= limit:
            stored = _UINT32_LE.unpack_from(view, position)[0]
            position += 4
            if stored == 0:
                break
            size = stored & ~_LZ4_STORED_FLAG
            most += size if stored & _LZ4_STORED_FLAG else block_bytes
            position += size + checksum_bytes
        position += flags & 0x04  # the content's checksum: bit 2, 4 bytes
    return most


# ── zstd ──


def _compress_zstd(data: Bytes, level: int | None) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))


def _decompress_zstd(data: Bytes, limit: int) -> bytes:
    from cramjam import zstd

    return _unpack_into("zstd", zstd.decompress_into, data, _max_size("zstd", _zstd_max_size, data, limit), limit)


def _zstd_max_size(view: memoryview, limit: int) -> int:
    """Return the most bytes that these frames can decompress to. The walk ends once that is more than `limit`."""
    most = position = 0
    while position < len(view) and most <= limit:
        magic = _UINT32_LE.unpack_from(view, position)[0]
        position += 4
        if magic & _ZSTD_SKIPPABLE_MASK == _ZSTD_SKIPPABLE_MAGIC:
            position += 4 + _UINT32_LE.unpack_from(view, position)[0]
            continue
        if magic != _ZSTD_MAGIC:
            raise _corrupt_error("zstd", f"no frame begins with {magic:#010x}")
        descriptor = view[position]
        content_size, position = _zstd_content_size(view, position)
        frame_most = 0
        is_last = False
        while not is_last and frame_most <= limit:
            block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
            is_last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
            # 0: stored; 1: one byte, repeated; 2: compressed.
            frame_most += _ZSTD_BLOCK_BYTES if kind == 2 else size
            position += 3 + (1 if kind == 1 else size)
        position += descriptor & 0x04  # the checksum: bit 2, 4 bytes
        most += frame_most if content_size is None else min(frame_most, content_size)
    return most


def _zstd_content_size(view: memoryview, position: int) -> tuple[int | None, int]:
    """Return the content size that a frame declares, None if it declares none, and the position of its blocks. RFC
    8878, 3.1.1.1."""
    descriptor = view[position]
    is_single_segment = descriptor >> 5 & 1
    size_flag = descriptor >> 6
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 0x03]
    position += 1 + (0 if is_single_segment else 1) + dictionary_bytes
    size_bytes = (is_single_segment, 2, 4, 8)[size_flag]
    end = position + size_bytes
    if end > len(view):
        raise IndexError
    content_size = int.from_bytes(view[position:end], "little") + (256 if size_bytes == 2 else 0)
    return (content_size if size_bytes else None), end


# ── both frame formats ──


def _max_size(name: str, walk: Callable[[memoryview, int], int], data: Bytes, limit: int) -> int:
    try:
        return walk(memoryview(data), limit)
    except (IndexError, struct.error):
        raise _corrupt_error(name, "it ends early") from None


def _unpack_into(
    name: str, decompress_into: Callable[[Bytes, bytearray], int], data: Bytes, most: int, limit: int
) -> bytes:
    """Decompress into a buffer of fixed size. Its pages become real memory only as the codec writes them."""
    from cramjam import DecompressionError

    buffer = bytearray(min(most, limit))
    try:
        size = decompress_into(data, buffer)
    except DecompressionError as error:
        raise (_too_large_error(name, limit) if most > limit else _corrupt_error(name, error)) from None
    return bytes(memoryview(buffer)[:size])


_COMPRESSORS: dict[Codec, Callable[[Bytes, int | None], bytes]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[Codec, Callable[[Bytes, int], bytes]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
