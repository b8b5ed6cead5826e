"""Client telemetry (KIP-714): responses of a broker, the metrics that clients push, and their export."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pessoa.base.clock import ManualClock
from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.broker.metrics import client_telemetry, pushed_metrics
from pessoa.broker.metrics.client_telemetry import ClientInstance, ClientTelemetry
from pessoa.broker.metrics.collectors import pushed_lines
from pessoa.broker.metrics.otlp_metrics import MOST_FIELDS, MalformedMetrics, Point, read_points
from pessoa.broker.metrics.pushed_metrics import MOST_SAMPLES, MOST_SAMPLES_OF_CLIENT, Push, PushedMetrics
from pessoa.broker.metrics.telemetry_subscriptions import Subscriptions
from pessoa.metadata.delta import MetadataDelta
from pessoa.metadata.image import ConfigResource, MetadataImage
from pessoa.net.connection import Connection
from pessoa.records.compression import Codec, compress
from pessoa.wire.api.api_versions import ApiVersionsRequest
from pessoa.wire.api.push_telemetry import PushTelemetryRequest
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from pessoa.wire.stored.metadata_records import ConfigRecord
from tests.support.otlp import counter, gauge, metrics

INTERVAL_MS = 1000
ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))
MAX_BYTES = 200_000


def context(connection_id: int = 1, client_id: str | None = "c") -> RequestContext:
    return RequestContext(ApiKey.PUSH_TELEMETRY, 0, 1, client_id, "127.0.0.1", connection_id, principal="User:ann")


class Stage:
    """A broker's telemetry with a clock that does not advance."""

    def __init__(self, **subscriptions: Mapping[str, str]) -> None:
        self.clock = ManualClock(1_000_000)
        ids = random.Random(7)
        self.telemetry = ClientTelemetry(
            self.clock, lambda: Uuid(ids.randbytes(16)), MAX_BYTES, lambda connection_id: str(4000 + connection_id)
        )
        self.image = MetadataImage.EMPTY
        for name, configs in subscriptions.items():
            self.alter(name, **configs)

    def alter(self, subscription: str, **configs: str | None) -> None:
        delta = MetadataDelta(self.image)
        for key, value in configs.items():
            delta.replay(
                ConfigRecord(
                    resource_type=ConfigResource.CLIENT_METRICS,
                    resource_name=subscription,
                    name=key.replace("interval_ms", "interval.ms"),
                    value=value,
                )
            )
        delta.finish(self.image.offset + 1, 1)
        self.image = delta.new
        self.telemetry.follow(delta)

    def ask(self, instance_id: Uuid = ID, connection_id: int = 1) -> ClientInstance | ErrorCode:
        return self.telemetry.subscribe(instance_id, context(connection_id))

    def instance(self, instance_id: Uuid = ID) -> ClientInstance:
        found = self.ask(instance_id)
        assert isinstance(found, ClientInstance)
        return found

    def push(
        self,
        subscription_id: int,
        data: bytes = b"",
        *,
        instance_id: Uuid = ID,
        codec: int = Codec.NONE,
        is_last: bool = False,
    ) -> ErrorCode:
        request = PushTelemetryRequest(
            client_instance_id=instance_id,
            subscription_id=subscription_id,
            terminating=is_last,
            compression_type=codec,
            metrics=data,
        )
        return asyncio.run(self.telemetry.push(request, context()))

    def page(self) -> str:
        return asyncio.run(pushed_lines(self.telemetry, self.clock.monotonic_ms()))

    def samples(self) -> dict[str, float]:
        families = text_string_to_metric_families(self.page())
        return {sample.name: sample.value for family in families for sample in family.samples}


ALL = {"metrics": "*", "interval_ms": str(INTERVAL_MS)}


# ---- Subscriptions ----


def test_a_client_gets_the_metrics_of_all_subscriptions_that_match_and_the_shortest_interval() -> None:
    stage = Stage(
        one={"metrics": "a.,b.", "interval_ms": "5000"},
        two={"metrics": "b.,c.", "interval_ms": "2000", "match": "client_id=c,client_source_address=127.*"},
        three={"metrics": "d.", "interval_ms": "100", "match": "client_id=other"},
    )
    wanted = stage.instance().wanted
    assert set(wanted.metrics) == {"a.", "b.", "c."}
    assert wanted.interval_ms == 2000


def test_a_star_subscribes_to_all_metrics_and_a_client_without_subscription_pushes_none() -> None:
    assert Stage(one={"metrics": "a.,*"}).instance().wanted.metrics == ("*",)
    nothing = Stage().instance().wanted
    assert (nothing.metrics, nothing.interval_ms) == ((), 300_000)


