"""IncrementalAlterConfigs at a broker: when it responds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.base.clock import SystemClock
from pessoa.base.config_keys.broker_keys import validate_broker_configs
from pessoa.broker.apis.incremental_alter_configs import handle
from pessoa.broker.config import BrokerConfig, single_node_properties
from pessoa.broker.metadata_progress import MetadataProgress
from pessoa.metadata.image import ConfigResource, MetadataImage
from pessoa.metadata.table_images import ConfigsImage
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SET, DELETE, APPEND = 0, 1, 2
LISTENERS = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
BROKER, TOPIC = ConfigResource.BROKER, ConfigResource.TOPIC


class Stage:
    """Broker 1, and a controller that commits each request at once."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.broker: Any = SimpleNamespace(
            node_id=1, image=MetadataImage.EMPTY, progress=MetadataProgress(SystemClock()), controller=self,
            authorizer=None,
            config=BrokerConfig(single_node_properties({"listeners": LISTENERS}, Path("/nowhere"))),
        )  # fmt: skip

    async def submit(self, request: IncrementalAlterConfigsRequest, _: object) -> IncrementalAlterConfigsResponse:
        answers = [
            AlterConfigsResourceResponse(
                error_code=self.code,
                error_message=None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in request.resources
        ]
        return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=answers)

    def ask(
        self,
        operation: int = SET,
        kind: int = BROKER,
        *,
        name: str = "1",
        is_dry: bool = False,
        key: str = RATE,
        value: str = "1",
    ) -> asyncio.Future[Any]:
        config = AlterableConfig(name=key, config_operation=operation, value=None if operation == DELETE else value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        context = RequestContext(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 1, None, "127.0.0.1", 1)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=is_dry)
        reply = handle(self.broker, context, request)
        assert isinstance(reply, Awaitable)
        return asyncio.ensure_future(reply)

    def hear(self, value: str | None, name: str = "1") -> None:
        present = {} if value is None else {(int(BROKER), name): {RATE: value}}
        self.broker.image = replace(MetadataImage.EMPTY, configs=ConfigsImage(present))
        self.broker.progress.look()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["1", ""])
def test_a_broker_config_change_is_answered_when_the_broker_has_applied_it(name: str) -> None:
    async def main() -> None:
        stage = Stage()
        for operation, before, after in ((SET, "2", "1"), (DELETE, "1", None)):
            stage.hear(before, name)
            answer = stage.ask(operation, name=name)
            await turns()
            assert not answer.done()
            stage.hear(after, name)
            assert [one.error_code for one in (await answer).responses] == [ErrorCode.NONE]

    asyncio.run(main())


def test_an_alter_configs_response_waits_only_for_changes_that_this_broker_applies_from_metadata() -> None:
    async def main() -> None:
        stage = Stage()
        asked = [stage.ask(is_dry=True), stage.ask(kind=TOPIC), stage.ask(APPEND)]
        refused = Stage(ErrorCode.INVALID_CONFIG).ask()
        await asyncio.gather(*asked, refused)
        assert "0 waiting" in repr(stage.broker.progress)

    asyncio.run(main())


def test_an_alter_configs_response_that_waits_for_metadata_is_sent_at_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pessoa.broker.apis.incremental_alter_configs._NEWS_MS", 1)

    async def main() -> None:
        assert [one.error_code for one in (await Stage().ask()).responses] == [ErrorCode.NONE]

    asyncio.run(main())


def test_a_broker_name_with_very_many_digits_is_left_to_the_controller() -> None:
    async def main() -> None:
        refused = await Stage(ErrorCode.INVALID_REQUEST).ask(name="1" * 5_000)
        assert [one.error_code for one in refused.responses] == [ErrorCode.INVALID_REQUEST]

    asyncio.run(main())


@pytest.mark.parametrize(
    "listeners",
    # Each is refused by Apache Kafka 4.3.1 with the same code.
    ["FOO://127.0.0.1:0", "PLAINTEXT://127.0.0.1:9092", f"{LISTENERS},FOO://127.0.0.1:0"],
)
def test_listeners_that_a_broker_could_not_open_are_refused(listeners: str) -> None:
    """A broker that took them would pass over every later change of its settings, and not start again."""

    async def main() -> None:
        refused = await Stage().ask(key="listeners", value=listeners)
        assert [one.error_code for one in refused.responses] == [ErrorCode.INVALID_REQUEST]
        assert "listener" in (refused.responses[0].error_message or "")

    asyncio.run(main())


@pytest.mark.parametrize("listeners", ["x", "", "PLAINTEXT://:", "://:9092", f"{LISTENERS},x"])
def test_a_malformed_listener_is_refused_by_the_controller(listeners: str) -> None:
    problem = validate_broker_configs({"listeners": listeners})
    assert problem is not None
    assert problem.is_invalid_request


def test_valid_listeners_are_forwarded_to_the_controller() -> None:
    async def main() -> None:
        taken = await Stage().ask(key="listeners", value=f"{LISTENERS},SSL://127.0.0.1:0", is_dry=True)
        assert [one.error_code for one in taken.responses] == [ErrorCode.NONE]

    asyncio.run(main())


def test_a_client_without_alter_configs_right_does_not_learn_what_is_wrong_with_its_listeners() -> None:
    async def main() -> None:
        denied = Stage(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        refused = await denied.ask(key="listeners", value="FOO://127.0.0.1:0")
        assert [one.error_code for one in refused.responses] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        assert refused.responses[0].error_message is None

    asyncio.run(main())
