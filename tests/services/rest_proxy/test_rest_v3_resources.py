"""/v3/clusters and the resources of a cluster: fields, links, and the errors for unknown resources."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest

from tests.services.rest_proxy.stage import PATIENCE, V2_JSON, Rest

JSON = "application/json"


def get_ok(rest: Rest, path: str) -> dict[str, Any]:
    answer = rest.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == JSON
    found: dict[str, Any] = answer.json()
    return found


def status_and_error_code(answer: Any) -> tuple[int, int]:
    return answer.status_code, answer.json()["error_code"]


# Clusters and brokers.


def test_the_cluster_links_to_everything_in_it(rest: Rest) -> None:
    listed = get_ok(rest, "/v3/clusters")
    assert (listed["kind"], listed["metadata"]) == (
        "KafkaClusterList",
        {"self": f"{rest.url}/v3/clusters", "next": None},
    )
    [cluster] = listed["data"]
    base = f"{rest.url}{rest.cluster}"
    assert cluster["metadata"] == {"self": base, "resource_name": f"crn:///kafka={cluster['cluster_id']}"}
    assert cluster["topics"] == {"related": f"{base}/topics"}
    assert cluster["partition_reassignments"] == {"related": f"{base}/topics/-/partitions/-/reassignment"}
    assert get_ok(rest, rest.cluster) == cluster
    for link in ("controller", "brokers", "broker_configs", "consumer_groups", "topics", "partition_reassignments"):
        assert rest.http.get(cluster[link]["related"]).status_code == 200, link


def test_every_path_of_another_cluster_is_not_found(rest: Rest) -> None:
    for path in ("", "/topics", "/brokers", "/acls", "/consumer-groups", "/share-groups", "/streams-groups"):
        assert status_and_error_code(rest.get(f"/v3/clusters/elsewhere{path}")) == (404, 404)


def test_a_broker_is_shown_with_its_host_and_port(rest: Rest) -> None:
    [broker] = get_ok(rest, f"{rest.cluster}/brokers")["data"]
    assert f"{broker['host']}:{broker['port']}" == rest.bootstrap_servers
    assert broker["kind"] == "KafkaBroker"
    assert get_ok(rest, f"{rest.cluster}/brokers/{broker['broker_id']}") == broker
    assert status_and_error_code(rest.get(f"{rest.cluster}/brokers/99")) == (404, 404)
    assert status_and_error_code(rest.get(f"{rest.cluster}/brokers/x/configs")) == (404, 404)


def test_the_replicas_of_a_broker_include_every_partition_of_a_topic(rest: Rest) -> None:
    topic = rest.topic(2)
    [broker] = get_ok(rest, f"{rest.cluster}/brokers")["data"]
    replicas = rest.http.get(broker["partition_replicas"]["related"]).json()["data"]
    ours = [each["partition_id"] for each in replicas if each["topic_name"] == topic]
    assert ours == [0, 1]


# Topics.


def test_a_topic_is_created_listed_extended_and_deleted(rest: Rest) -> None:
    name = f"rest-{uuid4().hex[:12]}"
    path = f"{rest.cluster}/topics"
    body = {
        "topic_name": name,
        "partitions_count": 2,
        "replication_factor": 1,
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    created = rest.http.post(path, json=body)
    assert created.status_code == 201
    assert created.headers["location"] == f"{rest.url}{path}/{name}"
    rest.wait_for_topic(name)
    topic = get_ok(rest, f"{path}/{name}")
    assert topic["kind"] == "KafkaTopic"
    assert (topic["partitions_count"], topic["replication_factor"], topic["is_internal"]) == (2, 1, False)
    assert topic["metadata"]["resource_name"].endswith(f"/topic={name}")
    assert "authorized_operations" not in topic
    assert name in [each["topic_name"] for each in get_ok(rest, path)["data"]]
    grown = rest.http.patch(f"{path}/{name}", json={"partitions_count": 5})
    assert (grown.status_code, grown.json()["partitions_count"]) == (200, 5)
    assert status_and_error_code(rest.http.patch(f"{path}/{name}", json={"partitions_count": 1})) == (400, 40002)
    assert rest.http.delete(f"{path}/{name}").status_code == 204
    rest.until(lambda: rest.get(f"{path}/{name}").status_code == 404, "the topic is gone")
    assert status_and_error_code(rest.get(f"{path}/{name}")) == (404, 40403)


def test_a_topic_is_created_with_defaults_and_with_a_manual_replica_assignment(rest: Rest) -> None:
    path = f"{rest.cluster}/topics"
    [broker] = get_ok(rest, f"{rest.cluster}/brokers")["data"]
    replicas = [broker["broker_id"]]
    for extra in (
        {},
        {"replicas_assignments": [{"partition_id": each, "broker_ids": replicas} for each in (1, 0)]},
    ):
        body = {"topic_name": f"rest-{uuid4().hex[:12]}", **extra}
        created = rest.http.post(path, json=body)
        assert created.status_code == 201, created.text
        assert created.json()["partitions_count"] == (2 if extra else 1)


def test_validate_only_does_not_create_the_topic(rest: Rest) -> None:
    name = f"rest-{uuid4().hex[:12]}"
    body = {"topic_name": name, "partitions_count": 3, "replication_factor": 1, "validate_only": True}
    answer = rest.http.post(f"{rest.cluster}/topics", json=body)
    assert (answer.status_code, answer.json()["partitions_count"]) == (200, 3)
    assert rest.get(f"{rest.cluster}/topics/{name}").status_code == 404


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (422, 422)),
        ({"topic_name": "no good name"}, (400, 40002)),
        ({"topic_name": "t", "replication_factor": 9, "partitions_count": 1}, (400, 40002)),
        ({"topic_name": "t", "partitions_count": 0}, (400, 40002)),
        ({"topic_name": "t", "partitions_count": 2**31}, (400, 400)),
        ({"topic_name": "t", "configs": [{"name": "no.such.key", "value": "1"}]}, (400, 40002)),
        ({"topic_name": "t", "replicas_assignments": [{"partition_id": 1, "broker_ids": [1]}]}, (400, 400)),
        ({"topic_name": "t", "colour": "red"}, (422, 422)),
    ],
)
def test_an_invalid_topic_is_not_created(rest: Rest, body: dict[str, Any], expected: tuple[int, int]) -> None:
    assert status_and_error_code(rest.http.post(f"{rest.cluster}/topics", json=body)) == expected


def test_creating_an_existing_topic_gets_40002(rest: Rest) -> None:
    topic = rest.topic()
    assert status_and_error_code(rest.http.post(f"{rest.cluster}/topics", json={"topic_name": topic})) == (400, 40002)


def test_v3_refuses_a_v2_content_type(rest: Rest) -> None:
    answer = rest.send("POST", f"{rest.cluster}/topics", {"topic_name": "t"}, V2_JSON)
    assert status_and_error_code(answer) == (415, 415)


def test_the_authorized_operations_of_a_topic_are_returned_on_request(rest: Rest) -> None:
    topic = rest.topic()
    found = get_ok(rest, f"{rest.cluster}/topics/{topic}?includeAuthorizedOperations=true")
    assert {"READ", "WRITE"} <= set(found["authorized_operations"])


# Partitions.


def test_partitions_are_shown_with_their_replicas_and_offsets(rest: Rest) -> None:
    topic = rest.topic(2)
    rest.send("POST", f"/topics/{topic}/partitions/1", {"records": [{"value": 1}, {"value": 2}]}, V2_JSON)
    path = f"{rest.cluster}/topics/{topic}/partitions"
    listed = get_ok(rest, path)
    assert [each["partition_id"] for each in listed["data"]] == [0, 1]
    assert get_ok(rest, f"{path}/1") == listed["data"][1]
    leader = rest.http.get(listed["data"][1]["leader"]["related"]).json()
    assert (leader["kind"], leader["is_leader"], leader["is_in_sync"]) == ("KafkaReplica", True, True)
    assert get_ok(rest, f"{path}/1/replicas")["data"] == [leader]
    assert rest.http.get(leader["broker"]["related"]).status_code == 200
    offsets = get_ok(rest, f"{path}/1/offset")
    assert (offsets["kind"], offsets["earliest_offset"], offsets["latest_offset"]) == (
        "KafkaPartitionWithOffsets",
        0,
        2,
    )
    assert "earliest_offset" not in get_ok(rest, f"{path}/1/offset?offset_type=latest")
    assert status_and_error_code(rest.get(f"{path}/1/offset?offset_type=middle")) == (400, 400)


@pytest.mark.parametrize("tail", ["", "/offset", "/replicas", "/replicas/1", "/reassignment"])
def test_v3_answers_40402_for_an_unknown_partition_and_40403_for_an_unknown_topic(rest: Rest, tail: str) -> None:
    topic = rest.topic()
    assert status_and_error_code(rest.get(f"{rest.cluster}/topics/{topic}/partitions/9{tail}")) == (404, 40402)
    assert status_and_error_code(rest.get(f"{rest.cluster}/topics/nowhere/partitions/0{tail}")) == (404, 40403)


def test_an_unknown_replica_gets_404(rest: Rest) -> None:
    topic = rest.topic()
    assert status_and_error_code(rest.get(f"{rest.cluster}/topics/{topic}/partitions/0/replicas/99")) == (404, 404)


def test_a_topic_that_is_not_being_reassigned_has_no_reassignments(rest: Rest) -> None:
    topic = rest.topic()
    for middle in ("-/partitions/-", f"{topic}/partitions/-"):
        listed = get_ok(rest, f"{rest.cluster}/topics/{middle}/reassignment")
        assert (listed["kind"], listed["data"]) == ("KafkaReassignmentList", [])
    assert status_and_error_code(rest.get(f"{rest.cluster}/topics/{topic}/partitions/0/reassignment")) == (404, 404)


# Configuration.


def shown(rest: Rest, path: str, **fields: Any) -> dict[str, Any]:
    """Wait until the config has these values and return it: a broker applies a change after the controller."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = get_ok(rest, path)
        if all(found[name] == value for name, value in fields.items()):
            return found
        assert time.monotonic() < deadline, found


