"""What metrics count, how they are formatted, and the limits of the server that serves them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pessoa.base.clock import ManualClock, SystemClock
from pessoa.base.ids import Uuid
from pessoa.broker.api_table import row_of
from pessoa.broker.metrics.collectors import collect_quotas, collect_requests
from pessoa.broker.metrics.exposition import CONFLUENT, Exposition, label_text
from pessoa.broker.metrics.families import FAMILIES
from pessoa.broker.metrics.http_endpoint import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    REUSED_MS,
    HttpEndpoint,
    Page,
    SharedPage,
    text_page,
)
from pessoa.broker.metrics.metadata_counts import MetadataCounts
from pessoa.broker.metrics.recent_average import RecentAverage
from pessoa.broker.metrics.request_metrics import RequestMetrics
from pessoa.broker.metrics.time_quantiles import WINDOW_NS, TimeQuantiles, quantiles_ms
from pessoa.net.network import SystemNetwork
from pessoa.net.pending import Observation
from pessoa.quota.client_quotas import Reading
from pessoa.wire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pessoa.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from pessoa.wire.schema import Message
from tests.support.batches import plain
from tests.support.crash_wire import produce_request

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices

ORDERS = Uuid(bytes(range(16)))


def context(key: ApiKey, version: int) -> RequestContext:
    return RequestContext(key, version, 1, "c", "127.0.0.1", 1)


# ---- Text ----


def test_the_metrics_page_is_valid_prometheus_text_whatever_topics_are_called() -> None:
    out = Exposition()
    nasty = 'a"b\\c\nfake_metric 1\n\x1b[2J'
    out.add("kafka_server_brokertopicmetrics_bytesin_total", 7, topic=nasty)
    text = "".join(out.lines())
    families = {one.name: one for one in text_string_to_metric_families(text)}
    [sample] = families["kafka_server_brokertopicmetrics_bytesin"].samples
    assert sample.value == 7
    assert sample.labels["topic"] == 'a"b\\c\\nfake_metric 1\\n\\x1b[2J'
    assert "fake_metric" not in families
    assert "\x1b" not in text


def test_a_long_label_value_is_truncated() -> None:
    assert len(label_text(topic="x" * 10_000)) < 300


def test_every_family_is_listed_even_without_a_sample() -> None:
    text = "".join(Exposition().lines())
    assert all(f"# TYPE {name} {family.kind}\n" in text for name, family in FAMILIES.items())


def test_metrics_have_confluents_names_if_these_are_configured() -> None:
    out = Exposition(CONFLUENT)
    out.add("kafka_server_brokertopicmetrics_bytesin_total", 7, topic="t")
    out.add("kafka_network_socketserver_networkprocessoravgidle_percent", 0.5)
    out.add("kafka_consumergroup_lag", 3)
    out.add("pessoa_log_lines_dropped_total", 1)
    text = "".join(out.lines())
    for line in (
        '\nkafka_server_brokertopicmetrics_bytesinpersec{topic="t"} 7\n',
        "# TYPE kafka_server_brokertopicmetrics_bytesinpersec counter\n",
        "\nkafka_network_socketserver_networkprocessoravgidlepercent 0.5\n",
        "\nkafka_consumergroup_lag 3\n",
        "\npessoa_log_lines_dropped_total 1\n",
    ):
        assert line in text
    assert "bytesin_total" not in text


def test_adding_a_metric_that_is_not_declared_raises_key_error() -> None:
    with pytest.raises(KeyError):
        Exposition().add("kafka_of_my_own", 1)


# ---- Times ----


@pytest.mark.parametrize("exponent", range(40))
def test_a_bucket_is_at_most_a_quarter_wide(exponent: int) -> None:
    times = TimeQuantiles(0)
    duration_us = max(1, int(1.37 * (1 << exponent)))
    times.record(duration_us * 1000, 0)
    shown_us = times.quantiles_ms(0)[0][1] * 1000
    assert duration_us <= shown_us <= max(duration_us + 1, duration_us * 1.26)


def test_quantiles_are_those_of_the_distribution() -> None:
    times = TimeQuantiles(0)
    for _ in range(99):
        times.record(1_000_000, 0)
    times.record(1_000_000_000, 0)
    found = dict(times.quantiles_ms(0))
    assert 1 <= found[0.5] <= 1.25
    assert 1 <= found[0.98] <= 1.25
    assert 1000 <= found[0.999] <= 1250
    assert times.count == 100


def test_histogram_values_older_than_two_windows_are_dropped() -> None:
    times = TimeQuantiles(0)
    times.record(1_000_000_000, 0)
    times.record(1_000_000, WINDOW_NS + 1)
    assert dict(times.quantiles_ms(WINDOW_NS + 1))[0.999] >= 1000
    assert dict(times.quantiles_ms(2 * WINDOW_NS + 3))[0.999] < 2
    assert dict(times.quantiles_ms(9 * WINDOW_NS))[0.999] == 0
    assert times.count == 2


def bucket_of(microseconds: int) -> int:
    """Return the bucket by the number of bits and the two bits behind the first."""
    bits = microseconds.bit_length()
    return microseconds if bits < 3 else ((bits - 2) << 2) | ((microseconds >> (bits - 3)) & 3)


def test_a_duration_is_counted_in_the_bucket_that_its_quantile_is_read_from() -> None:
    for microseconds in [*range(100), *(7 << exponent for exponent in range(50))]:
        times = TimeQuantiles(0)
        times.record(microseconds * 1000, 0)
        assert times._current[bucket_of(microseconds)] == 1


# ---- Requests ----


def request_metrics(*names: str) -> RequestMetrics:
    """Return the metrics of a broker whose image has topics with these names; the id of the first is ORDERS."""
    return RequestMetrics(dict(zip([ORDERS], names, strict=False)).get, names.__contains__)


def begin(metrics: RequestMetrics, about: RequestContext, request: Message, size: int) -> Observation:
    return metrics.begin_of(row_of(ApiKey(about.api_key)))(about, request, size)


def produced(metrics: RequestMetrics, error: int, topic: str = "orders", version: int = 12) -> int:
    records = plain(3)
    request: ProduceRequest = produce_request(topic, records)
    answer = PartitionProduceResponse(index=0, error_code=error, base_offset=0)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[answer])], throttle_time_ms=0
    )
    begin(metrics, context(ApiKey.PRODUCE, version), request, 100).end(response, [b"x"])
    return len(records)


def test_produced_bytes_and_records_are_counted_by_topic_if_they_were_appended() -> None:
    metrics = request_metrics("orders")
    size = produced(metrics, 0)
    produced(metrics, ErrorCode.NOT_ENOUGH_REPLICAS)
    produced(metrics, ErrorCode.MESSAGE_TOO_LARGE)
    counts = metrics.topics["orders"]
    assert (counts.bytes_in, counts.messages_in, counts.produces, counts.failed_produces) == (size, 3, 3, 2)
    assert counts.bytes_rejected == size
    produce = metrics.apis[ApiKey.PRODUCE]
    assert produce.by_version == {12: 3}
    assert produce.errors == {ErrorCode.NOT_ENOUGH_REPLICAS: 1, ErrorCode.MESSAGE_TOO_LARGE: 1}
    assert produce.at_once.count == 3


@pytest.mark.parametrize("answered_name", ["", "orders"])
def test_a_batch_that_is_refused_by_the_id_of_its_topic_is_counted_as_failed(answered_name: str) -> None:
    """The handler may put the name beside the id in the response, which is not encoded in version 13."""
    metrics, records = request_metrics("orders"), plain(3)
    batches = [PartitionProduceData(index=index, records=memoryview(records)) for index in (0, 1)]
    topic = TopicProduceData(topic_id=ORDERS, partition_data=batches)
    request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
    answers = [
        PartitionProduceResponse(index=0, error_code=ErrorCode.NOT_ENOUGH_REPLICAS, base_offset=-1),
        PartitionProduceResponse(index=1, error_code=ErrorCode.NONE, base_offset=0),
    ]
    answer = TopicProduceResponse(name=answered_name, topic_id=ORDERS, partition_responses=answers)
    response = ProduceResponse(responses=[answer], throttle_time_ms=0)
    begin(metrics, context(ApiKey.PRODUCE, 13), request, 100).end(response, [b"x"])
    counts = metrics.topics["orders"]
    assert (counts.produces, counts.failed_produces, counts.messages_in) == (2, 1, 3)


def test_no_metrics_are_kept_for_topics_that_do_not_exist() -> None:
    metrics = request_metrics()
    for error in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NONE,
    ):
        produced(metrics, error, f"made-up-{error}")
    assert metrics.topics == {}


def fetched(metrics: RequestMetrics, replica_id: int, *sizes: int, error: int = 0) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], replica_id=replica_id)
    partitions = [
        PartitionData(
            partition_index=n,
            error_code=error,
            high_watermark=0,
            aborted_transactions=[],
            records=memoryview(bytes(size)),
        )
        for n, size in enumerate(sizes)
    ]
    topic = FetchableTopicResponse(topic_id=ORDERS, partitions=partitions)
    response = FetchResponse(throttle_time_ms=0, responses=[topic])
    begin(metrics, context(ApiKey.FETCH, 12), request, 100).end(response, [b"x"])


def test_what_consumers_and_followers_fetch_is_counted_apart() -> None:
    metrics = request_metrics("orders")
    fetched(metrics, -1, 10, 20)
    fetched(metrics, 2, 1000)
    counts = metrics.topics["orders"]
    assert (counts.bytes_out, counts.fetches, counts.failed_fetches) == (30, 2, 0)
    assert metrics.replicated_bytes == 1000


def test_a_fetch_of_a_topic_that_is_not_known_is_counted_as_an_error_of_the_api_alone() -> None:
    metrics = request_metrics()
    fetched(metrics, -1, 0, error=ErrorCode.UNKNOWN_TOPIC_ID)
    assert metrics.topics == {}
    assert metrics.apis[ApiKey.FETCH].errors == {ErrorCode.UNKNOWN_TOPIC_ID: 1}


def test_a_request_whose_client_has_disconnected_is_counted() -> None:
    metrics = request_metrics()
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    begin(metrics, context(ApiKey.HEARTBEAT, 4), request, 10).lose()
    begin(metrics, context(ApiKey.HEARTBEAT, 4), request, 10).end(HeartbeatResponse(error_code=25), [b""])
    assert metrics.apis[ApiKey.HEARTBEAT].at_once.count == 2
    assert metrics.apis[ApiKey.HEARTBEAT].errors == {25: 1}


def test_the_time_of_a_pending_request_is_split_into_local_and_remote_time() -> None:
    metrics, request = request_metrics(), HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    begin(metrics, context(ApiKey.HEARTBEAT, 4), request, 10).end(HeartbeatResponse(error_code=0), [b""])
    waiting = begin(metrics, context(ApiKey.HEARTBEAT, 4), request, 10)
    waiting.wait()
    waiting.end(HeartbeatResponse(error_code=0, throttle_time_ms=7), [b""])
    counts = metrics.apis[ApiKey.HEARTBEAT]
    parts = (counts.at_once, counts.waited, counts.served, counts.waiting, counts.throttled)
    assert [one.count for one in parts] == [1, 1, 1, 1, 1]
    out = Exposition()
    collect_requests(metrics, 0, out)
    text = "".join(out.lines())
    for name in ("totaltimems", "localtimems", "remotetimems"):
        assert f'kafka_network_requestmetrics_{name}_count{{request="Heartbeat"}} 2\n' in text
    assert 'kafka_network_requestmetrics_remotetimems{request="Heartbeat",quantile="0.5"} 0.0\n' in text
    assert 'kafka_network_requestmetrics_throttletimems_count{request="Heartbeat"} 1\n' in text


def test_quantiles_of_several_histograms_are_those_of_all_and_of_zeros() -> None:
    first, second, none = TimeQuantiles(0), TimeQuantiles(0), TimeQuantiles(0)
    for _ in range(60):
        first.record(1_000_000, 0)
    for _ in range(40):
        second.record(100_000_000, 0)
        none.record(5, 0)
    together = dict(quantiles_ms(0, first, second))
    assert 1 <= together[0.5] < 1.3
    assert 100 <= together[0.95] < 126
    with_zeros = dict(quantiles_ms(0, second, without=first))
    assert with_zeros[0.5] == 0
    assert 100 <= with_zeros[0.75] < 126
    assert dict(quantiles_ms(0, TimeQuantiles(0), without=none))[0.999] == 0


def test_offsets_that_groups_commit_are_counted() -> None:
    metrics = request_metrics()
    answers = [OffsetCommitResponsePartition(partition_index=index, error_code=index // 2) for index in range(3)]
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=answers)])
    request = OffsetCommitRequest(group_id="g", member_id="", topics=[])
    begin(metrics, context(ApiKey.OFFSET_COMMIT, 8), request, 10).end(response, [b""])
    assert metrics.committed_offsets == 2


def test_an_average_is_that_of_the_last_half_minute_or_whole_one() -> None:
    average = RecentAverage()
    assert average.read(5) == (0.0, 0)
    average.record(10, 10_000)
    average.record(20, 20_000)
    assert average.read(29_999) == (15.0, 20)
    average.record(60, 40_000)
    assert average.read(50_000) == (30.0, 60)
    assert average.read(60_000) == (60.0, 60)
    assert average.read(90_000) == (0.0, 0)


# ---- Metadata ----


def test_changes_of_the_in_sync_replicas_are_counted_by_their_leader() -> None:
    class Partition:
        def __init__(self, leader: int, *isr: int) -> None:
            self.leader, self.isr, self.elr = leader, isr, ()

    counts = MetadataCounts(1)
    compare: Callable[[Any, Any], None] = counts._compare
    compare(Partition(1, 1, 2, 3), Partition(1, 1, 2))
    compare(Partition(1, 1, 2), Partition(1, 1, 2, 3))
    compare(Partition(2, 1, 2), Partition(2, 2))
    assert (counts.isr_shrinks, counts.isr_expands, counts.unclean_elections) == (1, 1, 0)
    compare(Partition(2, 2), Partition(3, 3))
    assert counts.unclean_elections == 1


# ---- Quotas ----


class CountedReadings:
    """The parts of a broker that quota metrics need: usage of so many client ids, each with a little more than the
    last. `most_at_once` is how many were read while no other task had its turn."""

    def __init__(self, count: int) -> None:
        self.throttling = self
        self.most_at_once = 0
        self._count = count
        self._at_once = 0

    def readings(self) -> Iterator[Reading]:
        for number in range(self._count):
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            yield Reading("producer_byte_rate", "ann", f"c{number}", 10.0, float(number), 0, 0)

    async def take_turns(self) -> None:
        while True:
            self._at_once = 0
            await asyncio.sleep(0)


def test_other_tasks_have_their_turn_while_the_quotas_of_ten_thousand_client_ids_are_read() -> None:
    async def run() -> tuple[int, list[str]]:
        services, out = CountedReadings(10_000), Exposition()
        other = asyncio.ensure_future(services.take_turns())
        await asyncio.sleep(0)
        await collect_quotas(cast("BrokerServices", services), out)
        other.cancel()
        return services.most_at_once, "".join(out.lines()).splitlines()

    most_at_once, lines = asyncio.run(run())
    assert most_at_once <= 200
    shown = [line for line in lines if line.startswith("kafka_server_quota_byte_rate{")]
    assert [line.split()[-1] for line in shown] == [str(float(number)) for number in range(9_999, 9_899, -1)]


# ---- HTTP ----


async def hello() -> Page:
    return text_page(200, "hello\n")


async def broken() -> Page:
    raise ValueError("no page today")


def served(visit: Callable[[int], Awaitable[bytes]]) -> bytes:
    async def run() -> bytes:
        pages = {"/hello": hello, "/broken": broken}
        endpoint = HttpEndpoint(SystemNetwork(), "127.0.0.1", 0, pages, SystemClock())
        await endpoint.open()
        try:
            return await visit(endpoint.port)
        finally:
            endpoint.close()

    return asyncio.run(run())


def ask(data: bytes) -> bytes:
    async def visit(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), 30)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    return served(visit)


def test_a_page_is_served_and_the_connection_closed() -> None:
    answer = ask(b"GET /hello?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nhello\n")
    assert b"Connection: close" in answer


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"HEAD /hello HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /else HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /hello HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /broken HTTP/1.0\r\n\r\n", b"500"),
    ],
)
def test_a_bad_http_request_to_the_metrics_endpoint_is_answered_with_its_status(
    request_head: bytes, status: bytes
) -> None:
    answer = ask(request_head)
    assert answer.split()[1] == status
    if request_head.startswith(b"HEAD"):
        assert answer.endswith(b"\r\n\r\n")


def test_an_http_request_head_that_is_too_long_closes_the_connection() -> None:
    assert ask(b"GET /hello HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD_BYTES + 1)) == b""


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), 30) == b""
    except ConnectionError:
        return True


def test_the_metrics_endpoint_closes_silent_connections_to_serve_new_ones() -> None:
    """The oldest of them is closed for each that comes."""

    async def visit(port: int) -> bytes:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MAX_CONNECTIONS)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /hello HTTP/1.1\r\n\r\n")
        try:
            for silent, _ in opened[: 2 * MAX_CONNECTIONS]:
                assert await is_closed(silent)
            return await asyncio.wait_for(reader.read(), 30)
        finally:
            for _, one in [*opened, (reader, writer)]:
                one.close()

    assert served(visit).endswith(b"hello\n")


class SlowPage:
    """A page that is built when the test releases it."""

    def __init__(self) -> None:
        self.made = 0
        self.go = asyncio.Event()
        self._begun = asyncio.Semaphore(0)

    async def waited_for_by(self, count: int) -> None:
        for _ in range(count):
            await self._begun.acquire()

    async def make(self) -> Page:
        self._begun.release()
        await self.go.wait()
        self.made += 1
        return text_page(200, f"page {self.made}\n")


def test_a_connection_that_waits_for_its_page_is_not_closed_in_favour_of_another() -> None:
    async def run() -> list[bytes]:
        slow = SlowPage()
        endpoint = HttpEndpoint(SystemNetwork(), "127.0.0.1", 0, {"/slow": slow.make}, SystemClock())
        await endpoint.open()
        opened = []
        for _ in range(MAX_CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
            writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
            opened.append((reader, writer))
        await asyncio.wait_for(slow.waited_for_by(MAX_CONNECTIONS), 30)
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        assert await is_closed(reader)
        writer.close()
        slow.go.set()
        answers = [await asyncio.wait_for(one.read(), 30) for one, _ in opened]
        for _, writer in opened:
            writer.close()
        endpoint.close()
        return answers

    assert all(b"200 OK" in one for one in asyncio.run(run()))


def test_a_page_is_built_once_for_concurrent_requests_and_cached_for_a_second() -> None:
    async def run() -> None:
        slow, clock = SlowPage(), ManualClock()
        page = SharedPage(slow.make, clock)
        waiting = [asyncio.ensure_future(page.get()) for _ in range(10)]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        slow.go.set()
        assert {one.body for one in await asyncio.gather(*waiting)} == {b"page 1\n"}
        clock.advance_ms(REUSED_MS - 1)
        assert (await page.get()).body == b"page 1\n"
        clock.advance_ms(1)
        assert (await page.get()).body == b"page 2\n"

    asyncio.run(run())


def test_a_page_whose_building_failed_is_built_again() -> None:
    async def run() -> None:
        outcomes = [broken, hello]

        async def make() -> Page:
            return await outcomes.pop(0)()

        page = SharedPage(make, ManualClock())
        with pytest.raises(ValueError, match="no page today"):
            await page.get()
        assert (await page.get()).body == b"hello\n"

    asyncio.run(run())


def test_the_port_is_free_after_closing() -> None:
    ports: list[int] = []

    async def visit(port: int) -> bytes:
        ports.append(port)
        return b""

    served(visit)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", ports[0]))
