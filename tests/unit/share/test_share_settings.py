"""The settings of share groups as read from the configuration."""

from __future__ import annotations

import pytest

from pessoa.broker.share.share_settings import ShareSettings
from pessoa.log.partition_log import ReadUpTo
from pessoa.share.acknowledgement import Limits


@pytest.mark.parametrize(
    ("offset_reset", "duration_ms"),
    [
        ("earliest", None),
        ("by_duration:PT1.5S", 1_500),
        ("by_duration:p1dt2h3m", 93_780_000),
        # Longer than there has been time: all that the log has.
        (f"by_duration:PT{'9' * 400}S", 1 << 62),
        (f"by_duration:P{'9' * 30}D", 1 << 62),
    ],
)
def test_share_auto_offset_reset_by_duration_is_parsed(offset_reset: str, duration_ms: int | None) -> None:
    assert ShareSettings(Limits(), ReadUpTo.HIGH_WATERMARK, offset_reset).reset_duration_ms == duration_ms