def test_a_topic_config_is_set_read_and_reset(rest: Rest) -> None:
    topic = rest.topic()
    path = f"{rest.cluster}/topics/{topic}/configs"
    before = get_ok(rest, f"{path}/segment.bytes")
    assert (before["kind"], before["source"], before["is_default"]) == ("KafkaTopicConfig", "DEFAULT_CONFIG", True)
    assert before["metadata"]["resource_name"].endswith(f"/topic={topic}/config=segment.bytes")
    assert rest.http.put(f"{path}/segment.bytes", json={"value": "1234567"}).status_code == 204
    changed = shown(rest, f"{path}/segment.bytes", value="1234567")
    assert changed["source"] == "DYNAMIC_TOPIC_CONFIG"
    synonyms = [(each["name"], each["source"]) for each in changed["synonyms"]]
    assert synonyms[0] == ("segment.bytes", "DYNAMIC_TOPIC_CONFIG")
    assert synonyms[-1][1] == "DEFAULT_CONFIG"
    assert changed in get_ok(rest, path)["data"]
    assert rest.http.delete(f"{path}/segment.bytes").status_code == 204
    assert shown(rest, f"{path}/segment.bytes", is_default=True) == before


def test_several_topic_configs_change_in_one_request_and_invalid_changes_are_refused(rest: Rest) -> None:
    topic = rest.topic(1, retention_ms="1")
    path = f"{rest.cluster}/topics/{topic}/configs"
    body = {"data": [{"name": "retention.ms", "operation": "DELETE"}, {"name": "segment.bytes", "value": "2000000"}]}
    assert rest.http.post(f"{path}:alter", json={**body, "validate_only": True}).status_code == 204
    assert get_ok(rest, f"{path}/retention.ms")["value"] == "1"
    assert rest.http.post(f"{path}:alter", json=body).status_code == 204
    assert shown(rest, f"{path}/retention.ms", is_default=True)
    assert shown(rest, f"{path}/segment.bytes", value="2000000")
    wrong = {"data": [{"name": "segment.bytes", "value": "many"}]}
    assert status_and_error_code(rest.http.post(f"{path}:alter", json=wrong)) == (400, 40002)
    assert status_and_error_code(rest.http.post(f"{path}:alter", json={"data": [{"name": "segment.bytes"}]})) == (
        400,
        400,
    )
    assert status_and_error_code(rest.http.post(f"{path}:alter", json={"data": []})) == (400, 400)


