"""Registration and heartbeats of a broker, with a controller whose responses each test gives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from pessoa.base.clock import ManualClock, SystemClock
from pessoa.base.ids import Uuid
from pessoa.broker.config import BrokerConfig
from pessoa.broker.controller_client import ControllerUnavailable
from pessoa.broker.metadata_progress import MetadataProgress
from pessoa.broker.registration import Registration, RegistrationRefused, register_controller
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from pessoa.wire.api.controller_registration import ControllerRegistrationResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message

TIMEOUT_S = 60
DIRECTORY = Uuid(bytes(range(16)))


class Controller:
    """A controller that returns the given responses in order; `asked` has the requests."""

    def __init__(self, answers: Iterable[Message | Exception]) -> None:
        self._answers = list(answers)
        self.asked: list[Message] = []
        self._changed = asyncio.Condition()

    async def wait_until_asked(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.asked) >= count)

    async def ask(self, request: Message, caller: object, timeout_ms: int) -> Message:
        self.asked.append(request)
        async with self._changed:
            self._changed.notify_all()
        if not self._answers:
            # The test has no answer for this request: it stays unanswered.
            await asyncio.Event().wait()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def heartbeats(self) -> list[BrokerHeartbeatRequest]:
        return [one for one in self.asked if isinstance(one, BrokerHeartbeatRequest)]


def registered(epoch: int = 5, code: ErrorCode = ErrorCode.NONE) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=code, broker_epoch=epoch)


def beat(
    *,
    code: ErrorCode = ErrorCode.NONE,
    is_caught_up: bool = True,
    is_fenced: bool = False,
    should_shut_down: bool = False,
) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=code,
        is_caught_up=is_caught_up,
        is_fenced=is_fenced,
        should_shut_down=should_shut_down,
    )


def config_with(heartbeat_interval_ms: int = 2_000) -> BrokerConfig:
    return BrokerConfig(
        {
            "broker.heartbeat.interval.ms": str(heartbeat_interval_ms),
            "broker.session.timeout.ms": str(max(9_000, 2 * heartbeat_interval_ms)),
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "2@127.0.0.1:9093",
            "log.dirs": "/data",
        }
    )


def run(
    answers: Iterable[Message | Exception],
    scenario: Callable[[Controller, Registration, MetadataProgress], Awaitable[None]],
    offline: list[Uuid] | None = None,
    heartbeat_interval_ms: int = 2_000,
    gone: asyncio.Event | None = None,
) -> None:
    """Run a scenario with a broker's registration; `gone` is set when no majority of controllers is reachable."""

    async def wait_until_gone() -> None:
        await (gone or asyncio.Event()).wait()

    async def main() -> None:
        config = config_with(heartbeat_interval_ms)
        controller, progress = Controller(answers), MetadataProgress(SystemClock())
        registration = Registration(
            config,
            "c",
            controller,
            progress,
            SystemClock(),
            DIRECTORY,
            [],
            [DIRECTORY],
            lambda: offline or [],
            3,
            wait_until_gone,
        )
        async with asyncio.timeout(TIMEOUT_S):
            await scenario(controller, registration, progress)

    asyncio.run(main())


def test_a_broker_stays_fenced_until_it_has_replayed_its_registration() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        registering = asyncio.create_task(registration.register())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert controller.heartbeats == []
        progress.advance(5)
        await registering
        (heartbeat,) = controller.heartbeats
        assert (heartbeat.broker_epoch, heartbeat.current_metadata_offset, heartbeat.want_fence) == (5, 5, True)
        await registration.unfence()
        assert not controller.heartbeats[-1].want_fence

    run([registered(), beat(is_fenced=True), beat()], scenario)


def test_a_registration_that_is_refused_because_the_old_session_lasts_is_retried() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        progress.advance(5)
        await registration.register()
        assert registration.broker_epoch == 5
        requests = [one for one in controller.asked if isinstance(one, BrokerRegistrationRequest)]
        assert len(requests) == 2
        assert requests[0].previous_broker_epoch == 3

    run([registered(-1, ErrorCode.DUPLICATE_BROKER_REGISTRATION), registered(), beat()], scenario)


@pytest.mark.parametrize(
    "answer", [registered(-1, ErrorCode.INCONSISTENT_CLUSTER_ID), ControllerUnavailable("no controller is there")]
)
def test_a_broker_whose_registration_is_refused_does_not_start(answer: Message | Exception) -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        with pytest.raises(RegistrationRefused):
            await registration.register()

    run([answer], scenario)


def test_after_a_stale_broker_epoch_the_broker_registers_again_without_a_previous_broker_epoch() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        registration.broker_epoch = 5
        await registration.unfence()
        assert registration.broker_epoch == 9
        (request,) = (one for one in controller.asked if isinstance(one, BrokerRegistrationRequest))
        assert request.previous_broker_epoch == -1
        assert controller.heartbeats[-1].broker_epoch == 9

    run([beat(code=ErrorCode.STALE_BROKER_EPOCH), registered(9), beat()], scenario)


