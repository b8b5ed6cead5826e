"""A broker does not start with a security setting that it cannot apply, and refuses to set one while it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from pessoa.base.config_values import ConfigProblem
from pessoa.broker.config import BrokerConfig, single_node_properties
from pessoa.testing import Broker

TIMEOUT_S = 60
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
TLS = {
    "listeners": "SSL://127.0.0.1:0",
    "inter.broker.listener.name": "SSL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/nowhere/broker.pem",
}


def start(folder: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a broker process that must end by itself; return its result."""
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), **settings}
    words = [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]
    return subprocess.run(
        [sys.executable, "-m", "pessoa", "broker", *words], capture_output=True, text=True, timeout=TIMEOUT_S
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        pytest.param(
            {"super.users": "User:admin", "allow.everyone.if.no.acl.found": "false"},
            "super.users=User:admin: no authorizer is enforced, so every client could do everything; "
            "remove it (and allow.everyone.if.no.acl.found), and let only trusted clients reach the listeners",
            id="super users without an authorizer",
        ),
        pytest.param(
            {"authorizer.class.name": "com.example.Authorizer"},
            f"authorizer.class.name=com.example.Authorizer: no class of Java is asked; write {STANDARD}, "
            "whose rules are enforced here, or remove it",
            id="another authorizer",
        ),
        pytest.param(
            {"authorizer.class.name": STANDARD, "super.users": "User:admin;bob"},
            "super.users=User:admin;bob: 'bob' is not a type and a name with a colon between, such as User:alice",
            id="super users without a type",
        ),
        pytest.param(TLS, "ssl.keystore.location=/nowhere/broker.pem: the file cannot be read", id="TLS"),
    ],
)
def test_a_broker_with_an_unenforced_security_setting_exits_with_one_error_line_and_writes_nothing(
    tmp_path: Path, settings: dict[str, str], sentence: str
) -> None:
    folder = tmp_path / "data"
    ended = start(folder, settings)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert sentence in line
    assert ended.stdout == ""
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", "com.example.Authorizer"),
        ("super.users", "User:admin"),
        ("allow.everyone.if.no.acl.found", "false"),
        ("principal.builder.class", "com.example.Principals"),
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.ssl.client.auth", "requested"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", f'{PLAIN} required user_ana="x";'),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("sasl.mechanism.controller.protocol", "PLAIN"),
        ("create.topic.policy.class.name", "com.example.Names"),
        ("alter.config.policy.class.name", "com.example.Values"),
        ("client.quota.callback.class", "com.example.Quotas"),
    ],
)
def test_each_unenforced_security_setting_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigProblem) as refused:
        BrokerConfig(single_node_properties({name: text}, tmp_path))
    assert refused.value.key == name
    # A password must not come into a log.
    assert "user_ana" not in str(refused.value)


@pytest.mark.parametrize("name", [STANDARD, "pessoa.security.authorizer.Authorizer"])
def test_a_supported_authorizer_is_accepted_with_its_settings(tmp_path: Path, name: str) -> None:
    settings = {"super.users": "User:a; User:b", "allow.everyone.if.no.acl.found": "false"}
    BrokerConfig(single_node_properties({"authorizer.class.name": name, **settings}, tmp_path))


def test_allow_everyone_if_no_acl_found_must_be_true_or_false(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "perhaps"}
    with pytest.raises(ConfigProblem, match="true or false"):
        BrokerConfig(single_node_properties(settings, tmp_path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", ""),
        ("super.users", ""),
        ("allow.everyone.if.no.acl.found", "true"),
        ("ssl.client.auth", "none"),
        ("security.inter.broker.protocol", "PLAINTEXT"),
        # What it speaks decides, and no listener has that name.
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL"),
        # Apache Kafka takes no notice of key stores either where all listeners are in plain text.
        ("ssl.keystore.location", "/etc/broker.pem"),
    ],
)
def test_a_security_setting_that_restricts_nothing_is_accepted(tmp_path: Path, name: str, text: str) -> None:
    BrokerConfig(single_node_properties({name: text}, tmp_path))


def test_an_unenforced_security_setting_cannot_be_set_while_a_broker_runs() -> None:
    tried = [
        ("authorizer.class.name", STANDARD),
        ("super.users", "User:admin"),
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
        ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", f'{PLAIN} required user_ana="x";'),
        ("principal.builder.class", "com.example.Principals"),
        ("listener.security.protocol.map", "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"),
        ("listeners", "SSL://127.0.0.1:19092,PLAINTEXT://127.0.0.1:19093"),
    ]
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        taken = []
        for name, text in tried:
            entry = ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
            (done,) = admin.incremental_alter_configs([resource]).values()
            try:
                done.result(TIMEOUT_S)
            except KafkaException:
                continue
            taken.append(name)
        assert taken == []