def test_config_changes_of_several_topics_succeed_or_fail_topic_by_topic(rest: Rest) -> None:
    topic = rest.topic()
    changes = [{"name": "retention.ms", "value": "77"}]
    path = f"{rest.cluster}/topics/-/configs:alter"
    assert rest.http.post(path, json={"data": [{"topic_name": topic, "configs": changes}]}).status_code == 204
    body = {"data": [{"topic_name": "nowhere", "configs": changes}, {"topic_name": topic, "configs": changes}]}
    answer = rest.http.post(path, json=body)
    assert answer.status_code == 207
    [failure] = answer.json()["failures"]
    assert (failure["topic_name"], failure["error_code"]) == ("nowhere", 40403)

    def everything() -> list[tuple[str, str]]:
        return [
            (each["value"], each["topic_name"]) for each in get_ok(rest, f"{rest.cluster}/topics/-/configs")["data"]
        ]

    rest.until(lambda: ("77", topic) in everything(), "the change is shown")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_an_unknown_topic_config_or_topic_gets_404(rest: Rest, method: str) -> None:
    topic = rest.topic()
    body = {"value": "1"} if method == "PUT" else None
    answer = rest.send(method, f"{rest.cluster}/topics/{topic}/configs/no.such.key", body, JSON)
    assert status_and_error_code(answer) == (404, 404)
    answer = rest.send(method, f"{rest.cluster}/topics/nowhere/configs/retention.ms", body, JSON)
    assert status_and_error_code(answer) == (404, 40403)