def test_heartbeats_survive_a_cluster_without_a_controller_and_name_the_failed_directories() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        registration.broker_epoch = 5
        task = asyncio.create_task(registration.keep_alive())
        for count in (1, 2, 3):
            registration.hurry()
            await controller.wait_until_asked(count)
        task.cancel()
        assert controller.heartbeats[0].offline_log_dirs == [DIRECTORY]

    run([ControllerUnavailable("no leader"), beat(is_fenced=True)], scenario, [DIRECTORY])


def test_a_heartbeat_that_is_requested_during_another_follows_it_at_once() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        answered = controller.ask

        async def ask(request: Message, caller: object, timeout_ms: int) -> Message:
            if not controller.asked:
                registration.hurry()
            return await answered(request, caller, timeout_ms)

        controller.ask = ask  # type: ignore[method-assign]
        task = asyncio.create_task(registration.keep_alive())
        registration.hurry()
        await controller.wait_until_asked(2)
        task.cancel()

    run([beat()], scenario, heartbeat_interval_ms=3_600_000)


def test_a_heartbeat_that_failed_is_followed_by_the_next_at_once() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        task = asyncio.create_task(registration.keep_alive())
        registration.hurry()
        await controller.wait_until_asked(2)
        task.cancel()

    run([ControllerUnavailable("no leader")], scenario, heartbeat_interval_ms=3_600_000)


def test_heartbeats_to_a_controller_that_fails_at_once_are_retried_with_a_pause() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        clock = registration._clock = ManualClock()

        async def ask(request: Message, caller: object, timeout_ms: int) -> Message:
            controller.asked.append(request)
            raise ControllerUnavailable("the metadata log has failed")

        controller.ask = ask  # type: ignore[method-assign]
        task = asyncio.create_task(registration.keep_alive())
        registration.hurry()
        for count in (1, 2, 3):
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(controller.asked) == count
            clock.advance_ms(50)
        task.cancel()

    run([], scenario, heartbeat_interval_ms=3_600_000)


def test_a_broker_is_out_of_touch_when_no_heartbeat_was_answered_for_a_whole_session() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        session_ms = registration._config.broker_session_timeout_ms
        clock = registration._clock = ManualClock()
        # It has never been in touch.
        assert not registration.is_out_of_touch()
        await registration.unfence()
        clock.advance_ms(session_ms)
        assert not registration.is_out_of_touch()
        clock.advance_ms(1)
        assert registration.is_out_of_touch()
        await registration.unfence()
        assert not registration.is_out_of_touch()

    run([beat(), beat()], scenario)


def test_a_stopping_broker_sends_heartbeats_until_the_controller_allows_its_shutdown() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        registration.broker_epoch = 5
        await registration.leave()
        assert [one.want_shut_down for one in controller.heartbeats] == [True, True, True]
        await registration.leave()
        assert len(controller.heartbeats) == 3

    run([beat(), beat(), beat(should_shut_down=True)], scenario)


def test_a_stopping_broker_does_not_wait_for_an_unreachable_controller() -> None:
    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        registration.broker_epoch = 5
        await registration.leave()
        assert len(controller.heartbeats) == 1

    run([ControllerUnavailable("no leader")], scenario)


class FailedController:
    """A controller whose log has failed: it refuses every request at once."""

    def __init__(self, refusals: int) -> None:
        self._refusals = refusals
        self.asked = 0

    async def ask(self, request: Message, caller: object, timeout_ms: int) -> Message:
        self.asked += 1
        assert self.asked <= self._refusals + 1, "it was asked again without a wait"
        if self.asked <= self._refusals:
            raise ControllerUnavailable("the controller has failed")
        return ControllerRegistrationResponse(throttle_time_ms=0, error_code=0, error_message=None)


def test_a_controller_that_cannot_be_registered_waits_before_it_tries_again() -> None:
    async def main() -> None:
        clock, failed = ManualClock(), FailedController(refusals=3)
        registering = asyncio.create_task(register_controller(failed, config_with(), clock, DIRECTORY, []))
        for count in range(1, 5):
            for _ in range(10):
                await asyncio.sleep(0)
            assert failed.asked == count
            clock.advance_ms(60)
        await registering

    asyncio.run(main())


def test_a_stopping_broker_does_not_wait_for_a_quorum_without_a_majority() -> None:
    gone = asyncio.Event()

    async def scenario(controller: Controller, registration: Registration, progress: MetadataProgress) -> None:
        registration.broker_epoch = 5
        leaving = asyncio.create_task(registration.leave())
        # A controller that leads without followers never answers.
        await controller.wait_until_asked(1)
        assert not leaving.done()
        gone.set()
        await leaving

    run([], scenario, gone=gone)
