"""The request logs of running brokers: requests of clients are in the files, and changes at run time take effect."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from pessoa.testing import Broker
from pessoa.wire.api.alter_configs import (
    AlterableConfig as PlainConfig,
)
from pessoa.wire.api.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)
from pessoa.wire.api.alter_configs import (
    AlterConfigsResource as PlainResource,
)
from pessoa.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from pessoa.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pessoa.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pessoa.wire.errors import ErrorCode
from tests.cluster.conftest import until
from tests.support.clients import create_topic
from tests.support.crash_wire import Closed, Wire

ALL = "access,agent,audit,authorizer,error,referrer"
BROKER, LOGGER = 4, 8
SET, DELETE = 0, 1
SECRET = "hunter2-XyZZy"


class Logged:
    """A broker with a directory of request logs."""

    def __init__(self, folder: Path, logs: str, **settings: str) -> None:
        self.folder = folder / "logs"
        self.broker = Broker(
            {"pessoa.logs": logs, "pessoa.logs.dir": str(self.folder), **settings}, directory=folder / "data"
        )

    def lines(self, log: str) -> list[dict[str, Any]]:
        path = self.folder / f"{log}.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, log: str, **wanted: Any) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [one for one in self.lines(log) if all(one.get(name) == value for name, value in wanted.items())]

        until(found, lambda: f"{wanted} is in the {log} log, which has {self.lines(log)[-5:]}")
        return found()[0]

    def alter(self, kind: int, name: str, value: str | None, operation: int = SET) -> int:
        config = AlterableConfig(name=name, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name="1", configs=[config])
        with Wire(self.broker.port) as wire:
            response = wire.ask(
                IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
                IncrementalAlterConfigsResponse,
                1,
            )
        [result] = response.responses
        return int(result.error_code)

    def level(self, logger: str) -> str | None:
        resource = DescribeConfigsResource(resource_type=LOGGER, resource_name="1", configuration_keys=[logger])
        with Wire(self.broker.port) as wire:
            response = wire.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4)
        [result] = response.results
        return result.configs[0].value if result.configs else None

    def make_traffic(self) -> str:
        """Create a topic, write a record to it and read it; return the topic's name."""
        topic = create_topic(self.broker)
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "client.id": "shop"})
        producer.produce(topic, SECRET)
        producer.flush(30)
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": "g",
                "client.id": "connector-consumer-hdfs-0",
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe([topic])
            until(lambda: consumer.poll(0.2) is not None, "the record is read")
        finally:
            consumer.close()
        return topic


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Logged]:
    one = Logged(tmp_path, ALL)
    with one.broker:
        yield one


def test_the_requests_of_clients_are_written_to_the_logs(logged: Logged) -> None:
    topic = logged.make_traffic()
    produce = logged.wait_for("access", api="Produce", client_id="shop")
    assert (produce["topics"], produce["result"], produce["listener"]) == ([topic], "NONE", "PLAINTEXT")
    assert produce["bytes_in"] > len(SECRET)
    assert produce["bytes_out"] > 0
    assert logged.wait_for("access", api="Fetch", topics=[topic])["host"] == "127.0.0.1"
    agent = logged.wait_for("agent", client_id="shop")
    assert agent["software"] == "confluent-kafka-python"
    assert "rdkafka" in agent["software_version"]
    logged.wait_for("referrer", service="connector", name="hdfs", listener="PLAINTEXT")
    created = logged.wait_for("audit", event="CreateTopics")
    assert created["about"]["topics"][0]["name"] == topic
    assert (created["outcome"], created["principal"]) == ("NONE", "User:ANONYMOUS")


def test_a_log_is_turned_on_and_off_while_the_broker_runs(tmp_path: Path) -> None:
    one = Logged(tmp_path, "")
    with one.broker:
        assert one.broker.inspect(lambda broker: repr(broker.observers)) == "<Observers: none>"
        assert one.level("kafka.request.logger") == "FATAL"
        assert one.alter(LOGGER, "kafka.request.logger", "DEBUG") == ErrorCode.NONE
        assert one.level("kafka.request.logger") == "DEBUG"
        one.wait_for("access", api="DescribeConfigs")
        assert one.alter(LOGGER, "kafka.request.logger", "FATAL") == ErrorCode.NONE
        assert one.broker.inspect(lambda broker: repr(broker.observers)) == "<Observers: none>"
        assert one.alter(BROKER, "pessoa.logs", "audit,access") == ErrorCode.NONE
        assert one.broker.inspect(lambda broker: repr(broker.observers)) == "<Observers: access, audit>"
        assert one.alter(BROKER, "pessoa.logs", None, DELETE) == ErrorCode.NONE
        assert one.broker.inspect(lambda broker: repr(broker.observers)) == "<Observers: none>"
        assert one.alter(BROKER, "pessoa.logs", "everything") == ErrorCode.INVALID_REQUEST


def test_without_a_setting_there_is_no_log_file_and_no_watcher(tmp_path: Path) -> None:
    with Broker(directory=tmp_path / "data") as broker:
        create_topic(broker)
        assert broker.inspect(lambda one: repr(one.observers)) == "<Observers: none>"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_logs_are_beside_the_data_if_no_log_directory_is_set(tmp_path: Path) -> None:
    with Broker({"pessoa.logs": "audit"}, directory=tmp_path / "data") as broker:
        create_topic(broker)
    assert (tmp_path / "data.logs" / "audit.log").exists()