def test_broker_configs_are_read_and_changed_for_one_broker_and_for_all(rest: Rest) -> None:
    [broker] = get_ok(rest, f"{rest.cluster}/brokers")["data"]
    own = f"{rest.cluster}/brokers/{broker['broker_id']}/configs"
    entry = get_ok(rest, f"{own}/log.retention.hours")
    assert (entry["kind"], entry["broker_id"]) == ("KafkaBrokerConfig", broker["broker_id"])
    of_all_brokers = get_ok(rest, f"{rest.cluster}/brokers/-/configs")["data"]
    assert "log.retention.hours" in [each["name"] for each in of_all_brokers]
    shared = f"{rest.cluster}/broker-configs"
    assert rest.http.put(f"{shared}/log.retention.ms", json={"value": "9999999"}).status_code == 204
    rest.until(lambda: rest.get(f"{shared}/log.retention.ms").status_code == 200, "the setting is shown")
    found = get_ok(rest, f"{shared}/log.retention.ms")
    assert (found["kind"], found["config_type"], found["source"]) == (
        "KafkaClusterConfig",
        "BROKER",
        "DYNAMIC_DEFAULT_BROKER_CONFIG",
    )
    change = {"data": [{"name": "log.retention.ms", "operation": "DELETE"}]}
    assert rest.http.post(f"{shared}:alter", json=change).status_code == 204
    assert rest.http.put(f"{own}/log.retention.ms", json={"value": "8888888"}).status_code == 204
    assert rest.http.delete(f"{own}/log.retention.ms").status_code == 204


# ACLs.


