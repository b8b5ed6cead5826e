"""What holds for a share group: its own settings within the broker's bounds, and the broker's defaults for the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.config_keys.group_keys import group_value
from pessoa.base.config_table import int_value
from pessoa.log.partition_log import ReadUpTo
from pessoa.metadata.image import ConfigResource
from pessoa.share.acknowledgement import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.base.config_table import Settings
    from pessoa.broker.services import BrokerServices

_BY_DURATION = "by_duration:"
# As `base.config_keys.group_keys` allows it: P1DT2H3M4.5S.
_DURATION = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]{0,9})?)S)?)?", re.IGNORECASE
)
_SECONDS = (86_400, 3_600, 60, 1)
# The rules for settings know no longest duration.
_LONGEST_MS = 1 << 62


class _Bounded(NamedTuple):
    """A group config, and the broker's keys for its default and its bounds."""

    name: str
    default: str
    least: str
    most: str


_DELIVERY_COUNT = _Bounded(
    "share.delivery.count.limit",
    "group.share.delivery.count.limit",
    "group.share.min.delivery.count.limit",
    "group.share.max.delivery.count.limit",
)
_RECORD_LOCKS = _Bounded(
    "share.partition.max.record.locks",
    "group.share.partition.max.record.locks",
    "group.share.min.partition.max.record.locks",
    "group.share.max.partition.max.record.locks",
)
_LOCK_DURATION = _Bounded(
    "share.record.lock.duration.ms",
    "group.share.record.lock.duration.ms",
    "group.share.min.record.lock.duration.ms",
    "group.share.max.record.lock.duration.ms",
)


class ShareSettings(NamedTuple):
    limits: Limits
    # How far members may read.
    up_to: ReadUpTo
    # Where the group begins: `earliest`, `latest` or `by_duration:` and a duration.
    offset_reset: str

    @property
    def reset_duration_ms(self) -> int | None:
        """How far back from now the group begins; None if it begins at the start or end of the log."""
        if not self.offset_reset.startswith(_BY_DURATION):
            return None
        found = _DURATION.fullmatch(self.offset_reset.removeprefix(_BY_DURATION))
        assert found is not None, f"{self.offset_reset} was accepted as a setting"
        seconds = sum(float(text or 0) * unit for text, unit in zip(found.groups(), _SECONDS, strict=True))
        return int(min(seconds * 1000, _LONGEST_MS))


class SettingsOfGroup:
    """Returns the settings of one group; they are computed again when a configuration has changed."""

    def __init__(self, broker: BrokerServices, group_id: str) -> None:
        self._broker = broker
        self._group_id = group_id
        self._configs = broker.image.configs
        self._config = broker.config
        self._settings = share_settings(broker, group_id)

    def __repr__(self) -> str:
        return f"<SettingsOfGroup {self._group_id}: {self._settings}>"

    def __call__(self) -> ShareSettings:
        broker = self._broker
        if broker.image.configs is not self._configs or broker.config is not self._config:
            self._configs, self._config = broker.image.configs, broker.config
            self._settings = share_settings(broker, self._group_id)
        return self._settings


def share_settings(broker: BrokerServices, group_id: str) -> ShareSettings:
    configs = broker.image.configs.of(ConfigResource.GROUP, group_id)
    config: Settings = broker.config
    is_committed = group_value("share.isolation.level", configs, config) == "read_committed"
    return ShareSettings(
        Limits(
            _value_within_bounds(_DELIVERY_COUNT, configs, config),
            _value_within_bounds(_RECORD_LOCKS, configs, config),
            _value_within_bounds(_LOCK_DURATION, configs, config),
            can_renew=group_value("share.renew.acknowledge.enable", configs, config) is True,
        ),
        ReadUpTo.LAST_STABLE_OFFSET if is_committed else ReadUpTo.HIGH_WATERMARK,
        str(group_value("share.auto.offset.reset", configs, config)),
    )


def _value_within_bounds(key: _Bounded, configs: Mapping[str, str], config: Settings) -> int:
    """Return the group's own value, or the broker's. A stored value outside of bounds that were narrowed later counts
    as the bound."""
    if key.name not in configs:
        return int_value(config, key.default)
    least, most = int_value(config, key.least), int_value(config, key.most)
    return min(max(int(configs[key.name]), least), most)