@pytest.mark.parametrize(
    ("match", "is_match"),
    [
        ("client_id=c", True),
        ("client_id=.", True),
        ("client_id=d", False),
        # The whole of it has to match.
        ("client_software_name=apache-kafka", False),
        ("client_software_name=apache-kafka-java,client_software_version=4[.].*", True),
        ("client_software_name=apache-kafka-java,client_software_version=3[.].*", False),
        ("client_source_port=4001", True),
        ("client_source_port=4002", False),
        (f"client_instance_id={ID}", True),
    ],
)
def test_a_subscription_matches_clients_by_what_is_known_of_them(match: str, is_match: bool) -> None:
    stage = Stage(one=ALL | {"match": match})
    told = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.3.1")
    asked = RequestContext(ApiKey.API_VERSIONS, 3, 1, "c", "127.0.0.1", 1)
    stage.telemetry.begin(asked, told, 10)
    assert stage.instance().wanted.metrics == (("*",) if is_match else ())


def test_a_condition_about_a_client_id_matches_no_client_without_one() -> None:
    stage = Stage(one=ALL | {"match": "client_id=.*"})
    found = stage.telemetry.subscribe(ID, context(client_id=None))
    assert isinstance(found, ClientInstance)
    assert found.wanted.metrics == ()


def test_a_subscription_with_an_expression_that_only_java_knows_matches_no_client() -> None:
    stage = Stage(one=ALL | {"match": "client_id=(?=c)."}, two={"metrics": "a."})
    assert stage.instance().wanted.metrics == ("a.",)


def test_the_subscription_id_changes_with_metrics_interval_and_instance() -> None:
    stage = Stage(one={"metrics": "a.,b.", "interval_ms": "5000"})
    first = stage.instance().subscription_id
    assert first == Stage(other={"metrics": "b.,a.", "interval_ms": "5000"}).instance().subscription_id
    assert first != stage.instance(OTHER_ID).subscription_id
    assert first != Stage(one={"metrics": "a.,b.", "interval_ms": "200"}).instance().subscription_id
    assert first != Stage(one={"metrics": "a.", "interval_ms": "5000"}).instance().subscription_id


def test_deleted_client_metrics_subscriptions_match_no_client() -> None:
    stage = Stage(one=ALL)
    stage.alter("one", metrics=None, interval_ms=None)
    assert stage.instance().wanted.metrics == ()
    subscriptions = Subscriptions()
    subscriptions.put("never", {})
    assert subscriptions.version == 0


# ---- Answers ----


def test_a_client_without_an_id_gets_one() -> None:
    stage = Stage(one=ALL)
    first, second = stage.instance(ZERO_UUID), stage.instance(ZERO_UUID)
    assert len({first.id, second.id, ZERO_UUID}) == 3


def test_get_telemetry_subscriptions_before_the_interval_is_throttled_unless_subscriptions_have_changed() -> None:
    stage = Stage(one=ALL)
    stage.instance()
    assert stage.ask() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    stage.alter("one", metrics="a.")
    assert stage.instance().wanted.metrics == ("a.",)
    stage.clock.advance_ms(INTERVAL_MS)
    stage.instance()
    assert stage.telemetry.throttle_count == 1


def test_a_client_pushes_once_after_it_has_asked_and_then_once_in_an_interval() -> None:
    stage = Stage(one=ALL)
    wanted = stage.instance().subscription_id
    stage.clock.advance_ms(1)
    assert stage.push(wanted) is ErrorCode.NONE
    assert stage.push(wanted) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    stage.clock.advance_ms(INTERVAL_MS - 1)
    assert stage.push(wanted) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    stage.clock.advance_ms(1)
    assert stage.push(wanted) is ErrorCode.NONE


