"""The settings of the control centre: the keys of `control-center.properties`, read once.

`bootstrap.servers` and the settings of Kafka clients (security., sasl., ssl.) stand without a prefix. Where services
are is said by Confluent's keys: confluent.controlcenter.schema.registry.url, .connect.cluster, .ksql.url. A key with a
name in its middle (`…connect.local.cluster`) is taken as well.

Further clusters have a name: `confluent.controlcenter.kafka.<name>.bootstrap.servers`, and with the same beginning the
settings of their clients and `schema.registry.url`, `connect.cluster`, `ksql.url`, `pipelines.url`, `metrics.urls`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from pessoa.base.config_values import ConfigProblem, at_least, one_of
from pessoa.client.librdkafka import security_settings, serialiser_settings
from pessoa.client.registry_client import URL as REGISTRY_URL
from pessoa.control_center.accounts import ROLES
from pessoa.control_center.aws_signature import AwsKeys
from pessoa.control_center.glue_schemas import GlueSchemas
from pessoa.control_center.ldap_login import LdapSettings
from pessoa.control_center.limits import BadLimit, parse_limits
from pessoa.control_center.masking import BadMask, parse_masks
from pessoa.control_center.message_decoding import FORMATS
from pessoa.control_center.own_serdes import OwnSerdes, load_serdes
from pessoa.control_center.schema_files import schema_file_serdes
from pessoa.web.http_settings import HttpSettings, Listener, read_http_settings
from pessoa.web.settings import read_settings, setting

logger = logging.getLogger(__name__)
DEFAULT_PORT = 9021
_CLUSTER = re.compile(r"confluent\.controlcenter\.kafka\.([A-Za-z0-9_-]{1,40})\.(.+)")
_OF_A_CLUSTER = {
    "schema.registry.url": "confluent.controlcenter.schema.registry.url",
    "connect.cluster": "confluent.controlcenter.connect.cluster",
    "ksql.url": "confluent.controlcenter.ksql.url",
    "pipelines.url": "pessoa.control.center.pipelines.url",
    "metrics.urls": "pessoa.control.center.metrics.urls",
}
_KEYS = ("bootstrap.servers", *_OF_A_CLUSTER.values())
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
    ldap_url: str = setting("pessoa.control.center.ldap.url", "", "A directory whose users log in: ldaps://host.")
    ldap_user_dn: str = setting("pessoa.control.center.ldap.user.dn", "", "uid={name},ou=people,dc=example,dc=org")
    ldap_search_base: str = setting("pessoa.control.center.ldap.search.base", "", "Where users are searched instead.")
    ldap_search_attribute: str = setting("pessoa.control.center.ldap.search.attribute", "uid", "What has their name.")
    ldap_bind_dn: str = setting(
        "pessoa.control.center.ldap.bind.dn", "", "The user of the control centre that searches."
    )
    ldap_bind_password: str = setting("pessoa.control.center.ldap.bind.password", "", "The password of that user.")
    ldap_groups_base: str = setting("pessoa.control.center.ldap.groups.base", "", "Where the groups of users are.")
    ldap_groups_attribute: str = setting(
        "pessoa.control.center.ldap.groups.attribute", "member", "What names a group's members: member, memberUid, …"
    )
    ldap_admin_groups: tuple[str, ...] = setting(
        "pessoa.control.center.ldap.admin.groups", (), "Groups whose members are admins."
    )
    ldap_editor_groups: tuple[str, ...] = setting(
        "pessoa.control.center.ldap.editor.groups", (), "Groups whose members are editors."
    )
    proxy_user_header: str = setting(
        "pessoa.control.center.proxy.user.header", "", "The header in which a proxy names the user, such as X-User."
    )
    proxy_addresses: tuple[str, ...] = setting(
        "pessoa.control.center.proxy.addresses", ("127.0.0.1", "::1"), "The addresses of that proxy."
    )
    limits: str = setting("pessoa.control.center.limits", "", "Which resources users may touch: user: topic pattern; …")
    masks: str = setting("pessoa.control.center.masks", "", "What readers do not see: topics: value.field, …; …")
    serdes: tuple[str, ...] = setting(
        "pessoa.control.center.serdes", (), "Python files (….py) and modules whose SERDES decode messages."
    )
    schema_files: str = setting(
        "pessoa.control.center.schema.files", "", "Schemas of records without a frame: topics: file.avsc; …"
    )
    glue_region: str = setting(
        "pessoa.control.center.glue.region", "", "The AWS region whose Glue has schemas of records; empty: none."
    )
    glue_key_id: str = setting(
        "pessoa.control.center.glue.access.key.id", "", "The key that may ask Glue; empty: AWS_ACCESS_KEY_ID."
    )
    glue_secret: str = setting(
        "pessoa.control.center.glue.secret.access.key", "", "Its secret; empty: AWS_SECRET_ACCESS_KEY."
    )
    glue_endpoint: str = setting("pessoa.control.center.glue.endpoint", "", "Where Glue is, if not at amazonaws.com.")
    idle_ms: int = setting(
        "pessoa.control.center.session.idle.ms", 1_800_000, "When a session without use ends.", rule=at_least(1)
    )
    allowed_hosts: tuple[str, ...] = setting(
        "pessoa.control.center.hosts", (), "Names by which browsers reach the service, beside localhost."
    )
    home: str | None = setting(
        "pessoa.control.center.home", None, "The home of `pessoa up`, whose brokers may be hurt."
    )
    name: str = setting("pessoa.control.center.cluster.name", "main", "How the first cluster is called.")
    # By name; their configurations differ in what is of a cluster.
    further: Mapping[str, Config] = field(default_factory=dict)
    # What the files and modules of `serdes` have.
    own_serdes: OwnSerdes = field(default_factory=OwnSerdes)
    client: Mapping[str, str] = field(default_factory=dict)
    # As they are given: `registry_settings` makes them whole.
    registry_settings: Mapping[str, str] = field(default_factory=dict)


def registry_settings(config: Config) -> dict[str, str]:
    """Return the settings of every client of the schema registry: where it is, the login, and whom it is trusted by."""
    # One authority for all services, unless the registry has one of its own.
    store = {"schema.registry.ssl.truststore.location": config.http.authority} if config.http.authority else {}
    return {**store, **config.registry_settings, REGISTRY_URL: config.registry_url}


def ldap_settings(config: Config) -> LdapSettings | None:
    """Return the LDAP settings. Raises a `ConfigProblem`."""
    if not config.ldap_url:
        return None
    found = LdapSettings(
        config.ldap_url, config.ldap_user_dn, config.ldap_search_base, config.ldap_search_attribute,
        config.ldap_bind_dn, config.ldap_bind_password, config.ldap_groups_base, config.ldap_groups_attribute,
        config.ldap_admin_groups, config.ldap_editor_groups,
    )  # fmt: skip
    found.check()
    if config.http.takes_passwords:
        raise ConfigProblem(
            "pessoa.control.center.ldap.url", config.ldap_url,
            "passwords are already checked by pessoa.authentication.users.file or pessoa.authentication.kafka",
        )  # fmt: skip
    return found


def glue_schemas(config: Config, environment: Mapping[str, str]) -> GlueSchemas | None:
    """Return the client of AWS Glue's schemas, or None without a region. Keys that the settings lack are taken from
    the environment, under the names of Amazon's own tools. Raises a `ConfigProblem`."""
    if not config.glue_region:
        return None
    keys = AwsKeys(config.glue_key_id, config.glue_secret)
    if not config.glue_key_id:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        keys = AwsKeys(*(environment.get(name, "") for name in names))
    if not (keys.key_id and keys.secret):
        raise ConfigProblem(
            "pessoa.control.center.glue.region", config.glue_region,
            "it needs …glue.access.key.id and …glue.secret.access.key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )  # fmt: skip
    return GlueSchemas(config.glue_region, keys, config.glue_endpoint)


def from_properties(given: Mapping[str, str]) -> Config:
    """Return the settings of the control centre. Raises a `ConfigProblem`."""
    unprefixed = {_without_name(key): value for key, value in given.items()}
    config = read_settings(Config(), unprefixed)
    try:
        parse_masks(config.masks)
    except BadMask as wrong:
        raise ConfigProblem("pessoa.control.center.masks", config.masks, str(wrong)) from None
    try:
        parse_limits(config.limits)
    except BadLimit as wrong:
        raise ConfigProblem("pessoa.control.center.limits", config.limits, str(wrong)) from None
    http = read_http_settings(unprefixed, config.http.listener, realm="control-center")
    if config.oidc_authorization_url and not (config.oidc_token_url and config.oidc_client_id and http.keys_url):
        raise ConfigProblem(
            "pessoa.control.center.oidc.authorization.url", config.oidc_authorization_url,
            "it needs …oidc.token.url, …oidc.client.id and oauthbearer.jwks.endpoint.url as well",
        )  # fmt: skip
    serdes = load_serdes(config.serdes, FORMATS, schema_file_serdes(config.schema_files))
    own = serialiser_settings(given)
    whole = replace(config, http=http, client=_client(given), registry_settings=own, own_serdes=serdes)
    ldap_settings(whole)
    glue_schemas(whole, os.environ)
    for address in config.proxy_addresses:
        try:
            ip_address(address)
        except ValueError as wrong:
            raise ConfigProblem("pessoa.control.center.proxy.addresses", address, str(wrong)) from None
    further = {name: _cluster_config(whole, name, settings) for name, settings in _clusters(given).items()}
    if config.name in further:
        raise ConfigProblem(
            "pessoa.control.center.cluster.name", config.name, "a further cluster has this name as well"
        )
    return replace(whole, further=further)


def _client(given: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in security_settings(given).items() if not key.startswith("ssl.keystore")}


def _clusters(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the settings of each further cluster, by its name and without the key prefix."""
    found: dict[str, dict[str, str]] = {}
    for key, value in given.items():
        if match := _CLUSTER.fullmatch(key):
            found.setdefault(match[1], {})[match[2]] = value
    return found


def _cluster_config(first: Config, name: str, given: Mapping[str, str]) -> Config:
    if not given.get("bootstrap.servers"):
        key = f"confluent.controlcenter.kafka.{name}.bootstrap.servers"
        raise ConfigProblem(key, "", "a cluster needs the addresses of its brokers")
    none = dict.fromkeys(_OF_A_CLUSTER.values(), "")
    own = {_OF_A_CLUSTER.get(key, key): value for key, value in given.items()}
    config = read_settings(
        replace(first, metrics_urls=()), {**none, **{key: value for key, value in own.items() if key in _KEYS}}
    )
    return replace(config, name=name, home=None, client=_client(given), registry_settings=serialiser_settings(given))


def _without_name(key: str) -> str:
    match = _NAMED.fullmatch(key)
    return f"confluent.controlcenter.{match[1]}.{match[2]}" if match else key
