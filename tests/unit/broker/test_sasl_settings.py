"""The configuration of SASL, and values that are refused before a broker starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.base.config_values import ConfigProblem
from pessoa.broker.config import BrokerConfig, single_node_properties
from pessoa.broker.protection import unenforced_change
from pessoa.broker.sasl_settings import (
    controller_credentials,
    enabled_mechanisms,
    inter_broker_credentials,
    max_session_ms,
)

LOGIN = "org.apache.kafka.common.security"
PLAIN = f'{LOGIN}.plain.PlainLoginModule required username="node" password="hunter2" user_node="hunter2";'
SCRAM = f"{LOGIN}.scram.ScramLoginModule required;"
JAAS = "listener.name.clients.plain.sasl.jaas.config"
SASL = {
    "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    JAAS: PLAIN,
}
OF_ANOTHER = "listener.name.plaintext.plain.sasl.jaas.config"
CALLBACK = "listener.name.clients.plain.sasl.server.callback.handler.class"
AMONG_BROKERS = {
    "inter.broker.listener.name": "CLIENTS",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


def config(changes: dict[str, str], without: str = "") -> BrokerConfig:
    settings = {name: text for name, text in {**SASL, **changes}.items() if name != without}
    return BrokerConfig(single_node_properties(settings, Path("/nowhere")))


def test_a_sasl_listener_is_accepted_with_its_users() -> None:
    found = config({})
    assert enabled_mechanisms(found, "CLIENTS") == ("PLAIN", "SCRAM-SHA-512")
    assert inter_broker_credentials(found) is controller_credentials(found) is None


def test_a_sasl_setting_of_a_listener_is_preferred_to_one_for_all_listeners() -> None:
    found = config(
        {
            "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "connections.max.reauth.ms": "1000",
            "listener.name.clients.connections.max.reauth.ms": "2000",
            "listener.name.clients.scram-sha-256.connections.max.reauth.ms": "3000",
        }
    )
    assert enabled_mechanisms(found, "CLIENTS") == ("SCRAM-SHA-256",)
    assert enabled_mechanisms(found, "OTHER") == ("PLAIN", "SCRAM-SHA-512")
    assert max_session_ms(found, "CLIENTS", "SCRAM-SHA-256") == 3000
    assert max_session_ms(found, "CLIENTS", "PLAIN") == 2000
    assert max_session_ms(found, "OTHER", "PLAIN") == 1000


def test_a_node_logs_in_to_others_with_the_credentials_of_the_listener_that_it_connects_to() -> None:
    found = inter_broker_credentials(config(AMONG_BROKERS))
    assert found is not None
    assert tuple(found) == ("PLAIN", "node", "hunter2")
    assert "hunter2" not in repr(found)


def test_a_broker_without_controller_role_logs_in_with_the_mechanism_of_the_controller_listener() -> None:
    found = BrokerConfig(
        single_node_properties(
            {
                "process.roles": "broker",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "controller.quorum.voters": "2@127.0.0.1:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.controller.plain.sasl.jaas.config": PLAIN,
            },
            Path("/nowhere"),
        )
    )
    credentials = controller_credentials(found)
    assert credentials is not None
    assert credentials.username == "node"


@pytest.mark.parametrize(
    ("changes", "without", "key", "why"),
    [
        ({}, "sasl.enabled.mechanisms", "sasl.enabled.mechanisms", "set it to some of PLAIN"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "", "sasl.enabled.mechanisms", "set it to some of PLAIN"),
        ({}, JAAS, JAAS, "must name the users of PLAIN"),
        ({JAAS: SCRAM}, "", JAAS, "is not that of PLAIN"),
        ({JAAS: 'evil.Module required user_a="hunter2";'}, "", JAAS, "none of"),
        ({JAAS: PLAIN[:-1]}, "", JAAS, "semicolon"),
        (AMONG_BROKERS, "sasl.mechanism.inter.broker.protocol", "sasl.mechanism.inter.broker.protocol", "must be one"),
        (
            {**AMONG_BROKERS, "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            "",
            "sasl.mechanism.inter.broker.protocol",
            "CLIENTS offers SCRAM-SHA-256",
        ),
        (
            {**AMONG_BROKERS, JAAS: f'{LOGIN}.plain.PlainLoginModule required user_a="hunter2";'},
            "",
            JAAS,
            "username and password",
        ),
        ({"sasl.jaas.config": PLAIN}, "", "sasl.jaas.config", "remove it"),
        ({"listener.name.clients.sasl.jaas.config": PLAIN}, "", "listener.name.clients.sasl.jaas.config", "remove it"),
        ({OF_ANOTHER: PLAIN}, "", OF_ANOTHER, "remove it"),
        ({CALLBACK: "com.example.Users"}, "", CALLBACK, "no class of Java"),
    ],
)  # fmt: skip
def test_sasl_settings_that_could_not_work_or_would_not_be_enforced_are_refused(
    changes: dict[str, str], without: str, key: str, why: str
) -> None:
    with pytest.raises(ConfigProblem, match=why) as refused:
        config(changes, without)
    assert refused.value.key == key
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "is_taken"),
    [
        (JAAS, PLAIN, True),
        ("listener.name.clients.sasl.enabled.mechanisms", "PLAIN", True),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-256", True),
        (JAAS, "evil.Module required;", False),
        (JAAS, SCRAM, False),
        ("listener.name.clients.sasl.enabled.mechanisms", "PLAIN,GSSAPI", False),
        ("listener.name.plaintext.plain.sasl.jaas.config", PLAIN, False),
        ("listener.name.unheard.plain.sasl.jaas.config", PLAIN, False),
        ("sasl.jaas.config", PLAIN, False),
    ],
)
def test_users_and_mechanisms_of_a_sasl_listener_can_be_changed_while_brokers_run(
    name: str, text: str, is_taken: bool
) -> None:
    problem = unenforced_change({name: text}, config({}))
    assert (problem is None) is is_taken
    assert problem is None or ("hunter2" not in str(problem) and problem.key == name)
