"""The codecs: framing byte by byte, damaged data, and decompression bombs."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys

import cramjam
import pytest

from pessoa.records.compression import Codec, compress, decompress
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"All the world's a stage, and all the men and women merely players. " * 3_000
NOISE = bytes(range(256)) * 3 + bytes((i * 7919 + i * i) % 251 for i in range(70_000))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, NOISE, bytes(1 << 20)], ids=["empty", "one", "text", "noise", "zeros"]
)
def test_compressed_data_is_decompressed_to_the_original(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-7, 1, 19))]
)
def test_data_compressed_at_every_level_is_decompressed_to_the_original(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT


def test_snappy_is_written_in_the_framing_of_java_with_blocks_of_32_kib() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    blocks = []
    position = 16
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert b"".join(blocks) == TEXT
    assert {len(block) for block in blocks[:-1]} == {32 * 1024}


def test_snappy_without_a_framing_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_lz4_is_written_as_independent_blocks_of_64_kib_without_checksums() -> None:
    packed = compress(Codec.LZ4, NOISE)
    assert packed[:7] == bytes.fromhex("04224d18604082")
    assert packed[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(packed)) == NOISE


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("has_checksum", [False, True])
def test_lz4_frames_of_other_writers_are_read(is_linked: bool, has_checksum: bool) -> None:
    packer = cramjam.lz4.Compressor(level=3, content_checksum=has_checksum, block_linked=is_linked)
    packer.compress(TEXT)
    assert decompress(Codec.LZ4, bytes(packer.finish())) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_several_concatenated_frames_are_decompressed_as_one(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b"one, ") + compress(codec, TEXT)) == b"one, " + TEXT


def test_a_skippable_zstd_frame_is_skipped() -> None:
    skippable = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"
    assert decompress(Codec.ZSTD, skippable + compress(Codec.ZSTD, TEXT)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_data_truncated_anywhere_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT[:500])
    for size in range(len(packed)):
        # An empty framing is a whole one; every other cut loses something.
        if codec is Codec.SNAPPY and size == 16:
            continue
        if codec in (Codec.LZ4, Codec.ZSTD) and size == 0:
            continue
        with pytest.raises(InvalidBatch) as refusal:
            decompress(codec, packed[:size])
        assert refusal.value.error is ErrorCode.INVALID_RECORD, size


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_other_bytes_after_the_compressed_data_are_refused(codec: Codec) -> None:
    with pytest.raises(InvalidBatch) as refusal:
        decompress(codec, compress(codec, TEXT) + b"something else")
    assert refusal.value.error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 17, 2**31 - 1])
def test_a_snappy_block_with_an_impossible_size_is_refused(size: int) -> None:
    packed = compress(Codec.SNAPPY, b"hello hello hello")
    with pytest.raises(InvalidBatch) as refusal:
        decompress(Codec.SNAPPY, packed[:16] + struct.pack(">i", size) + packed[20:])
    assert refusal.value.error is ErrorCode.INVALID_RECORD


def test_a_snappy_block_that_announces_four_gigabytes_is_too_large() -> None:
    with pytest.raises(InvalidBatch) as refusal:
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f")
    assert refusal.value.error is ErrorCode.MESSAGE_TOO_LARGE


def test_no_memory_is_allocated_for_the_announced_size_of_a_zstd_frame() -> None:
    # One segment, content size 2^40, and a single stored block of three bytes.
    frame = bytes.fromhex("28b52ffd e0") + struct.pack("<Q", 1 << 40) + (1 | 3 << 3).to_bytes(3, "little") + b"abc"
    with pytest.raises(InvalidBatch) as refusal:
        decompress(Codec.ZSTD, frame)
    assert refusal.value.error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_decompressing_to_exactly_the_limit_is_allowed_and_one_byte_more_is_not(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, limit=len(TEXT)) == TEXT
    with pytest.raises(InvalidBatch) as refusal:
        decompress(codec, packed, limit=len(TEXT) - 1)
    assert refusal.value.error is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_only_empty_data_can_be_decompressed_with_a_limit_of_zero(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b""), limit=0) == b""
    with pytest.raises(InvalidBatch):
        decompress(codec, compress(codec, b"x"), limit=0)


BOMB = """
import pathlib, resource, sys
from pessoa.records.compression import Codec, decompress
from pessoa.records.invalid_batch import InvalidBatch

def peak_mib():
    # On Linux ru_maxrss also counts what the parent had when it forked, which would hide any growth below that.
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 << 20)

codec = Codec(int(sys.argv[1]))
bomb = sys.stdin.buffer.read()
decompress(codec, bytes.fromhex(sys.argv[2]))  # so that the codec is loaded before memory is counted
before = peak_mib()
try:
    decompress(codec, bomb, limit=8 << 20)
except InvalidBatch as refusal:
    after = peak_mib()
    ballast = b"x" * (100 << 20)
    print(refusal.error.name, after - before, peak_mib() - after)
"""


def one_gibibyte_of_zeros(codec: Codec) -> bytes:
    """Return a GiB of zeros as `compress` would compress it, from repeated parts where the framing allows that."""
    piece = bytes(1 << 20)
    if codec is Codec.GZIP:
        return gzip.compress(bytes(64 << 20), 1) * 16
    if codec is Codec.SNAPPY:
        packed = compress(codec, piece)
        return packed[:16] + packed[16:] * 1024
    if codec is Codec.LZ4:
        packed = compress(codec, piece)
        return packed[:7] + packed[7:-4] * 1024 + packed[-4:]
    # Blocks of one repeated byte: four bytes unpack to 128 KiB, the worst that Zstandard can do.
    block = 0 << 0 | 1 << 1 | (128 * 1024) << 3
    last = block | 1
    return (
        bytes.fromhex("28b52ffd 00 58")
        + (block.to_bytes(3, "little") + b"\0") * 8191
        + last.to_bytes(3, "little")
        + b"\0"
    )


@pytest.mark.parametrize("codec", CODECS)
def test_a_gibibyte_of_zeros_is_refused_without_allocating_it(codec: Codec) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(int(codec)), compress(codec, b"warm").hex()],
        input=one_gibibyte_of_zeros(codec),
        capture_output=True,
        check=True,
        timeout=60,
    )
    error, grown_mib, grown_by_ballast_mib = done.stdout.split()
    assert error == b"MESSAGE_TOO_LARGE"
    assert int(grown_mib) <= 32
    # The measure sees memory: 100 MiB that are used on purpose show.
    assert int(grown_by_ballast_mib) >= 70


def test_the_zstd_bomb_decompresses_to_a_gibibyte() -> None:
    bomb = one_gibibyte_of_zeros(Codec.ZSTD)
    assert len(bomb) < 33_000
    assert decompress(Codec.ZSTD, bomb[: 6 + 4 * 7] + bomb[-4:]) == bytes(1 << 20)
