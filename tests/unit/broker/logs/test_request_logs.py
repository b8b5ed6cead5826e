"""The content of the access, agent, referrer and audit logs, none of which has a secret."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from pessoa.base.clock import ManualClock
from pessoa.base.ids import Uuid
from pessoa.broker.api_row import AnyRow, Audited
from pessoa.broker.api_table import broker_rows, controller_rows, row_of
from pessoa.broker.logs.access_log import MAX_TOPICS, AccessLog
from pessoa.broker.logs.audit_log import MAX_ITEMS, AuditLog
from pessoa.broker.logs.connection_logs import AgentLog, Referrer, ReferrerLog, referrer_of
from pessoa.broker.logs.log_file import Rotation
from pessoa.broker.logs.log_writer import LogWriter
from pessoa.broker.logs.refusal_counts import COUNTED_MS, MAX_KEYS
from pessoa.broker.message_fields import topics_of
from pessoa.broker.metrics.request_metrics import RequestMetrics
from pessoa.broker.observers import Watcher
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pessoa.wire.api.alter_user_scram_credentials import AlterUserScramCredentialsResult as ScramResult
from pessoa.wire.api.api_versions import ApiVersionsRequest
from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest
from pessoa.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pessoa.wire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from pessoa.wire.schema import Field, Message
from tests.support.wire_values import Generator, random_message

TOPIC_ID = Uuid(bytes(range(16)))
SECRET = "hunter2-XyZZy"


class Stage:
    """A writer of request logs on a disk in memory, and the lines that it has written."""

    def __init__(self, form: str = "json") -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.disk = SimulatedDisk(now_ms=self.clock.now_ms)
        self.writer = LogWriter(self.disk, "/logs/x.log", form, Rotation(1 << 30, 2), self.clock)

    def text(self) -> str:
        self.writer.file.close()
        return self.disk.read_file("/logs/x.log").decode() if self.disk.exists("/logs/x.log") else ""

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]

    def access(self, *, failed_only: bool = False) -> AccessLog:
        return AccessLog(self.writer, {TOPIC_ID: "orders"}.get, failed_only=failed_only)

    def audit(self) -> AuditLog:
        return AuditLog(self.writer, self.clock)


def context(
    key: ApiKey, version: int = 1, client_id: str | None = "shop", principal: str = "User:ann"
) -> RequestContext:
    return RequestContext(key, version, 7, client_id, "10.0.0.7", 3, "PLAINTEXT", principal)


def serve(watcher: Watcher, about: RequestContext, request: Message, response: Message | None) -> None:
    begin = watcher.begin_of(row_of(ApiKey(about.api_key)))
    begin(about, request, 120).end(response, None if response is None else [b"x" * 30, b"y" * 12])


def list_offsets(*names: str) -> ListOffsetsRequest:
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=one, partitions=[]) for one in names])


def listed(*codes: int) -> ListOffsetsResponse:
    partitions = [ListOffsetsPartitionResponse(partition_index=n, error_code=code) for n, code in enumerate(codes)]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])


# ---- Access ----


def test_the_access_log_has_a_line_with_everything_about_a_request() -> None:
    stage = Stage()
    serve(stage.access(), context(ApiKey.LIST_OFFSETS), list_offsets("orders", "bills"), listed(0, 0))
    [entry] = stage.entries()
    assert entry.pop("ms") >= 0
    assert entry == {
        "time": "2023-11-14T22:13:20.000Z",
        "host": "10.0.0.7",
        "principal": "User:ann",
        "client_id": "shop",
        "listener": "PLAINTEXT",
        "api": "ListOffsets",
        "version": 1,
        "topics": ["orders", "bills"],
        "bytes_in": 120,
        "bytes_out": 42,
        "result": "NONE",
    }


def test_the_result_names_the_errors_of_partitions() -> None:
    stage = Stage()
    codes = (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR)
    serve(stage.access(), context(ApiKey.LIST_OFFSETS), list_offsets("t"), listed(*codes))
    assert stage.entries()[0]["result"] == "NOT_LEADER_OR_FOLLOWER×2,UNKNOWN_SERVER_ERROR"


def test_on_info_the_access_log_has_only_what_did_not_succeed() -> None:
    stage = Stage()
    log = stage.access(failed_only=True)
    serve(log, context(ApiKey.LIST_OFFSETS), list_offsets("t"), listed(0))
    serve(log, context(ApiKey.LIST_OFFSETS), list_offsets("t"), listed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    log.begin_of(row_of(ApiKey.LIST_OFFSETS))(context(ApiKey.LIST_OFFSETS), list_offsets("t"), 1).lose()
    assert [one["result"] for one in stage.entries()] == ["UNKNOWN_TOPIC_OR_PARTITION", "NO_RESPONSE"]


def test_a_request_without_a_response_is_logged_with_zero_bytes_out() -> None:
    stage = Stage()
    serve(stage.access(), context(ApiKey.LIST_OFFSETS), list_offsets("t"), None)
    assert (stage.entries()[0]["bytes_out"], stage.entries()[0]["result"]) == (0, "NONE")


def test_a_topic_id_is_shown_as_the_name_of_the_topic_and_a_session_shows_the_topics_of_the_response() -> None:
    stage = Stage()
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    response = FetchResponse(throttle_time_ms=0, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[])])
    serve(stage.access(), context(ApiKey.FETCH, 17), request, response)
    assert stage.entries()[0]["topics"] == ["orders"]


def test_a_topic_that_is_named_and_has_an_id_is_shown_once() -> None:
    stage = Stage()
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    response = FetchResponse(
        throttle_time_ms=0, responses=[FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=[])]
    )
    serve(stage.access(), context(ApiKey.FETCH, 17), request, response)
    assert stage.entries()[0]["topics"] == ["orders"]


def test_a_request_about_thousands_of_topics_names_some_of_them() -> None:
    stage = Stage()
    serve(stage.access(), context(ApiKey.LIST_OFFSETS), list_offsets(*(f"t{n}" for n in range(1000))), listed(0))
    [entry] = stage.entries()
    assert (len(entry["topics"]), entry["more_topics"]) == (MAX_TOPICS, 1000 - MAX_TOPICS)


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_client_id_with_newlines_cannot_forge_a_log_line(form: str) -> None:
    stage = Stage(form)
    nasty = 'x"\n{"time":"forged"}\n\x1b[2J'
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    serve(stage.access(), context(ApiKey.HEARTBEAT, 4, nasty, nasty), request, HeartbeatResponse(error_code=0))
    assert len(stage.text().splitlines()) == 1
    assert stage.text()[:-1].isprintable()


def test_the_fields_that_name_topics_are_those_of_the_protocol() -> None:
    """A sample of requests that name topics in other ways than most."""
    create = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="a",
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[CreatableTopicConfig(name="k", value="v")],
            )
        ],
        timeout_ms=1,
    )
    assert topics_of(create) == ["a"]
    assert topics_of(ApiVersionsRequest()) == []


# ---- Agent and referrer ----


def test_the_agent_log_has_the_software_of_a_connection() -> None:
    stage = Stage()
    hello = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.6.0")
    for version in (3, 2):
        serve(AgentLog(stage.writer), context(ApiKey.API_VERSIONS, version), hello, None)
    first, second = stage.entries()
    assert (first["software"], first["software_version"], first["connection"]) == ("librdkafka", "2.6.0", 3)
    assert (second["software"], second["software_version"]) == (None, None)


@pytest.mark.parametrize(
    ("client_id", "service", "name"),
    [
        ("broker-2-fetcher", "broker", "2"),
        ("raft-3-fetch", "broker", "3"),
        ("sr-127.0.0.1-8081", "schema-registry", "127.0.0.1-8081"),
        ("rest-proxy", "kafka-rest", None),
        ("rest-proxy-my_consumer", "kafka-rest", "my_consumer"),
        ("connector-producer-jdbc-orders-0", "connector", "jdbc-orders"),
        ("connector-dlq-producer-s3-sink-2", "connector", "s3-sink"),
        ("connect-cluster", "connect", "cluster"),
        (
            "_confluent-ksql-default_query_CSAS_PAGES_7-2f0a4c1e-1111-2222-3333-444455556666-StreamThread-1-consumer",
            "ksql",
            "CSAS_PAGES_7",
        ),
        ("wordcount-2f0a4c1e-1111-2222-3333-444455556666-StreamThread-1-producer", "streams", "wordcount"),
        ("consumer-billing-1", "consumer", "billing"),
        ("console-producer", "tool", "console-producer"),
        ("my own", "client", "my own"),
        ("", "client", None),
        (None, "client", None),
    ],
)
def test_the_referrer_of_a_connection_is_derived_from_its_client_id(
    client_id: str | None, service: str, name: str | None
) -> None:
    assert referrer_of(client_id) == Referrer(service, name)


def test_the_referrer_log_has_the_listener_and_the_service() -> None:
    stage = Stage()
    about = context(ApiKey.API_VERSIONS, 3, "connector-consumer-hdfs-0")
    serve(ReferrerLog(stage.writer), about, ApiVersionsRequest(), None)
    [entry] = stage.entries()
    assert (entry["listener"], entry["service"], entry["name"]) == ("PLAINTEXT", "connector", "hdfs")


def test_the_agent_log_watches_api_versions_only() -> None:
    watched = [row.key for row in broker_rows() if AgentLog(Stage().writer).watches(row)]
    assert watched == [ApiKey.API_VERSIONS]


# ---- Audit ----


def test_the_audit_log_has_what_was_changed_by_whom_and_no_value() -> None:
    stage = Stage()
    config = AlterableConfig(name="sasl.jaas.config", config_operation=0, value=SECRET)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    serve(stage.audit(), context(ApiKey.INCREMENTAL_ALTER_CONFIGS), request, None)
    [entry] = stage.entries()
    assert entry["event"] == "IncrementalAlterConfigs"
    assert entry["principal"] == "User:ann"
    assert entry["host"] == "10.0.0.7"
    assert entry["outcome"] == "NONE"
    assert entry["about"] == {
        "resources": [
            {
                "resource_type": "BROKER",
                "resource_name": "1",
                "configs": [{"name": "sasl.jaas.config", "config_operation": 0}],
            }
        ],
        "validate_only": False,
    }


def test_the_audit_log_has_the_outcome_and_no_salted_password() -> None:
    stage = Stage()
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="bob", mechanism=1)],
        upsertions=[
            ScramCredentialUpsertion(
                name="ann", mechanism=1, iterations=4096, salt=SECRET.encode(), salted_password=SECRET.encode()
            )
        ],
    )
    answer = ScramResult(user="ann", error_code=ErrorCode.UNACCEPTABLE_CREDENTIAL, error_message=SECRET)
    response = AlterUserScramCredentialsResponse(throttle_time_ms=0, results=[answer])
    serve(stage.audit(), context(ApiKey.ALTER_USER_SCRAM_CREDENTIALS), request, response)
    assert SECRET not in stage.text()
    [entry] = stage.entries()
    assert entry["outcome"] == "UNACCEPTABLE_CREDENTIAL"
    assert [one["name"] for one in entry["about"]["upsertions"]] == ["ann"]


def test_the_audit_log_shows_the_names_of_acl_resource_types_and_operations() -> None:
    stage = Stage()
    creation = AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:bob",
        host="*",
        operation=3,
        permission_type=3,
    )
    serve(stage.audit(), context(ApiKey.CREATE_ACLS), CreateAclsRequest(creations=[creation]), None)
    [shown] = stage.entries()[0]["about"]["creations"]
    assert (shown["resource_type"], shown["operation"]) == ("Topic", "READ")


def alter_configs(names: list[str], config_names: list[str]) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=one, config_operation=0, value="1") for one in config_names]
    resources = [AlterConfigsResource(resource_type=2, resource_name=one, configs=configs) for one in names]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def test_the_audit_log_shows_every_item_of_a_list_with_a_line_for_each_twenty() -> None:
    stage = Stage()
    names = [f"t{n}" for n in range(2 * MAX_ITEMS + 1)]
    serve(stage.audit(), context(ApiKey.INCREMENTAL_ALTER_CONFIGS), alter_configs(names, ["retention.ms"]), None)
    entries = stage.entries()
    assert [len(one["about"]["resources"]) for one in entries] == [MAX_ITEMS, MAX_ITEMS, 1]
    assert [name for one in entries for name in resource_names(one)] == names
    assert [(one["part"], one["parts"], one["about"]["validate_only"]) for one in entries] == [
        (1, 3, False),
        (2, 3, False),
        (3, 3, False),
    ]


def resource_names(entry: dict[str, Any]) -> list[str]:
    return [one["resource_name"] for one in entry["about"]["resources"]]


def test_the_audit_log_shows_every_item_of_a_list_within_a_list() -> None:
    stage = Stage()
    names = [f"k{n}" for n in range(MAX_ITEMS + 1)]
    serve(stage.audit(), context(ApiKey.INCREMENTAL_ALTER_CONFIGS), alter_configs(["a", "b"], names), None)
    shown = [
        (resource["resource_name"], config["name"])
        for entry in stage.entries()
        for resource in entry["about"]["resources"]
        for config in resource["configs"]
    ]
    assert shown == [(topic, name) for topic in ("a", "b") for name in names]


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_audited_change_among_items_with_long_names_is_written(form: str) -> None:
    stage = Stage(form)
    names = ["orders", *("\U0001f600" * 30_000 for _ in range(MAX_ITEMS * 20))]
    request = alter_configs(names, ["\U0001f600" * 30_000] * MAX_ITEMS)
    serve(stage.audit(), context(ApiKey.INCREMENTAL_ALTER_CONFIGS), request, None)
    assert stage.writer.file.dropped == 0
    assert "orders" in stage.text()
    assert max(map(len, stage.text().splitlines())) < 64 * 1024


def denied(*codes: int) -> IncrementalAlterConfigsResponse:
    answers = [
        AlterConfigsResourceResponse(error_code=one, error_message=None, resource_type=2, resource_name="t")
        for one in codes
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=answers)


def test_a_flood_of_denied_requests_is_counted() -> None:
    stage = Stage()
    log, request = stage.audit(), alter_configs(["t"] * 50, ["k"])
    for _ in range(1000):
        codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 50
        serve(log, context(ApiKey.INCREMENTAL_ALTER_CONFIGS), request, denied(*codes))
    stage.clock.advance_ms(COUNTED_MS)
    assert [one.get("count") for one in stage.entries()] == [None, 999]


def test_a_request_that_was_denied_in_part_is_audited_whole() -> None:
    stage = Stage()
    log = stage.audit()
    for _ in range(3):
        codes = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE
        serve(log, context(ApiKey.INCREMENTAL_ALTER_CONFIGS), alter_configs(["a", "b"], ["k"]), denied(*codes))
    assert [resource_names(one) for one in stage.entries()] == [["a", "b"]] * 3


def test_audited_apis_are_those_that_change_the_cluster() -> None:
    audited = {row.key.title for row in broker_rows() if row.audited is not Audited.NO}
    assert audited >= {
        "CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "CreateAcls",
        "DeleteAcls", "AlterClientQuotas", "AlterUserScramCredentials", "CreateDelegationToken", "DeleteRecords",
        "RenewDelegationToken", "ExpireDelegationToken", "DeleteGroups", "AlterPartitionReassignments",
    }  # fmt: skip
    assert not audited & {"Produce", "Fetch", "Metadata", "DescribeConfigs", "ListPartitionReassignments"}


def test_a_login_is_audited_without_its_credentials() -> None:
    stage = Stage()
    stage.audit().note_log_in("10.0.0.7", "SASL", "PLAIN", "User:ann", "SASL_AUTHENTICATION_FAILED")
    [entry] = stage.entries()
    assert (entry["event"], entry["principal"], entry["outcome"]) == (
        "LogIn",
        "User:ann",
        "SASL_AUTHENTICATION_FAILED",
    )


def test_failed_log_ins_of_a_host_are_counted_within_a_second() -> None:
    stage = Stage()
    log = stage.audit()
    for host in ("10.0.0.7", "10.0.0.8"):
        for number in range(100):
            log.note_log_in(host, "SASL", "PLAIN", f"User:{number}", "SASL_AUTHENTICATION_FAILED")
    log.note_log_in("10.0.0.7", "SASL", "PLAIN", "User:ann", "NONE")
    assert len(stage.entries()) == 3
    stage.clock.advance_ms(COUNTED_MS)
    assert [(one["host"], one["count"]) for one in stage.entries()[3:]] == [("10.0.0.7", 99), ("10.0.0.8", 99)]


def test_failed_log_ins_of_countless_hosts_are_counted_together() -> None:
    stage = Stage()
    log = stage.audit()
    for number in range(5000):
        log.note_log_in(f"fd00::{number:x}", "SASL", "PLAIN", None, "SASL_AUTHENTICATION_FAILED")
    log.close()
    assert len(stage.entries()) == MAX_KEYS + 2
    assert sum(one.get("count", 1) for one in stage.entries()) == 5000


def test_a_failed_log_in_after_a_quiet_second_is_written_at_once() -> None:
    stage = Stage()
    log = stage.audit()
    for _ in range(3):
        log.note_log_in("10.0.0.7", "SASL", "PLAIN", None, "SASL_AUTHENTICATION_FAILED")
        stage.clock.advance_ms(COUNTED_MS)
    assert ["count" in one for one in stage.entries()] == [False, False, False]


# ---- Secrets ----

# What else but bytes holds secrets, or what users have written.
SECRET_TEXTS = {"value", "error_message", "committed_metadata", "metadata", "reason"}


class Planting(Generator):
    """Makes random messages with the secret in every field that can contain one."""

    def field(self, field: Field) -> Any:
        if field.kind == "bytes":
            return SECRET.encode()
        if field.kind == "string" and field.name in SECRET_TEXTS:
            return SECRET
        if field.kind == "records":
            return memoryview(SECRET.encode())
        return super().field(field)

    def count(self, most: int) -> int:
        return 2


def planted(kind: type[Message], version: int) -> Any:
    return Planting(Layout(kind, version), Random(1), unknown_tags=False).struct(kind)


@pytest.mark.parametrize("row", list({row.key: row for row in (*broker_rows(), *controller_rows())}.values()), ids=str)
def test_no_secret_of_any_api_gets_into_a_log(row: AnyRow) -> None:
    for form in ("json", "text"):
        stage = Stage(form)
        version = row.versions.last
        request, response = planted(row.key.request, version), planted(row.key.response, version)
        watchers: list[Watcher] = [stage.access(), stage.audit()]
        if row.key is ApiKey.API_VERSIONS:
            watchers += [AgentLog(stage.writer), ReferrerLog(stage.writer)]
        for watcher in watchers:
            serve(watcher, context(row.key, version), request, response)
        text = stage.text()
        assert text
        assert SECRET not in text
        assert repr(SECRET.encode()) not in text
        assert SECRET.encode().hex() not in text


@pytest.mark.parametrize("row", list({row.key: row for row in (*broker_rows(), *controller_rows())}.values()), ids=str)
def test_watchers_of_requests_accept_random_messages_of_every_api(row: AnyRow) -> None:
    """A watcher that raises would cost the client its connection."""
    for version in {row.versions.first, row.versions.last}:
        for seed in range(20):
            stage, rng = Stage("text" if seed % 2 else "json"), Random(seed)
            request = random_message(row.key.request, version, rng)
            response = random_message(row.key.response, version, rng)
            watchers: list[Watcher] = [stage.access(), stage.audit(), RequestMetrics(lambda _: None, lambda _: True)]
            if row.key is ApiKey.API_VERSIONS:
                watchers += [AgentLog(stage.writer), ReferrerLog(stage.writer)]
            for watcher in watchers:
                serve(watcher, context(row.key, version), request, response)
            assert len(stage.text().splitlines()) >= len(watchers) - 1
