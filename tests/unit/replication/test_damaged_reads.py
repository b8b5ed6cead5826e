"""A log whose disk has changed or lost data: its partition reports the damage, and other partitions are served."""

from __future__ import annotations

from random import Random

import pytest

from pessoa.log.files import DiskError
from pessoa.log.readable_log import Fetched
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode
from tests.support.replication_stage import Stage
from tests.unit.replication.test_fetch_handler import ask, request


class _Unreadable:
    """A slice of a file whose reads fail."""

    size = 100

    def read(self) -> bytes:
        raise DiskError("read", "/data/orders-0/00000000000000000000.log", OSError(5, "Input/output error"))


def test_a_fetch_reports_damage_for_the_damaged_partition_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        node = stage.nodes[1]
        assert node.partition is not None

        def damaged(*_: object, **__: object) -> Fetched:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "no batch begins here")

        monkeypatch.setattr(type(node.partition.log), "read", damaged)
        assert ask(node, request()).error_code == ErrorCode.CORRUPT_MESSAGE
        assert not node.partition.is_offline

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_a_disk_error_while_a_fetch_response_is_built_takes_the_log_directory_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        node = stage.nodes[1]
        assert node.partition is not None
        monkeypatch.setattr(type(node.partition.log), "read", lambda *_, **__: Fetched(_Unreadable(), ()))  # type: ignore[arg-type]
        assert ask(node, request()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.partition.is_offline

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))
