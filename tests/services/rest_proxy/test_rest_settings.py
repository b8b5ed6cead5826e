"""Settings of the REST proxy: users, disabled APIs, advertised listeners; and its metrics and health."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.services.rest_proxy.stage import V2_JSON, proxy_in_front_of


def test_a_users_file_requires_a_valid_login_and_role(pessoa_cluster: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann: secret, admin\nbob: other, guest\n")
    settings = {"pessoa_authentication_users_file": str(users), "authentication_roles": "admin"}
    with proxy_in_front_of(pessoa_cluster, **settings) as rest:
        assert rest.get("/topics").status_code == 401
        assert rest.http.get("/topics", auth=("ann", "wrong")).json()["error_code"] == 401
        assert rest.http.get("/topics", auth=("bob", "other")).status_code == 403
        assert rest.http.get("/topics", auth=("ann", "secret")).status_code == 200
        assert rest.get("/health").status_code == 200


def test_the_v3_api_can_be_disabled_and_single_endpoints_blocked(pessoa_cluster: str) -> None:
    with proxy_in_front_of(pessoa_cluster, api_v3_enable="false") as rest:
        assert (rest.get("/v3/clusters").status_code, rest.get("/topics").status_code) == (404, 200)
    blocked = {"api_endpoints_blocklist": "api.v3.acls, api.v2.topics.list"}
    with proxy_in_front_of(pessoa_cluster, **blocked) as rest:
        assert rest.get("/topics").status_code == 404
        assert rest.get(f"{rest.cluster}/acls").status_code == 404
        assert rest.get(f"{rest.cluster}/topics").status_code == 200


def test_urls_in_responses_use_the_advertised_listener(pessoa_cluster: str) -> None:
    with proxy_in_front_of(pessoa_cluster, advertised_listeners="https://s.example:443,http://a.example:80") as rest:
        body: dict[str, str] = {}
        created = rest.send("POST", "/consumers/g-advertised", body).json()
        assert created["base_uri"].startswith("http://a.example/consumers/g-advertised/instances/rest-consumer-")
        assert rest.get("/v3/clusters").json()["metadata"]["self"] == "http://a.example/v3/clusters"


def test_metrics_count_written_and_failed_records_and_consumer_instances(pessoa_cluster: str) -> None:
    with proxy_in_front_of(pessoa_cluster) as rest:
        topic = rest.topic()
        rest.produce(topic, 1, 2, "x" * 2_000_000)
        consumer = rest.consumer()
        page = rest.get("/metrics").text
        assert "rest_proxy_records_written_total 2.0" in page
        assert "rest_proxy_records_failed_total 1.0" in page
        assert "rest_proxy_consumer_instances 1.0" in page
        consumer.delete()
        assert "rest_proxy_consumer_instances 0.0" in rest.get("/metrics").text


def test_health_answers_503_while_the_cluster_is_unreachable() -> None:
    with proxy_in_front_of("127.0.0.1:1") as rest:
        answer = rest.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
        assert rest.get("/").status_code == 200


def test_300_concurrent_produce_requests_are_all_written(pessoa_cluster: str) -> None:
    import asyncio

    with proxy_in_front_of(pessoa_cluster) as rest:
        topic = rest.topic(3)

        async def all_callers() -> list[int]:
            async with httpx.AsyncClient(base_url=rest.url, trust_env=False, timeout=60) as http:
                body = {"records": [{"value": 1}]}
                headers = {"content-type": V2_JSON}
                answers = await asyncio.gather(
                    *(http.post(f"/topics/{topic}", json=body, headers=headers) for _ in range(300))
                )
            return [answer.json()["offsets"][0]["error_code"] for answer in answers]

        assert asyncio.run(all_callers()) == [None] * 300
        ends = [rest.get(f"/topics/{topic}/partitions/{each}/offsets").json()["end_offset"] for each in range(3)]
        assert sum(ends) == 300