@pytest.mark.apache
def test_acls_are_created_found_and_deleted(apache_rest: Rest) -> None:
    rest = apache_rest
    path = f"{rest.cluster}/acls"
    acl = {
        "resource_type": "TOPIC",
        "resource_name": f"t-{uuid4().hex[:8]}",
        "pattern_type": "PREFIXED",
        "principal": "User:alice",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    created = rest.http.post(path, json=acl)
    assert (created.status_code, created.content) == (201, b"")
    query = {"resource_name": acl["resource_name"], "resource_type": "topic", "pattern_type": "PREFIXED"}
    rest.until(lambda: rest.http.get(path, params=query).json()["data"], "the ACL is shown")
    found = rest.http.get(path, params=query).json()
    assert found["kind"] == "KafkaAclList"
    [entry] = found["data"]
    assert {key: entry[key] for key in acl} == acl
    assert rest.http.get(created.headers["location"]).json()["data"] == [entry]
    assert rest.http.post(f"{path}:batch", json={"data": [acl, {**acl, "operation": "WRITE"}]}).status_code == 204
    deleted = rest.http.delete(path, params={**acl, "principal": "User:alice"})
    assert (deleted.status_code, [each["operation"] for each in deleted.json()["data"]]) == (200, ["READ"])


def test_listing_acls_without_an_authorizer_gets_40002(pessoa_rest: Rest) -> None:
    assert status_and_error_code(pessoa_rest.get(f"{pessoa_rest.cluster}/acls")) == (400, 40002)


@pytest.mark.parametrize("query", ["", "resource_type=TOPIC", "resource_type=ANY&pattern_type=LITERAL&operation=READ"])
def test_deleting_acls_with_an_incomplete_filter_is_refused(rest: Rest, query: str) -> None:
    assert status_and_error_code(rest.http.delete(f"{rest.cluster}/acls?{query}")) == (400, 400)


def test_listing_acls_of_an_unknown_operation_gets_400(rest: Rest) -> None:
    assert status_and_error_code(rest.get(f"{rest.cluster}/acls?operation=DANCE")) == (400, 400)


# Groups.


def test_a_consumer_group_is_shown_with_its_members_partitions_and_lag(rest: Rest) -> None:
    topic = rest.topic(2)
    rest.send("POST", f"/topics/{topic}/partitions/0", {"records": [{"value": 1}] * 5}, V2_JSON)
    rest.send("POST", f"/topics/{topic}/partitions/1", {"records": [{"value": 1}] * 3}, V2_JSON)
    consumer = rest.consumer(**{"auto.commit.enable": "false"})
    consumer.post("/subscription", {"topics": [topic]})
    consumer.read(8)
    done = {"offsets": [{"topic": topic, "partition": each, "offset": 1} for each in (0, 1)]}
    consumer.post("/offsets", done)
    path = f"{rest.cluster}/consumer-groups/{consumer.group}"
    group = get_ok(rest, path)
    assert (group["kind"], group["state"], group["type"]) == ("KafkaConsumerGroup", "STABLE", "CLASSIC")
    assert group["is_simple"] is False
    assert group["partition_assignor"] == "range"
    assert group in get_ok(rest, f"{rest.cluster}/consumer-groups")["data"]
    assert rest.http.get(group["coordinator"]["related"]).status_code == 200
    [member] = rest.http.get(group["consumers"]["related"]).json()["data"]
    assert (member["kind"], member["client_id"]) == ("KafkaConsumer", f"rest-proxy-{consumer.name}")
    assert rest.http.get(member["metadata"]["self"]).json() == member
    assignments = rest.http.get(member["assignments"]["related"]).json()["data"]
    assert [(each["topic_name"], each["partition_id"]) for each in assignments] == [(topic, 0), (topic, 1)]
    assert rest.http.get(assignments[1]["metadata"]["self"]).json() == assignments[1]
    lag = rest.http.get(assignments[0]["lag"]["related"]).json()
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (2, 5, 3)
    assert lag["consumer_id"] == member["consumer_id"]
    assert [each["lag"] for each in get_ok(rest, f"{path}/lags")["data"]] == [3, 1]
    summary = rest.http.get(group["lag_summary"]["related"]).json()
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (3, 4, 0)
    consumer.delete()
    # The lag is still shown when the group has no members.
    assert get_ok(rest, f"{path}/lags/{topic}/partitions/0")["consumer_id"] == ""


@pytest.mark.parametrize("tail", ["", "/consumers", "/consumers/x", "/lags", "/lag-summary"])
def test_an_unknown_consumer_group_gets_40405(rest: Rest, tail: str) -> None:
    assert status_and_error_code(rest.get(f"{rest.cluster}/consumer-groups/unknown{tail}")) == (404, 40405)


def test_an_unknown_member_and_the_lag_of_a_group_without_commits_get_404(rest: Rest) -> None:
    topic = rest.topic()
    rest.produce(topic, 1)
    consumer = rest.consumer(**{"auto.commit.enable": "false"})
    consumer.post("/subscription", {"topics": [topic]})
    consumer.read(1)
    path = f"{rest.cluster}/consumer-groups/{consumer.group}"
    for tail in ("/consumers/x", "/consumers/x/assignments", "/lags", "/lag-summary", f"/lags/{topic}/partitions/0"):
        assert status_and_error_code(rest.get(f"{path}{tail}")) == (404, 404), tail
    consumer.delete()
