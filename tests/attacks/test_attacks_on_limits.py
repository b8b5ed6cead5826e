"""Attacks 21, 23 and 25: forged log lines, rotating client ids, and small requests that need much memory."""

from __future__ import annotations

import json
import struct
import urllib.request
import zlib

import cramjam
import pytest

from pessoa.records import checksum
from pessoa.records.batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE, LOG_OVERHEAD
from pessoa.records.compression import Codec
from pessoa.wire.api import alter_client_quotas, list_groups
from pessoa.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.api.produce import ProduceResponse
from pessoa.wire.errors import ErrorCode
from tests.attacks.attack_stage import (
    ADMIN,
    COMPACTED,
    LOGIN,
    MALLORY,
    MIB,
    MINE,
    PASSWORDS,
    AttackStage,
    raw_answer,
)  # fmt: skip
from tests.attacks.attack_wires import log_in
from tests.support.batches import plain
from tests.support.clients import until
from tests.support.crash_wire import PRODUCE_VERSION, Wire, now_ms, produce, produce_request
from tests.support.sasl import authenticate, shake_hands

# A name with a line break, an escape sequence, quotes, a right-to-left mark, and the end of a metric's label.
FORGED = 'x\n{"forged": true}\r\x1b[2J"\'\\\u202e} 1\nforged_total 7 #'
ROTATED = 2_000
BROKER = 4


def test_attack_21_client_names_forge_neither_log_lines_nor_metric_labels(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    with stage.attack(21, request, max_mib=16):
        with stage.plain(LOGIN) as wire:
            shake_hands(wire, "PLAIN")
            assert authenticate(wire, f"\0{FORGED}\0wrong".encode()).error_code
        with Wire(stage.ports[LOGIN], client_id=FORGED) as wire:
            log_in(wire, MALLORY)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=FORGED)], allow_auto_topic_creation=True)
            wire.ask(asked, MetadataResponse, 12)
            keys = FindCoordinatorRequest(key_type=0, coordinator_keys=[FORGED])
            wire.ask(keys, FindCoordinatorResponse, 4)
            produce(wire, FORGED, plain(timestamp=now_ms()))
        # The log lines of the attack are written when that of a later request is.
        with Wire(stage.ports[LOGIN], client_id="the-end-of-attack-21") as wire:
            log_in(wire, MALLORY)
            until(
                lambda: (
                    raw_answer(wire, list_groups.ListGroupsRequest(), 4) and (stage.logs / "access.log").read_text()
                ),
                lambda text: "the-end-of-attack-21" in text,
                "the access log has the end",
            )
        for path in stage.logs.iterdir():
            for line in path.read_text(encoding="utf-8").splitlines():
                assert isinstance(json.loads(line), dict), (path, line)
                assert "forged" not in json.loads(line), (path, line)
                assert line.isprintable(), (path, line)
        with urllib.request.urlopen(f"http://127.0.0.1:{stage.metrics_port}/metrics", timeout=60) as page:
            text = page.read().decode()
        assert "\nforged_total" not in text
        assert "\x1b" not in text
        assert "\x1b" not in stage.process.said


def test_attack_23_a_user_that_rotates_client_ids_keeps_to_the_quota_of_the_user(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    def limit(admin: Wire, *, remove: bool) -> None:
        entity = alter_client_quotas.EntityData(entity_type="user", entity_name=MALLORY.name)
        op = alter_client_quotas.OpData(key="producer_byte_rate", value=1_000.0, remove=remove)
        asked = alter_client_quotas.AlterClientQuotasRequest(
            entries=[alter_client_quotas.EntryData(entity=[entity], ops=[op])], validate_only=False
        )
        answer = admin.ask(asked, alter_client_quotas.AlterClientQuotasResponse, 1)
        assert answer.entries[0].error_code == ErrorCode.NONE

    with stage.as_user(ADMIN) as admin, stage.attack(23, request, max_mib=16):
        limit(admin, remove=False)
        try:
            throttled = [_produced_as(stage, f"rotated-{number}") for number in range(60)]
        finally:
            limit(admin, remove=True)
        # The first 60 KB use up the quota of 60 seconds, and the others come within that time on any machine.
        assert min(throttled[1:]) > 10_000, throttled
        # No quota is by client id, so the broker keeps none of these names.
        with stage.as_user(MALLORY, LOGIN) as wire:
            for number in range(ROTATED):
                wire._client_id = f"rotated-{number}-{'x' * 500}"
                wire.ask(MetadataRequest(topics=[]), MetadataResponse, 12)


def _produced_as(stage: AttackStage, client_id: str) -> int:
    """Return the throttle time of producing 60 KB on a new connection, because the connection is muted afterwards."""
    with Wire(stage.ports[LOGIN], client_id=client_id) as wire:
        log_in(wire, MALLORY)
        batch = plain(timestamp=now_ms(), size=60_000)
        return int(wire.ask(produce_request(MINE, batch), ProduceResponse, PRODUCE_VERSION).throttle_time_ms)


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return (packer.compress(bytes(8 * MIB)) + packer.flush()) * 40


def lz4_bomb() -> bytes:
    block = bytes(cramjam.lz4.compress_block(bytes(64 * 1024), store_size=False))
    header = struct.pack("<I", 0x184D2204) + b"\x60\x40\x82"
    return header + (struct.pack("<I", len(block)) + block) * 3_000 + bytes(4)


def snappy_bomb() -> bytes:
    """Return a raw snappy block whose header announces four gigabytes."""
    return b"\xff\xff\xff\xff\x0f" + bytes(cramjam.snappy.compress_raw(bytes(1000)))[2:]


def zstd_bomb() -> bytes:
    return bytes(cramjam.zstd.compress(bytes(8 * MIB))) * 40


def batch_around(payload: bytes, codec: int) -> bytes:
    batch = bytearray(plain(timestamp=now_ms())[:HEADER_SIZE]) + payload
    struct.pack_into(">i", batch, 8, len(batch) - LOG_OVERHEAD)
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, codec)
    struct.pack_into(">I", batch, CRC_POSITION, checksum.crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return bytes(batch)


def test_attack_25_compressed_batches_are_not_decompressed_without_bound(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    bombs = {Codec.GZIP: gzip_bomb(), Codec.SNAPPY: snappy_bomb(), Codec.LZ4: lz4_bomb(), Codec.ZSTD: zstd_bomb()}
    with stage.attack(25, request, max_mib=300), stage.as_user(MALLORY) as wire:
        for codec, bomb in bombs.items():
            for _ in range(3):
                answer = produce(wire, COMPACTED, batch_around(bomb, codec))
                assert answer.error_code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD), answer


def test_attack_25_describe_configs_returns_no_secret(stage: AttackStage, request: pytest.FixtureRequest) -> None:
    """The comparison of passwords in constant time is tested with the SASL mechanisms."""
    asked = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)],
        include_synonyms=True,
        include_documentation=True,
    )
    with stage.attack(25, request, max_mib=16, what="settings"), stage.as_user(ADMIN) as admin:
        answer = admin.ask(asked, DescribeConfigsResponse, 4).results[0]
        assert answer.error_code == ErrorCode.NONE
        secrets = [one for one in answer.configs if one.is_sensitive]
        assert [one.name for one in secrets if "jaas" in one.name]
        assert {one.value for one in secrets} == {None}
        raw = raw_answer(admin, asked, 4)
        assert not [one for one in PASSWORDS if one.encode() in raw]
    with stage.as_user(MALLORY) as wire:
        answer = wire.ask(asked, DescribeConfigsResponse, 4).results[0]
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not answer.configs
