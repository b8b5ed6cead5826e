"""The control centre without a browser, on a real broker: what it shows, searches, tails and changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pessoa.base.config_values import ConfigProblem
from pessoa.client.config_admin import ResourceType
from pessoa.control_center.accounts import Person
from pessoa.control_center.api.endpoints import endpoints
from pessoa.control_center.center import Center, cluster_rows
from pessoa.control_center.center_app import api_app
from pessoa.control_center.center_config import from_properties
from pessoa.control_center.filter_expressions import compile_filter
from pessoa.control_center.group_details import reset_share_offsets
from pessoa.control_center.message_reading import Message, MessageQuery
from pessoa.control_center.offset_reset import Ends
from pessoa.control_center.texts import Text
from pessoa.testing import Broker
from pessoa.web.problems import HttpProblem
from tests.tools.streams_member import streams_member

T = TypeVar("T")
ADMIN = Person("ada", "admin")
READER = Person("ruy", "reader")
NO_SERVICES = {
    "confluent.controlcenter.schema.registry.url": "", "confluent.controlcenter.connect.cluster": "",
    "confluent.controlcenter.ksql.url": "", "pessoa.control.center.pipelines.url": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@asynccontextmanager
async def center_of(broker: Broker, **settings: str) -> AsyncIterator[Center]:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    center = Center(from_properties({"bootstrap.servers": broker.bootstrap_servers, **NO_SERVICES, **given}))
    async with center.running():
        yield center


def with_center(broker: Broker, act: Callable[[Center], Awaitable[T]], **settings: str) -> T:
    async def run() -> T:
        async with center_of(broker, **settings) as center:
            return await act(center)

    return asyncio.run(run())


def produce(broker: Broker, topic: str, values: list[str], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number, value in enumerate(values):
        producer.produce(topic, value, f"k-{number}", partition, headers=[("n", str(number))])
    assert producer.flush(30) == 0


async def find_messages(center: Center, query: MessageQuery) -> list[Message]:
    """Return all messages that the query finds."""
    scan = await center.messages(ADMIN, query)
    found = [one async for batch in scan.batches() for one in batch]
    assert scan.progress.error is None
    return found


def test_a_topic_is_created_configured_extended_emptied_and_deleted(broker: Broker) -> None:
    async def act(center: Center) -> None:
        await center.create_topic(ADMIN, "shop", 2, 1, {"retention.ms": "5000", "segment.bytes": "2000000"})
        rows = {one.name: one for one in await center.configs(ResourceType.TOPIC, "shop")}
        assert (rows["segment.bytes"].value, rows["segment.bytes"].default) == ("2000000", "1073741824")
        assert rows["retention.ms"].doc
        assert not rows["retention.ms"].is_default
        await center.set_config(ADMIN, ResourceType.TOPIC, "shop", "retention.ms", None)
        rows = {one.name: one for one in await center.configs(ResourceType.TOPIC, "shop")}
        assert rows["retention.ms"].is_default
        await center.add_partitions(ADMIN, "shop", 3)
        assert await center.produce(ADMIN, "shop", b"k", b"v", [("h", b"1")], 2) == (2, 0)
        view = await center.watch.topic("shop")
        assert (len(view.partitions), view.messages) == (3, 1)
        await center.empty_topic(ADMIN, "shop")
        assert (await center.watch.topic("shop")).messages == 0
        await center.delete_topic(ADMIN, "shop")
        with pytest.raises(HttpProblem, match="no topic shop"):
            await center.watch.topic("shop")
        assert [one.action for one in center.audit.entries][-1] == "delete topic"

    with_center(broker, act)


def test_a_change_by_a_user_with_the_role_reader_is_refused_and_written_to_the_audit_log(
    broker: Broker, tmp_path: Path
) -> None:
    async def act(center: Center) -> None:
        with pytest.raises(HttpProblem) as refused:
            await center.create_topic(READER, "never", 1, 1, {})
        assert refused.value.status == 403
        assert "never" not in (await center.watch.image(0.0)).topics

    with_center(broker, act, pessoa_control_center_data_dir=str(tmp_path))
    assert "needs the role editor" in (tmp_path / "control-center-audit.log").read_text()


def test_messages_are_found_by_text_filter_offset_and_time(broker: Broker) -> None:
    async def act(center: Center) -> None:
        await center.create_topic(ADMIN, "search", 1, 1, {})
        values = [f'{{"n": {number}, "city": "{"Évora" if number == 77 else "Porto"}"}}' for number in range(3000)]
        await asyncio.to_thread(produce, broker, "search", values)
        assert [one.offset for one in await find_messages(center, MessageQuery("search", search="évora"))] == [77]
        assert [one.offset for one in await find_messages(center, MessageQuery("search", search="2999"))] == [2999]
        typed = MessageQuery("search", search='"N": 1500, "city"')
        assert [one.offset for one in await find_messages(center, typed)] == [1500]
        passes = compile_filter('headers.n == "1234"')
        assert [one.offset for one in await find_messages(center, MessageQuery("search", passes=passes))] == [1234]
        assert len(await find_messages(center, MessageQuery("search", limit=20))) == 20
        from_offset = await find_messages(center, MessageQuery("search", "offset", 2990, limit=5))
        assert [one.offset for one in from_offset] == [2990, 2991, 2992, 2993, 2994]
        assert await find_messages(center, MessageQuery("search", "time", 4_000_000_000_000)) == []
        assert len(await find_messages(center, MessageQuery("search", "time", 1, limit=7))) == 7

    with_center(broker, act)


def test_a_stopped_message_scan_ends(broker: Broker) -> None:
    async def act(center: Center) -> None:
        await center.create_topic(ADMIN, "stopped", 1, 1, {})
        await asyncio.to_thread(produce, broker, "stopped", ["x" * 200] * 20_000)
        scan = await center.messages(ADMIN, MessageQuery("stopped", "earliest", search="x", limit=1000))
        scan.stop()
        async with asyncio.timeout(30):
            async for _ in scan.batches():
                continue
        assert scan.progress.is_done

    with_center(broker, act)


def test_a_live_tail_with_a_slow_reader_loses_no_messages(broker: Broker) -> None:
    count = 6000

    async def act(center: Center) -> list[str]:
        await center.create_topic(ADMIN, "tail", 1, 1, {})
        scan = await center.messages(ADMIN, MessageQuery("tail", "live"))
        await asyncio.to_thread(produce, broker, "tail", [f"v-{number}" for number in range(count)])
        found: list[str] = []
        async with asyncio.timeout(60):
            async for batch in scan.batches():
                found += [str(one.value) for one in batch]
                # The reader is slower than the producer; messages that it has not read stay in the broker.
                await asyncio.sleep(0.01)
                if len(found) >= count:
                    break
        return found

    assert with_center(broker, act) == [f"v-{number}" for number in range(count)]


def test_masked_fields_are_hidden_from_readers_in_values_filters_and_searches(broker: Broker) -> None:
    async def act(center: Center) -> None:
        await center.create_topic(ADMIN, "cards", 1, 1, {})
        await asyncio.to_thread(produce, broker, "cards", ['{"card": "4000", "city": "Faro"}'])
        hidden = center.hidden_paths("cards", READER)
        assert center.hidden_paths("cards", ADMIN) == ()
        (one,) = await find_messages(center, MessageQuery("cards", hidden=hidden))
        assert one.value == {"card": "••••", "city": "Faro"}
        guess = compile_filter('value.card == "4000"')
        assert await find_messages(center, MessageQuery("cards", hidden=hidden, passes=guess)) == []
        assert await find_messages(center, MessageQuery("cards", hidden=hidden, search="4000")) == []

    with_center(broker, act, pessoa_control_center_masks="cards: value.card")


def test_a_consumer_group_shows_its_lag_and_is_reset_as_previewed_and_deleted(broker: Broker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})

    async def act(center: Center) -> None:
        await center.create_topic(ADMIN, "lagging", 1, 1, {})
        # The sampler may have cached the ends before the records were produced; the group's page reads them itself.
        await center.watch.ends(["lagging"])
        await asyncio.to_thread(produce, broker, "lagging", [str(number) for number in range(100)])
        await asyncio.to_thread(lambda: consumer.commit(offsets=[TopicPartition("lagging", 0, 30)], asynchronous=False))
        view = await center.group("readers")
        assert (view.lag, view.why_no_reset) == (70, None)
        rows = await center.plan_reset("readers", "lagging", "shift", -10)
        assert [(one.current, one.target) for one in rows] == [(30, 20)]
        await center.reset_offsets(ADMIN, "readers", rows)
        assert (await center.group("readers")).lag == 80
        await center.watch.sample()
        assert center.watch.history.last("lag:readers") == 80
        await center.delete_group(ADMIN, "readers")
        with pytest.raises(HttpProblem, match="no group"):
            await center.group("readers")

    with_center(broker, act)
    consumer.close()


def test_topics_are_paged_sorted_and_searched_on_the_server(broker: Broker) -> None:
    async def act(center: Center) -> None:
        for number in range(7):
            await center.create_topic(ADMIN, f"page-{number}", 1, 1, {})
        await asyncio.to_thread(produce, broker, "page-3", ["x"] * 9)
        first = await center.watch.topic_page(search="page-", per_page=3)
        assert (first.total, [one.name for one in first.topics]) == (7, ["page-0", "page-1", "page-2"])
        most = await center.watch.topic_page(search="page-", sort="messages", descending=True, per_page=2)
        assert (most.topics[0].name, most.topics[0].messages) == ("page-3", 9)
        last = await center.watch.topic_page(search="page-", page=99, per_page=3)
        assert (last.page, len(last.topics)) == (3, 1)
        mine = await center.watch.topic_page(search="page-", favourites=frozenset({"page-6"}), per_page=2)
        assert mine.topics[0].name == "page-6"

    with_center(broker, act)


def test_the_overview_shows_the_health_of_the_cluster_and_the_services_that_are_not_configured(broker: Broker) -> None:
    async def act(center: Center) -> None:
        view = await center.overview(Text("pt"))
        assert view.health.startswith("Tudo em ordem: 1 broker")
        assert view.controller == view.brokers[0].id
        assert [one.is_up for one in view.services] == [False] * 4
        assert "is not configured here" in view.services[0].note

    with_center(broker, act)


def test_quotas_and_scram_users_are_set_and_removed(broker: Broker) -> None:
    async def act(center: Center) -> None:
        await center.set_quota(ADMIN, {"user": "bo"}, {"producer_byte_rate": 1000.0})
        assert ({"user": "bo"}, {"producer_byte_rate": 1000.0}) in await center.quotas()
        await center.set_quota(ADMIN, {"user": "bo"}, {"producer_byte_rate": None})
        assert all(entity != {"user": "bo"} for entity, _ in await center.quotas())
        await center.set_user(ADMIN, "bo", "a password")
        assert await center.users() == {"bo": ["SCRAM-SHA-512"]}
        await center.set_user(ADMIN, "bo", None)
        assert await center.users() == {}

    with_center(broker, act)


def test_an_unreachable_cluster_is_reported_within_seconds() -> None:
    with Broker() as gone:
        servers = gone.bootstrap_servers

    async def act() -> str:
        center = Center(from_properties({"bootstrap.servers": servers, **NO_SERVICES}))
        async with center.running():
            with pytest.raises(HttpProblem) as said:
                await center.watch.image()
            return said.value.message

    assert "No broker answered within 5 s" in asyncio.run(act())


def test_the_ends_of_a_partition_are_its_earliest_and_latest_offset(broker: Broker) -> None:
    async def act(center: Center) -> None:
        await center.create_topic(ADMIN, "ends", 1, 1, {})
        await asyncio.to_thread(produce, broker, "ends", ["a", "b"])
        assert await center.watch.ends(["ends"], age_s=0.0) == {"ends": {0: Ends(0, 2)}}

    with_center(broker, act)


def test_the_openapi_document_describes_every_endpoint_and_message_field(broker: Broker) -> None:
    async def act(center: Center) -> None:
        document = msgspec.json.decode(msgspec.json.encode(api_app(center).openapi()))
        assert set(document["paths"]) == {one.path for one in endpoints(center)}
        message = document["components"]["schemas"]["DescribedMessage"]["properties"]
        assert set(message) == {one.name for one in msgspec.structs.fields(Message)}

    with_center(broker, act)


def test_a_share_group_shows_its_start_offsets_which_are_reset_and_deleted(broker: Broker) -> None:
    async def act(center: Center) -> None:
        await center.create_topic(ADMIN, "shared", 2, 1, {})
        await asyncio.to_thread(produce, broker, "shared", ["a", "b", "c"], 1)
        # Resetting its offsets creates the group.
        wanted = {("shared", 0): 0, ("shared", 1): 1}
        await center.link.ask(lambda cluster: reset_share_offsets(cluster, "workers", wanted))
        center.watch.forget()
        view = await center.group("workers")
        assert (view.kind, view.state, view.members, view.why_no_reset) == ("share", "Empty", [], None)
        assert [(one.partition, one.committed, one.lag) for one in view.offsets] == [(0, 0, 0), (1, 1, 2)]
        row = next(one for one in await center.watch.group_rows() if one.id == "workers")
        assert (row.kind, row.topics, row.lag) == ("share", ["shared"], 2)
        planned = await center.plan_reset("workers", "shared", "latest", None)
        assert [(one.current, one.target) for one in planned] == [(0, 0), (1, 3)]
        await center.reset_offsets(ADMIN, "workers", planned)
        assert [one.committed for one in (await center.group("workers")).offsets] == [0, 3]
        with pytest.raises(HttpProblem):
            await center.forget_share_topic(READER, "workers", "shared")
        await center.forget_share_topic(ADMIN, "workers", "shared")
        assert (await center.group("workers")).offsets == []
        await center.delete_group(ADMIN, "workers")
        assert "workers" not in await center.watch.groups(0.0)

    with_center(broker, act)


def test_several_clusters_have_their_own_topics_and_share_users_and_the_audit_log(broker: Broker) -> None:
    with Broker() as other:

        async def act(center: Center) -> None:
            test = center.of_cluster("test")
            await test.create_topic(ADMIN, "only-there", 1, 1, {})
            assert "only-there" in (await test.watch.image()).topics
            assert "only-there" not in (await center.watch.image(0.0)).topics
            assert center.audit.entries[-1].target == "test: only-there"
            assert test.accounts is center.accounts
            rows = await cluster_rows(center, Text())
            assert [(one.name, one.brokers) for one in rows] == [("main", 1), ("test", 1)]
            with pytest.raises(HttpProblem, match="there are main, test"):
                center.of_cluster("nowhere")

        settings = {"confluent.controlcenter.kafka.test.bootstrap.servers": other.bootstrap_servers}
        with_center(broker, act, **settings)


def test_a_further_cluster_without_brokers_or_with_the_name_of_the_first_is_refused() -> None:
    with pytest.raises(ConfigProblem, match="addresses of its brokers"):
        from_properties({"confluent.controlcenter.kafka.test.ksql.url": "http://localhost:8088"})
    with pytest.raises(ConfigProblem, match="has this name as well"):
        from_properties({"confluent.controlcenter.kafka.main.bootstrap.servers": "localhost:9092"})
    found = from_properties({"confluent.controlcenter.kafka.test.bootstrap.servers": "b:1",
                             "confluent.controlcenter.kafka.test.security.protocol": "SSL",
                             "confluent.controlcenter.kafka.test.ksql.url": "http://k:1"})  # fmt: skip
    test = found.further["test"]
    assert (test.bootstrap_servers, test.ksql_url, test.connect_url) == ("b:1", "http://k:1", "")
    assert test.client["security.protocol"] == "SSL"
    assert "security.protocol" not in found.client


def test_limits_refuse_a_user_messages_and_changes_of_other_topics_and_groups(broker: Broker) -> None:
    editor = Person("edu", "editor")

    async def act(center: Center) -> None:
        await center.create_topic(ADMIN, "salaries", 1, 1, {})
        await center.create_topic(editor, "orders-eu", 1, 1, {})
        await center.produce(editor, "orders-eu", None, b"mine")
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: center.messages(editor, MessageQuery("salaries")),
            lambda: center.analyse(editor, "salaries"),
            lambda: center.produce(editor, "salaries", None, b"more"),
            lambda: center.create_topic(editor, "other", 1, 1, {}),
            lambda: center.add_partitions(editor, "salaries", 2),
            lambda: center.reset_offsets(editor, "payroll", []),
        ]
        for one in refused:
            with pytest.raises(HttpProblem, match=r"pessoa\.control\.center\.limits") as problem:
                await one()
            assert problem.value.status == 403
        with pytest.raises(HttpProblem, match="a query would show them"):
            center.demand_queries(editor)
        center.demand_queries(ADMIN)
        scan = await center.analyse(editor, "orders-eu")
        async for _ in scan.batches():
            continue
        assert scan.report().messages == 1

    with_center(broker, act, **{"pessoa.control.center.limits": "edu: topic orders*, group billing*"})


def test_a_streams_group_shows_its_tasks_source_partitions_and_internal_topics(broker: Broker) -> None:
    async def act(center: Center) -> None:
        await center.create_topic(ADMIN, "words", 2, 1, {})
        await asyncio.to_thread(streams_member, broker.bootstrap_servers, "join", "counting", "words")
        center.watch.forget()
        view = await center.group("counting")
        assert (view.kind, view.state, len(view.members)) == ("streams", "Stable", 1)
        assert "task 0_1" in view.members[0].tasks
        assert ("words", 1) in view.members[0].partitions
        assert view.internal_topics == ["counting-by-key-repartition", "counting-counts-changelog"]
        assert view.why_no_reset is not None
        row = next(one for one in await center.watch.group_rows() if one.id == "counting")
        assert row.kind == "streams"
        await asyncio.to_thread(streams_member, broker.bootstrap_servers, "leave", "counting", "words")

    with_center(broker, act)


def test_a_topic_is_copied_to_another_cluster_with_keys_headers_and_timestamps(broker: Broker) -> None:
    with Broker() as other:

        async def act(center: Center) -> None:
            test = center.of_cluster("test")
            await center.create_topic(ADMIN, "copied", 2, 1, {})
            await test.create_topic(ADMIN, "arrived", 3, 1, {})
            produce(broker, "copied", [f"v-{number}" for number in range(500)])
            with pytest.raises(HttpProblem, match="itself"):
                await center.copy_topic(ADMIN, "copied", "copied")
            with pytest.raises(HttpProblem, match="nowhere"):
                await center.copy_topic(ADMIN, "copied", "nowhere", "test")
            with pytest.raises(HttpProblem, match="does not see all fields"):
                await center.copy_topic(Person("edu", "editor"), "copied", "arrived", "test")
            scan = await center.copy_topic(ADMIN, "copied", "arrived", "test")
            assert [one async for one in scan.batches()] == []
            assert (scan.copied, scan.progress.error) == (500, None)

            def whole(found: list[Message]) -> set[tuple[object, ...]]:
                return {(one.key, one.value, str(one.headers), one.timestamp) for one in found}

            before = await find_messages(center, MessageQuery("copied", "earliest", limit=1000))
            after = await find_messages(test, MessageQuery("arrived", "earliest", limit=1000))
            assert len(after) == 500
            assert whole(after) == whole(before)
            assert {one.partition for one in after} == {0, 1, 2}

        settings = {"confluent.controlcenter.kafka.test.bootstrap.servers": other.bootstrap_servers}
        with_center(broker, act, **settings, **{"pessoa.control.center.masks": "copied: value.card"})
