"""What the controller knows of configurations (`controller.decision.ControllerConfig`), from the tables of keys.

The controller checks what it writes, and a broker's own configuration says what the defaults and bounds are. In
Kafka, too, it is the active controller's file that decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pessoa.base.config_keys.broker_keys import BROKER_CONFIGS, synonyms, validate_broker_configs
from pessoa.base.config_keys.client_metrics_keys import CLIENT_METRICS_CONFIGS, validate_client_metrics_configs
from pessoa.base.config_keys.group_keys import GROUP_CONFIGS, group_value, validate_group_configs
from pessoa.base.config_table import LIST, Scope
from pessoa.base.config_values import ConfigProblem, render
from pessoa.broker.config import BrokerConfig
from pessoa.broker.config_checks import check_at_run_time
from pessoa.broker.config_entries import ConfigSource, topic_entries
from pessoa.broker.protection import unenforced_change
from pessoa.log.topic_config import BROKER_KEYS, TOPIC_CONFIGS, default_value, validate_topic_configs
from pessoa.metadata.image import ConfigResource
from pessoa.wire.api.create_topics import CreatableTopicConfigs
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.metadata.image import MetadataImage

_TABLES = {
    ConfigResource.TOPIC: TOPIC_CONFIGS,
    ConfigResource.BROKER: BROKER_CONFIGS,
    ConfigResource.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
    ConfigResource.GROUP: GROUP_CONFIGS,
}
_ALL_BROKERS = ""


class ConfigRules:
    """The checks of dynamic configs on one node; `config` is that of its file."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        # What was set while the node runs, and the configuration with it.
        self._dynamic: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        self._current = config

    def __repr__(self) -> str:
        return f"<ConfigRules of {self._config!r}>"

    def broker_value(self, name: str) -> str:
        return render(self._config.value(name)) or ""

    def problem(
        self, resource_type: int, configs: Mapping[str, str], resource_name: str | None = None
    ) -> tuple[ErrorCode, str] | None:
        found = self._problem(resource_type, configs, resource_name)
        if found is None:
            return None
        return ErrorCode.INVALID_REQUEST if found.is_invalid_request else ErrorCode.INVALID_CONFIG, str(found)

    def _problem(
        self, resource_type: int, configs: Mapping[str, str], resource_name: str | None
    ) -> ConfigProblem | None:
        match resource_type:
            case ConfigResource.TOPIC:
                return validate_topic_configs(configs, self._config)
            case ConfigResource.BROKER:
                is_default = resource_name == _ALL_BROKERS
                problem = validate_broker_configs(configs, is_default=is_default) or unenforced_change(
                    configs, self._config
                )
                return problem or self._contradiction(configs)
            case ConfigResource.GROUP:
                return validate_group_configs(configs, self._config)
            case _:
                return validate_client_metrics_configs(configs)

    def _contradiction(self, configs: Mapping[str, str]) -> ConfigProblem | None:
        """Return what is wrong with the settings of a broker taken together; None if nothing is. Listeners and the like
        differ from node to node, so each node checks its own."""
        shared = {
            name: text
            for name, text in configs.items()
            if (key := BROKER_CONFIGS.get(name)) is not None and key.scope is Scope.CLUSTER_WIDE
        }
        try:
            check_at_run_time(BrokerConfig(self._config.static, shared))
        except ConfigProblem as problem:
            return ConfigProblem(problem.key, problem.value, problem.why, is_invalid_request=True)
        return None

    def is_list(self, resource_type: int, name: str) -> bool:
        key = _TABLES[ConfigResource(resource_type)].get(name)
        return key is not None and key.type is LIST

    def default(self, resource_type: int, name: str) -> str:
        match resource_type:
            case ConfigResource.TOPIC:
                value = default_value(name, self._config)
            case ConfigResource.BROKER:
                value = self._config.value(name)
            case ConfigResource.GROUP:
                value = group_value(name, {}, self._config)
            case _:
                value = CLIENT_METRICS_CONFIGS[name].default
        return render(value) or ""

    def topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        config = self._with_image(image)
        return [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=_source(entry.name, overrides, config),
                is_sensitive=entry.is_sensitive,
            )
            for entry in topic_entries(overrides, config)
        ]

    def _with_image(self, image: MetadataImage) -> BrokerConfig:
        """Return the node's configuration with the dynamic settings of the image; computed again only if these have
        changed."""
        dynamic = (
            image.configs.of(ConfigResource.BROKER, _ALL_BROKERS),
            image.configs.of(ConfigResource.BROKER, str(self._config.node_id)),
        )
        if dynamic != self._dynamic:
            self._dynamic, self._current = dynamic, self._config.with_overrides(*dynamic)
        return self._current


def _source(name: str, overrides: Mapping[str, str], config: BrokerConfig) -> ConfigSource:
    """Return the source of a value for the CreateTopics response, which, unlike DescribeConfigs, also counts a
    retention in hours."""
    if name in overrides:
        return ConfigSource.TOPIC
    names = synonyms(BROKER_KEYS[name]) if name in BROKER_KEYS else ()
    for settings, source in (
        (config.broker_overrides, ConfigSource.BROKER),
        (config.cluster_defaults, ConfigSource.ALL_BROKERS),
        (config.static, ConfigSource.STATIC),
    ):
        if any(one in settings for one in names):
            return source
    return ConfigSource.DEFAULT