def test_the_errors_of_a_telemetry_push_are_checked_in_kafkas_order() -> None:
    stage = Stage(one=ALL)
    wanted = stage.instance().subscription_id
    large = bytes(MAX_BYTES + 1)
    assert stage.push(wanted, instance_id=ZERO_UUID) is ErrorCode.INVALID_REQUEST
    assert stage.push(wanted, instance_id=Uuid.of(1)) is ErrorCode.INVALID_REQUEST
    stage.clock.advance_ms(1)
    assert stage.push(wanted + 1, large, codec=9) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert stage.push(wanted + 1, large, codec=9) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    stage.clock.advance_ms(INTERVAL_MS)
    assert stage.push(wanted, large, codec=9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    stage.clock.advance_ms(INTERVAL_MS)
    assert stage.push(wanted, large) is ErrorCode.TELEMETRY_TOO_LARGE
    stage.clock.advance_ms(INTERVAL_MS)
    assert stage.push(wanted, b"\xff") is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("wrong", ["subscription", "codec"])
def test_a_client_may_request_its_subscription_again_at_once_after_a_refused_push(wrong: str) -> None:
    stage = Stage(one=ALL)
    wanted = stage.instance().subscription_id
    stage.clock.advance_ms(1)
    assert stage.push(wanted + (wrong == "subscription"), codec=0 if wrong == "subscription" else 9)
    stage.instance()
    assert stage.ask() is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_the_terminating_push_may_come_at_any_time_and_none_after_it() -> None:
    stage = Stage(one=ALL)
    wanted = stage.instance().subscription_id
    stage.clock.advance_ms(1)
    assert stage.push(wanted) is ErrorCode.NONE
    assert stage.push(wanted, is_last=True) is ErrorCode.NONE
    assert stage.push(wanted, is_last=True) is ErrorCode.INVALID_REQUEST
    stage.clock.advance_ms(INTERVAL_MS)
    assert stage.push(wanted) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("codec", list(Codec))
def test_a_push_is_decompressed_and_what_grows_beyond_the_limit_is_too_large(codec: Codec) -> None:
    stage = Stage(one=ALL)
    wanted = stage.instance().subscription_id
    stage.clock.advance_ms(1)
    assert stage.push(wanted, compress(codec, metrics(gauge("a.b", 3))), codec=codec) is ErrorCode.NONE
    assert stage.samples() == {"client_a_b": 3}
    stage.clock.advance_ms(INTERVAL_MS)
    bomb = compress(codec, bytes(MAX_BYTES * 50))
    assert stage.push(wanted, bomb, codec=codec) is ErrorCode.TELEMETRY_TOO_LARGE
    stage.clock.advance_ms(INTERVAL_MS)
    broken = compress(codec, metrics(gauge("a.b", 3)))[:-3]
    assert stage.push(wanted, broken, codec=codec) is ErrorCode.INVALID_RECORD


# ---- What is remembered ----


def test_an_instance_is_forgotten_with_its_connection_and_after_three_intervals() -> None:
    stage = Stage(one=ALL | {"interval_ms": "100000"})
    stage.instance()
    assert stage.ask() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    stage.telemetry.forget_connection(Connection(1))
    stage.instance()
    stage.clock.advance_ms(299_999)
    assert stage.telemetry.count_instances() == 1
    stage.clock.advance_ms(1)
    assert stage.telemetry.count_instances() == 0


def test_a_bounded_number_of_instances_is_remembered_those_that_were_used_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_telemetry, "MOST_INSTANCES", 10)
    stage = Stage(one=ALL)
    stage.instance()
    for _ in range(50):
        stage.instance(ZERO_UUID)
        assert stage.ask() is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the one that is in use"
    assert stage.telemetry.count_instances() == 10


def test_telemetry_keeps_no_state_of_closed_connections() -> None:
    stage = Stage(one=ALL)
    told = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    for number in range(100):
        asked = RequestContext(ApiKey.API_VERSIONS, 3, 1, "c", "127.0.0.1", number)
        stage.telemetry.begin(asked, told, 10)
        stage.ask(ZERO_UUID, connection_id=number)
        stage.telemetry.forget_connection(Connection(number))
    assert stage.telemetry.count_instances() == 0
    assert not stage.telemetry._software
    assert not stage.telemetry._of_connection


# ---- OTLP ----


def test_telemetry_points_are_decoded_from_otlp_protobuf() -> None:
    data = metrics(
        gauge("g.double", 1.5, topic="t", partition=3, is_first=True, share=0.25),
        gauge("g.int", -7),
        counter("c.delta", 2, is_delta=True),
        counter("c.cumulative", 1 << 40, is_delta=False),
        counter("c.up.and.down", 5, is_delta=True, is_monotonic=False),
        resource={"client_rack": "r1"},
    )
    rack = ("client_rack", "r1")
    assert list(read_points(data)) == [
        Point("g.double", [rack, ("topic", "t"), ("partition", "3"), ("is_first", "true"), ("share", "0.25")], 1.5,
              is_counter=False, is_delta=False),
        Point("g.int", [rack], -7, is_counter=False, is_delta=False),
        Point("c.delta", [rack], 2, is_counter=True, is_delta=True),
        Point("c.cumulative", [rack], 1 << 40, is_counter=True, is_delta=False),
        Point("c.up.and.down", [rack], 5, is_counter=False, is_delta=False),
    ]  # fmt: skip


def test_damaged_otlp_metrics_are_decoded_or_refused() -> None:
    data = metrics(gauge("g", 1.5, topic="t"), counter("c", 2, is_delta=True), resource={"a": "b"})
    chance = random.Random(3)
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            list(read_points(bytes(damaged[: chance.randint(0, len(damaged))])))
        except MalformedMetrics:
            continue


def test_a_push_of_very_many_fields_is_refused() -> None:
    with pytest.raises(MalformedMetrics, match="fields"):
        list(read_points(b"\x20\x00" * (MOST_FIELDS + 1)))
    with pytest.raises(MalformedMetrics, match="does not end"):
        list(read_points(b"\xff" * 20))
    with pytest.raises(MalformedMetrics, match="kind"):
        list(read_points(b"\x0b"))


