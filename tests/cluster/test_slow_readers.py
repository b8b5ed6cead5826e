"""Consumers that request much data and do not read it, and connections over the limit of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.broker.apis import fetch as fetch_handler
from pessoa.broker.stages.node_listeners import NodeListeners
from pessoa.net import server_protocol
from pessoa.testing import Broker
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.cluster.conftest import QUIET, TIMEOUT_S, until
from tests.support.batches import plain
from tests.support.crash_wire import FETCH_VERSION, Canary, Closed, Wire, fetch, fetch_request, now_ms, produce

MIB = 1024 * 1024
PATIENCE_S = 120


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers, **QUIET})
        for name, made in admin.create_topics([NewTopic("t", 1, 1), NewTopic("canary", 1, 1)]).items():
            assert made.result(TIMEOUT_S) is None, name
        yield running


def fill(broker: Broker) -> None:
    """Fill the topic with 8 MiB."""
    with Wire(broker.port, PATIENCE_S) as wire:
        for _ in range(16):
            assert produce(wire, "t", plain(timestamp=now_ms(), size=MIB // 2)).error_code == 0


def unread_bytes(broker: Broker) -> int:
    return broker.inspect(lambda inside: inside.services.unread_bytes())


def test_responses_to_clients_that_do_not_read_stay_in_the_segment_files(broker: Broker) -> None:
    fill(broker)
    with ExitStack() as stack, Canary(broker.port, "canary") as canary:
        readers = [stack.enter_context(Wire(broker.port, PATIENCE_S, receive_buffer_bytes=4096)) for _ in range(16)]
        for reader in readers:
            reader.write(fetch_request("t", 0, max_bytes=8 * MIB), FETCH_VERSION)
            assert int.from_bytes(reader.receive(4), "big") > 7 * MIB
        assert unread_bytes(broker) <= 16 * 64 * 1024
        canary.check_round_trip()
    with Wire(broker.port, PATIENCE_S) as wire:
        assert len(fetch(wire, "t", 0, max_bytes=8 * MIB).records) > 7 * MIB
    until(lambda: unread_bytes(broker) == 0, "that everything was read or is gone", PATIENCE_S)


def test_the_more_responses_are_unread_the_smaller_are_the_next_ones(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen readers ask for 8 MiB each, and all together may leave 16 unread. As over TLS, answers are in memory."""
    monkeypatch.setattr(fetch_handler, "MAX_UNREAD_BYTES", 16 * MIB)
    monkeypatch.setattr(server_protocol, "file_sender", lambda _: None)
    fill(broker)

    def unread() -> int:
        return unread_bytes(broker)

    with ExitStack() as stack, Canary(broker.port, "canary") as canary:
        readers = [stack.enter_context(Wire(broker.port, PATIENCE_S, receive_buffer_bytes=4096)) for _ in range(16)]
        sizes = []
        for reader in readers:
            reader.write(fetch_request("t", 0, max_bytes=8 * MIB), FETCH_VERSION)
            # The rest of the answer stays where it is.
            sizes.append(int.from_bytes(reader.receive(4), "big"))
        assert sizes[0] > 7 * MIB
        assert sizes[-1] < sizes[0] // 2
        assert min(sizes) > MIB // 2, "every consumer gets a batch"
        assert unread() <= 16 * MIB
        canary.check_round_trip()
    until(lambda: unread() == 0, "that everything was read or is gone", PATIENCE_S)
    with Wire(broker.port, PATIENCE_S) as wire:
        assert len(fetch(wire, "t", 0, max_bytes=8 * MIB).records) > 7 * MIB


def test_a_changed_max_connections_applies_to_new_connections_at_once(broker: Broker) -> None:
    setting = AlterableConfig(name="max.connections", config_operation=0, value="20")
    all_brokers = AlterConfigsResource(resource_type=4, resource_name="", configs=[setting])
    with Wire(broker.port, PATIENCE_S) as wire:
        request = IncrementalAlterConfigsRequest(resources=[all_brokers], validate_only=False)
        answer = wire.ask(request, IncrementalAlterConfigsResponse, 1)
        assert [one.error_code for one in answer.responses] == [0]

    def limit() -> int:
        return broker.inspect(lambda inside: inside.stage(NodeListeners).shares.client_quota.limits.max_connections)

    until(lambda: limit() == 20, lambda: f"the limit is known, not {limit()}", PATIENCE_S)
    with ExitStack() as stack, Canary(broker.port, "canary") as canary:
        strangers = [stack.enter_context(Wire(broker.port, 5.0)) for _ in range(19)]
        assert stack.enter_context(Wire(broker.port, PATIENCE_S)).is_closed()
        for stranger in strangers[:5]:
            stranger.close()
        until(lambda: _is_served(canary), "that there is room again", PATIENCE_S)


def _is_served(canary: Canary) -> bool:
    try:
        canary.check_round_trip()
    except (Closed, OSError):
        return False
    return True
