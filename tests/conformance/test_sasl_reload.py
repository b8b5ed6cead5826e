"""Users of PLAIN are changed while the broker runs; their passwords are in no error, description or log."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from pessoa.testing import Broker
from tests.support.clients import TIMEOUT_S, until
from tests.support.crash_wire import Wire
from tests.support.sasl import authenticate, client_settings, jaas, server_settings, shake_hands

KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SETTINGS = {
    **server_settings(),
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


def set_users(admin: AdminClient, text: str) -> None:
    entry = ConfigEntry(KEY, text, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(TIMEOUT_S)


def code_of_login(port: int, user: str, password: str) -> int:
    with Wire(port) as wire:
        shake_hands(wire, "PLAIN")
        return authenticate(wire, f"\0{user}\0{password}".encode()).error_code


def test_plain_users_are_added_and_removed_while_the_broker_runs_and_no_password_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = {"username": "node", "password": "node", "user_node": "node", "user_ana": "a good pass;word"}
    with caplog.at_level(logging.DEBUG), Broker(SETTINGS) as broker:
        admin = AdminClient(dict(client_settings(broker.bootstrap_servers)))
        assert code_of_login(broker.port, "new", "planted-secret") != 0
        set_users(admin, jaas("PLAIN", {**node, "user_new": "planted-secret"}))
        until(lambda: code_of_login(broker.port, "new", "planted-secret"), lambda code: code == 0, "the new user")
        set_users(admin, jaas("PLAIN", node))
        until(lambda: code_of_login(broker.port, "new", "planted-secret"), lambda code: code != 0, "no such user")
        for wrong in ("evil.Module required;", jaas("SCRAM-SHA-256", {}), jaas("PLAIN", node)[:-1] + " planted-secret"):
            with pytest.raises(KafkaException) as refused:
                set_users(admin, wrong)
            assert "planted-secret" not in str(refused.value)
        (done,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
        shown = done.result(TIMEOUT_S)
        assert shown[KEY].value is None
        assert shown[KEY].is_sensitive
        assert all("planted-secret" not in str(entry.value) for entry in shown.values())
    assert "planted-secret" not in caplog.text
    assert "pass;word" not in caplog.text