# ---- The page ----


def test_gauges_are_replaced_and_counters_grow() -> None:
    stage = Stage(one=ALL)
    wanted = stage.instance().subscription_id
    name = "org.apache.kafka.producer.record.send"
    for grown, level in ((2, 10), (3, 11)):
        data = metrics(
            counter(name, grown, is_delta=True), gauge(f"{name}.rate", level), counter("x", 9, is_delta=False)
        )
        stage.clock.advance_ms(INTERVAL_MS)
        assert stage.push(wanted, data) is ErrorCode.NONE
    name = name.replace(".", "_")
    assert stage.samples() == {f"{name}_total": 5, f"{name}_rate": 11, "client_x_total": 9}
    stage.clock.advance_ms(INTERVAL_MS)
    assert stage.push(wanted, metrics(gauge("y", 1))) is ErrorCode.NONE
    assert stage.samples() == {f"{name}_total": 5, "client_x_total": 9, "client_y": 1}


def test_pushed_client_metrics_are_shown_until_the_next_pushes_are_overdue() -> None:
    stage = Stage(one=ALL)
    stage.push(stage.instance().subscription_id, metrics(gauge("y", 1)), is_last=True)
    stage.telemetry.forget_connection(Connection(1))
    stage.clock.advance_ms(59_999)
    assert stage.samples() == {"client_y": 1}
    stage.clock.advance_ms(1)
    assert stage.page() == ""


def test_a_client_cannot_forge_labels_lines_or_metrics_of_the_broker() -> None:
    stage = Stage(one=ALL)
    nasty = {
        "client_id": "another",
        "principal": "User:admin",
        "__name__": "up",
        "0": "nameless",
        'a"} 1\n': "x",
        "v": 'b"}\nkafka_brokers 99\n\x1b',
    }
    nothing = gauge("n", float("nan"))
    data = metrics(
        gauge("kafka_brokers", 1, **nasty),
        gauge("up 1\n#", 2),
        gauge("org.apache.kafka.total", 3),
        nothing,
    )
    assert stage.push(stage.instance().subscription_id, data, is_last=True) is ErrorCode.NONE
    families = {one.name: one for one in text_string_to_metric_families(stage.page())}
    assert set(families) == {"client_kafka_brokers", "client_up_1__", "org_apache_kafka_total_gauge"}
    [sample] = families["client_kafka_brokers"].samples
    assert sample.labels == {
        "client_instance_id": str(ID),
        "client_id": "c",
        "client_software_name": "unknown",
        "client_software_version": "unknown",
        "principal": "User:ann",
        "name__": "up",
        "a___1_": "x",
        "v": 'b"}\\nkafka_brokers 99\\n\\x1b',
    }


def test_one_client_shows_a_bounded_number_of_samples() -> None:
    stage = Stage(one=ALL)
    stage.telemetry.max_bytes = 1 << 20
    data = metrics(*(gauge(f"m{number}", number) for number in range(3 * MOST_SAMPLES_OF_CLIENT)))
    assert stage.push(stage.instance().subscription_id, data, is_last=True) is ErrorCode.NONE
    assert len(stage.samples()) == MOST_SAMPLES_OF_CLIENT


def test_all_clients_show_a_bounded_number_of_samples_and_amount_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = PushedMetrics()
    ids = random.Random(1)
    for _ in range(2 * MOST_SAMPLES // 100):
        push = Push()
        for number in range(100):
            push.add(Point(f"m{number}", [], 1.0, is_counter=False, is_delta=False))
        pushed.put(Uuid(ids.randbytes(16)), {}, push, 0, 1)
    assert sum(map(len, pushed.lines_of_clients())) == MOST_SAMPLES
    assert pushed.evicted_count == MOST_SAMPLES // 100
    monkeypatch.setattr(pushed_metrics, "MOST_TEXT", 3000)
    push = Push()
    push.add(Point("m", [("label", "x" * 200)], 1.0, is_counter=False, is_delta=False))
    pushed.put(Uuid(ids.randbytes(16)), {}, push, 0, 1)
    assert sum(len(line) for lines in pushed.lines_of_clients() for _, line in lines) < 6000


def test_counters_of_a_client_that_renames_them_take_bounded_memory() -> None:
    pushed = PushedMetrics()
    for number in range(3 * MOST_SAMPLES_OF_CLIENT):
        push = Push()
        push.add(Point(f"m{number}", [("k", "v" * 500)], 1.0, is_counter=True, is_delta=True))
        pushed.put(ID, {}, push, 0, 1)
    [lines] = pushed.lines_of_clients()
    assert len(lines) <= MOST_SAMPLES_OF_CLIENT
    assert any(f"client_m{number}_total" in line for _, line in lines), "the newest"
