"""The settings of the control centre: the keys of `control-center.properties`, read once.

`bootstrap.servers` and the settings of Kafka clients (security., sasl., ssl.) stand without a prefix. Where services
are is said by Confluent's keys: confluent.controlcenter.schema.registry.url, .connect.cluster, .ksql.url. A key with a
name in its middle (`…connect.local.cluster`) is taken as well.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pessoa.base.config_values import ConfigProblem, at_least, one_of
from pessoa.client.librdkafka import security_settings
from pessoa.control_center.accounts import ROLES
from pessoa.control_center.masking import BadMask, parse_masks
from pessoa.web.http_settings import HttpSettings, Listener, read_http_settings
from pessoa.web.settings import read_settings, setting

logger = logging.getLogger(__name__)
DEFAULT_PORT = 9021
_NAMED = re.compile(r"confluent\.controlcenter\.(connect|ksql)\.[^.]+\.(cluster|url)")


@dataclass(frozen=True, slots=True)
class Config:
    http: HttpSettings = HttpSettings(Listener("http", "127.0.0.1", DEFAULT_PORT))  # noqa: RUF009 - frozen
    bootstrap_servers: str = setting("bootstrap.servers", "localhost:9092", "Where Kafka is: host:port,…")
    registry_url: str = setting(
        "confluent.controlcenter.schema.registry.url", "http://localhost:8081", "The schema registry; empty: none."
    )
    connect_url: str = setting("confluent.controlcenter.connect.cluster", "http://localhost:8083", "Connect.")
    ksql_url: str = setting("confluent.controlcenter.ksql.url", "http://localhost:8088", "The ksql server.")
    pipelines_url: str = setting("pessoa.control.center.pipelines.url", "http://localhost:8084", "The pipelines API.")
    metrics_urls: tuple[str, ...] = setting(
        "pessoa.control.center.metrics.urls", (), "/metrics of brokers, as id=http://host:port; none: found by asking."
    )
    data_dir: str | None = setting(
        "pessoa.control.center.data.dir", None, "Where favourites, filters, alerts are kept."
    )
    role: str = setting(
        "pessoa.control.center.role", "admin", "The role of users that have none of their own.", rule=one_of(*ROLES)
    )
    admins: tuple[str, ...] = setting("pessoa.control.center.admins", (), "Users who are admins, by name.")
    editors: tuple[str, ...] = setting("pessoa.control.center.editors", (), "Users who are editors, by name.")
    oidc_authorization_url: str = setting("pessoa.control.center.oidc.authorization.url", "", "Where users log in.")
    oidc_token_url: str = setting("pessoa.control.center.oidc.token.url", "", "Where the code becomes a token.")
    oidc_client_id: str = setting("pessoa.control.center.oidc.client.id", "", "Our name at the provider.")
    oidc_client_secret: str = setting("pessoa.control.center.oidc.client.secret", "", "Our password there.")
    masks: str = setting("pessoa.control.center.masks", "", "What readers do not see: topics: value.field, …; …")
    idle_ms: int = setting(
        "pessoa.control.center.session.idle.ms", 1_800_000, "When a session without use ends.", rule=at_least(1)
    )
    allowed_hosts: tuple[str, ...] = setting(
        "pessoa.control.center.hosts", (), "Names by which browsers reach the service, beside localhost."
    )
    home: str | None = setting(
        "pessoa.control.center.home", None, "The home of `pessoa up`, whose brokers may be hurt."
    )
    client: Mapping[str, str] = field(default_factory=dict)
    registry_settings: Mapping[str, str] = field(default_factory=dict)


def from_properties(given: Mapping[str, str]) -> Config:
    """Raises a `ConfigProblem`."""
    plain = {_without_name(key): value for key, value in given.items()}
    config = read_settings(Config(), plain)
    try:
        parse_masks(config.masks)
    except BadMask as wrong:
        raise ConfigProblem("pessoa.control.center.masks", config.masks, str(wrong)) from None
    http = read_http_settings(plain, config.http.listener, realm="control-center")
    if config.oidc_authorization_url and not (config.oidc_token_url and config.oidc_client_id and http.keys_url):
        raise ConfigProblem(
            "pessoa.control.center.oidc.authorization.url", config.oidc_authorization_url,
            "it needs …oidc.token.url, …oidc.client.id and oauthbearer.jwks.endpoint.url as well",
        )  # fmt: skip
    registry = {key: value for key, value in given.items() if key.startswith(("schema.registry.", "basic.auth."))}
    client = {key: value for key, value in security_settings(given).items() if not key.startswith("ssl.keystore")}
    return replace(config, http=http, client=client, registry_settings=registry)


def _without_name(key: str) -> str:
    match = _NAMED.fullmatch(key)
    return f"confluent.controlcenter.{match[1]}.{match[2]}" if match else key