def test_errors_are_written_to_the_error_log_on_one_line(logged: Logged) -> None:
    with Wire(logged.broker.port) as wire:
        wire.send(b"\x00\x00\x00\x08" + b"\x7f\xff" * 4)
        assert wire.is_closed()
    entry = logged.wait_for("error", level="WARNING", logger="pessoa.net")
    assert "the connection is closed" in entry["message"]
    logging.getLogger("pessoa.test").error("a\nforged \x1b line")
    assert logged.wait_for("error", logger="pessoa.test")["message"] == "a\nforged \x1b line"
    assert b"\x1b" not in (logged.folder / "error.log").read_bytes()


def test_authorizer_decisions_are_written_to_their_own_file(logged: Logged) -> None:
    logging.getLogger("kafka.authorizer.logger").warning("Principal = User:a is Denied")
    logged.wait_for("authorizer", message="Principal = User:a is Denied")


def test_files_are_rotated(tmp_path: Path) -> None:
    one = Logged(tmp_path, "access", **{"pessoa.logs.max.bytes": "4096", "pessoa.logs.max.files": "2"})
    with one.broker, Wire(one.broker.port) as wire:
        resource = DescribeConfigsResource(resource_type=LOGGER, resource_name="1", configuration_keys=["root"])
        rotated = one.folder / "access.log.1"

        def ask() -> bool:
            wire.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4)
            return rotated.exists() and (one.folder / "access.log").exists()

        until(ask, "the log is rotated")
    assert sorted(path.name for path in one.folder.iterdir()) == ["access.log", "access.log.1"]


def test_no_secret_is_in_any_log_or_in_what_the_process_says(
    logged: Logged, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Through every API that carries secrets, valid or not."""
    caplog.set_level(logging.DEBUG)
    secret = SECRET.encode()
    logged.alter(BROKER, "listener.name.plaintext.plain.sasl.jaas.config", f'x required password="{SECRET}";')
    logged.alter(BROKER, "ssl.keystore.password", SECRET)
    plain = PlainResource(
        resource_type=BROKER, resource_name="1", configs=[PlainConfig(name="ssl.key.password", value=SECRET)]
    )
    upsertion = ScramCredentialUpsertion(name="ann", mechanism=1, iterations=4096, salt=secret, salted_password=secret)
    requests: list[tuple[Any, Any, int]] = [
        (AlterConfigsRequest(resources=[plain], validate_only=False), AlterConfigsResponse, 1),
        (
            AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]),
            AlterUserScramCredentialsResponse,
            0,
        ),
        (CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=60_000), CreateDelegationTokenResponse, 2),
        (RenewDelegationTokenRequest(hmac=secret, renew_period_ms=1), RenewDelegationTokenResponse, 2),
        (ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=1), ExpireDelegationTokenResponse, 2),
        (SaslAuthenticateRequest(auth_bytes=b"\0ann\0" + secret), SaslAuthenticateResponse, 2),
    ]
    hmacs = []
    for request, response, version in requests:
        with Wire(logged.broker.port) as wire:
            try:
                answer = wire.ask(request, response, version)
            except Closed:
                continue
            hmacs.append(getattr(answer, "hmac", b""))
    logged.make_traffic()
    logged.wait_for("access", api="AlterUserScramCredentials")
    logged.wait_for("access", api="Produce")
    logged.broker.stop()
    written = b"".join(path.read_bytes() for path in logged.folder.rglob("*") if path.is_file())
    said = caplog.text.encode()
    for planted in (secret, secret.hex().encode(), repr(secret).encode(), *filter(None, hmacs)):
        assert planted not in written
        assert planted not in said


def test_log_ins_are_audited_and_a_password_gets_into_no_log(tmp_path: Path) -> None:
    users = f'user_node="between nodes" user_ana="{SECRET}"'
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="node" password="between nodes" {users};'
    one = Logged(
        tmp_path,
        ALL,
        **{
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": jaas,
        },
    )
    wrong = SECRET[::-1]
    with one.broker:
        for password in (SECRET, wrong):
            settings: dict[str, str | int | float | bool] = {
                "bootstrap.servers": one.broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "ana",
                "sasl.password": password,
                "log_level": 0,
            }
            admin = AdminClient(settings)
            if password == SECRET:
                admin.list_topics(timeout=30)
                good = one.wait_for("audit", event="LogIn", outcome="NONE", principal="User:ana")
                assert (good["host"], good["about"]) == ("127.0.0.1", {"mechanism": "PLAIN"})
            else:
                admin.poll(0)
                one.wait_for("audit", event="LogIn", outcome="SASL_AUTHENTICATION_FAILED")
    written = b"".join(path.read_bytes() for path in one.folder.iterdir())
    assert SECRET.encode() not in written
    assert wrong.encode() not in written


def test_a_denied_request_is_in_the_authorizer_log(tmp_path: Path) -> None:
    one = Logged(
        tmp_path,
        ALL,
        **{
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        },
    )
    with one.broker, Wire(one.broker.port) as wire:
        denial = AclCreation(
            resource_type=2,
            resource_name="hidden",
            resource_pattern_type=3,
            principal="User:ANONYMOUS",
            host="*",
            operation=2,
            permission_type=2,
        )
        [created] = wire.ask(CreateAclsRequest(creations=[denial]), CreateAclsResponse, 3).results
        assert created.error_code == 0
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name="hidden", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            ],
        )

        def is_denied() -> bool:
            [topic] = wire.ask(request, ListOffsetsResponse, 7).topics
            return bool(topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)

        until(is_denied, "the denial holds")
        until(
            lambda: any("Denied operation = DESCRIBE" in str(line["message"]) for line in one.lines("authorizer")),
            lambda: f"the denial is in the authorizer log, which has {one.lines('authorizer')[-3:]}",
        )
        one.wait_for("access", api="ListOffsets", result="TOPIC_AUTHORIZATION_FAILED")
        assert one.wait_for("audit", event="CreateAcls")["about"]["creations"][0]["principal"] == "User:ANONYMOUS"
