"""What the controller asks about configurations, answered from the broker's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.config_keys.broker import BROKER_CONFIGS, find, validate_broker_configs
from pessoa.base.config_keys.client_metrics import CLIENT_METRICS_CONFIGS, validate_client_metrics_configs
from pessoa.base.config_keys.group import GROUP_CONFIGS, validate_group_configs
from pessoa.base.config_values import ConfigType, render
from pessoa.log.topic_config import TOPIC_CONFIGS, default_value, validate_topic_configs
from pessoa.metadata.image import ConfigResource
from pessoa.wire.api.create_topics import CreatableTopicConfigs
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pessoa.base.config_table import ConfigKey
    from pessoa.base.config_values import ConfigProblem
    from pessoa.broker.config import BrokerConfig
    from pessoa.metadata.image import MetadataImage

# Where a value comes from, as DescribeConfigs and CreateTopics number it.
_TOPIC_SOURCE = 1
_DEFAULT_SOURCE = 5


class ControllerSettings:
    """`ControllerConfig` of the controller on this node."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def broker_value(self, name: str) -> str:
        return render(self._config.value(name)) or ""

    def problem(self, resource_type: int, configs: Mapping[str, str]) -> tuple[ErrorCode, str] | None:
        found = self._problem(resource_type, configs)
        if found is None:
            return None
        return (ErrorCode.INVALID_REQUEST if found.is_invalid_request else ErrorCode.INVALID_CONFIG), str(found)

    def _problem(self, resource_type: int, configs: Mapping[str, str]) -> ConfigProblem | None:
        if resource_type == ConfigResource.TOPIC:
            return validate_topic_configs(configs, self._config)
        if resource_type == ConfigResource.BROKER:
            return validate_broker_configs(configs)
        if resource_type == ConfigResource.GROUP:
            return validate_group_configs(configs, self._config)
        if resource_type == ConfigResource.CLIENT_METRICS:
            return validate_client_metrics_configs(configs)
        return None

    def is_list(self, resource_type: int, name: str) -> bool:
        key = _key(resource_type, name)
        return key is not None and key.type is ConfigType.LIST

    def default(self, resource_type: int, name: str) -> str:
        if resource_type == ConfigResource.TOPIC and name in TOPIC_CONFIGS:
            return render(default_value(name, self._config)) or ""
        key = _key(resource_type, name)
        return (render(key.default) or "") if key is not None else ""

    def topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=key.name,
                value=overrides.get(key.name, render(default_value(key.name, self._config))),
                read_only=False,
                config_source=_TOPIC_SOURCE if key.name in overrides else _DEFAULT_SOURCE,
                is_sensitive=key.is_sensitive,
            )
            for key in TOPIC_CONFIGS
            if not key.is_internal
        ]


def _key(resource_type: int, name: str) -> ConfigKey | None:
    if resource_type == ConfigResource.TOPIC:
        return TOPIC_CONFIGS.get(name)
    if resource_type == ConfigResource.BROKER:
        return BROKER_CONFIGS.get(name) or find(name)
    if resource_type == ConfigResource.GROUP:
        return GROUP_CONFIGS.get(name)
    if resource_type == ConfigResource.CLIENT_METRICS:
        return CLIENT_METRICS_CONFIGS.get(name)
    return None
