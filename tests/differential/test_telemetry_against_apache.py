"""Client telemetry (KIP-714) on Apache Kafka and here: the same subscriptions and requests get the same responses.

Apache offers it only with an exporter: `tests/apache/telemetry/TelemetryReporter.java` is one. An interval of an hour
makes every second request of an instance too early, so each case has an instance of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.records.compression import Codec, compress
from pessoa.testing import Broker
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from pessoa.wire.api.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from tests.apache.broker import ApacheKafka
from tests.cluster.conftest import until
from tests.support.otlp import alter_subscriptions, counter, gauge, metrics
from tests.support.quota_clients import NamedWire

pytestmark = pytest.mark.apache

HOUR_MS = "3600000"
MAX_BYTES = 200_000
DATA = metrics(gauge("org.apache.kafka.producer.a", 1.5, topic="t"), counter("org.apache.kafka.b", 2, is_delta=True))


class Side:
    def __init__(self, port: int) -> None:
        self.port = port
        self.change_count = 0
        self.wire = NamedWire(port, "pusher")
        software = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.3.1")
        self.apis = {one.api_key for one in self.wire.ask(software, ApiVersionsResponse, 3).api_keys}

    def alter(self, **subscriptions: Mapping[str, str | None]) -> None:
        """Change subscriptions, and wait until clients get all of them.

        Apache's brokers apply the changes of a request one after the other, so clients may get the marker first. A
        second change of the marker is applied after the whole first request.
        """
        for changes in (subscriptions, {}):
            self._alter(changes)

    def _alter(self, subscriptions: Mapping[str, Mapping[str, str | None]]) -> None:
        self.change_count += 1
        marker = f"marker.{self.change_count}."
        changes = {**subscriptions, "marker": {"metrics": marker, "interval.ms": HOUR_MS, "match": "client_id=marker"}}
        with NamedWire(self.port, "marker") as wire:
            alter_subscriptions(wire, changes)

            def is_heard() -> bool:
                asked = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)
                answer = wire.ask(asked, GetTelemetrySubscriptionsResponse, 0)
                return marker in answer.requested_metrics or "*" in answer.requested_metrics

            until(is_heard, "the change of subscriptions")

    def get(self, instance_id: Uuid) -> Any:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        return self.wire.ask(request, GetTelemetrySubscriptionsResponse, 0)

    def push(
        self,
        instance_id: Uuid,
        subscription_id: int,
        data: bytes = DATA,
        codec: int = Codec.NONE,
        *,
        is_last: bool = False,
    ) -> int:
        request = PushTelemetryRequest(
            client_instance_id=instance_id,
            subscription_id=subscription_id,
            terminating=is_last,
            compression_type=codec,
            metrics=data,
        )
        return int(self.wire.ask(request, PushTelemetryResponse, 0).error_code)


@pytest.fixture(scope="module")
def sides() -> Iterator[list[Side]]:
    reporters = "TelemetryReporter"
    with (
        ApacheKafka(metric_reporters=reporters, telemetry_max_bytes=MAX_BYTES) as apache,
        Broker(settings={"pessoa.metrics.port": "0", "telemetry.max.bytes": str(MAX_BYTES)}) as ours,
    ):
        both = [Side(apache.port), Side(ours.port)]
        yield both
        for side in both:
            side.wire.close()


def answer(response: Any) -> tuple[object, ...]:
    return (
        response.throttle_time_ms,
        response.error_code,
        response.client_instance_id,
        response.subscription_id,
        list(response.accepted_compression_types),
        response.push_interval_ms,
        response.telemetry_max_bytes,
        response.delta_temporality,
        list(response.requested_metrics),
    )


def both(sides: list[Side], script: Callable[[Side], object]) -> object:
    apache, ours = (script(side) for side in sides)
    assert ours == apache
    return ours


def test_both_brokers_offer_the_telemetry_apis(sides: list[Side]) -> None:
    assert both(sides, lambda side: sorted(side.apis & {71, 72})) == [71, 72]


MANY = [f"org.apache.kafka.{kind}.{part}." for kind in ("producer", "consumer", "admin") for part in "abcdefgh"]
SUBSCRIPTIONS: list[dict[str, dict[str, str | None]]] = [
    {"one": {"metrics": "org.apache.kafka.producer.", "interval.ms": HOUR_MS}},
    {"one": {"metrics": "b.,a.,c.", "interval.ms": "7000"}, "two": {"metrics": "d.,a.", "interval.ms": "9000"}},
    {f"s{number}": {"metrics": ",".join(MANY[number : number + 9])} for number in range(15)},
    {"java": {"metrics": "*", "match": "client_software_name=apache-kafka-java, client_software_version = 4[.]3[.].*"}},
    {"none": {"metrics": "x.", "match": "client_id=push"}, "some": {"metrics": "y.", "match": "client_id=pus+her"}},
    {"local": {"metrics": "z.", "match": "client_source_address=127[.]0[.]0[.]1,client_source_port=[0-9]+"}},
]


@pytest.mark.parametrize("subscriptions", SUBSCRIPTIONS, ids=",".join)
def test_a_client_gets_the_same_telemetry_subscription_as_from_apache(
    sides: list[Side], subscriptions: dict[str, dict[str, str | None]]
) -> None:
    instance = Uuid.of(5 + SUBSCRIPTIONS.index(subscriptions) << 80)

    def script(side: Side) -> list[tuple[object, ...]]:
        side.alter(**subscriptions)
        found = [answer(side.get(instance)), answer(side.get(instance))]
        side.alter(**{name: dict.fromkeys(configs) for name, configs in subscriptions.items()})
        return found

    both(sides, script)


def test_telemetry_requests_get_the_same_errors_as_from_apache(sides: list[Side]) -> None:
    broken = compress(Codec.ZSTD, DATA)[:-5]
    pushes: list[tuple[bytes, int, int, bool]] = [
        # data, codec, what is added to the subscription id, is it the last
        (DATA, Codec.NONE, 0, False),
        (b"", Codec.NONE, 0, False),
        *((compress(codec, DATA), codec, 0, False) for codec in Codec),
        (DATA, Codec.NONE, 1, False),
        (DATA, 9, 0, False),
        (DATA, -1, 0, False),
        (bytes(MAX_BYTES + 1), 9, 1, False),
        (bytes(MAX_BYTES + 1), 9, 0, False),
        (bytes(MAX_BYTES + 1), Codec.NONE, 0, False),
        (broken, Codec.ZSTD, 0, False),
        (DATA, Codec.GZIP, 0, False),
        (b"\xff\xff", Codec.NONE, 0, False),
        (DATA, Codec.NONE, 0, True),
        (DATA, Codec.NONE, 1, True),
    ]

    def script(side: Side) -> list[list[int]]:
        side.alter(errors={"metrics": "*", "interval.ms": HOUR_MS})
        found = []
        for number, (data, codec, added, is_last) in enumerate(pushes):
            instance = Uuid.of(1000 + number << 80)
            known = side.get(instance).subscription_id
            codes = [side.push(instance, known + added, data, codec, is_last=is_last)]
            codes.append(side.get(instance).error_code)
            # Two more pushes, then the terminating one, and two after that.
            codes += [side.push(instance, known, is_last=last) for last in (False, False, True, True, False, False)]
            codes.append(side.get(instance).error_code)
            found.append(codes)
        unasked = Uuid.of(9000 << 80)
        found.append([side.push(unasked, known), side.get(unasked).error_code])
        found.append([side.push(one, known) for one in (ZERO_UUID, Uuid.of(1), Uuid.of(2))])
        side.alter(errors={"metrics": None, "interval.ms": None})
        return found

    both(sides, script)


def test_an_instance_may_ask_again_early_when_subscriptions_change_or_on_a_new_connection(
    sides: list[Side],
) -> None:
    def script(side: Side) -> list[int]:
        instance = Uuid.of(77 << 80)
        side.alter(changing={"metrics": "a.", "interval.ms": HOUR_MS})
        codes = [side.get(instance).error_code, side.get(instance).error_code]
        side.alter(changing={"metrics": "b."})
        codes += [side.get(instance).error_code, side.get(instance).error_code]
        other = Uuid.of(78 << 80)
        request = GetTelemetrySubscriptionsRequest(client_instance_id=other)
        with NamedWire(side.port, "pusher") as wire:
            for _ in range(2):
                codes.append(wire.ask(request, GetTelemetrySubscriptionsResponse, 0).error_code)
        until(lambda: side.get(other).error_code == 0, "that the connection is gone")
        side.alter(changing={"metrics": None, "interval.ms": None})
        return codes

    assert both(sides, script) == [0, 89, 0, 89, 0, 89]
