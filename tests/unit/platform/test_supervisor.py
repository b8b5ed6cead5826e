"""The supervisor with fake services: small Python processes that listen, end, or ignore SIGTERM.

Tests wait only for conditions: a line that the supervisor prints, or the end of a process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pessoa.platform import held_services
from pessoa.platform import supervisor as supervisor_file
from pessoa.platform.child import Child
from pessoa.platform.service_rows import Service, accepts_connections
from pessoa.platform.supervisor import Patience, StartFailure, Supervisor

PATIENCE = Patience(ready_s=60, stop_s=60, first_restart_s=0.01, longest_restart_s=0.02)

# Arguments: port, the file to which it writes what happens to it, and its name.
LISTEN = """
import signal, socket, sys
port, diary, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def write(what):
    with open(diary, "a") as file:
        file.write(f"{name} {what}\\n")
def on_term(*_):
    write("stops")
    sys.exit(0)
signal.signal(signal.SIGTERM, on_term)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", port))
write("starts")
listener.listen()
print("hello from", name, flush=True)
while True:
    connection, _ = listener.accept()
    if connection.recv(3) == b"die":
        write("dies")
        sys.exit(3)
"""
STUBBORN = LISTEN.replace("    sys.exit(0)\n", "")
FAILING = "import sys; print('the disk is on fire', flush=True); sys.exit(5)"
SILENT = "import time; time.sleep(600)"


class Stage:
    """A supervisor, the messages that it printed in `told`, and a way to wait for one of them."""

    def __init__(self, home: Path, patience: Patience = PATIENCE) -> None:
        self.home = home
        self.diary = home / "diary"
        self.told: list[str] = []
        self._patience = patience
        self._news = asyncio.Event()

    def service(self, name: str, port: int, code: str = LISTEN) -> Service:
        return Service(name, (sys.executable, "-ISc", code, str(port), str(self.diary), name), port)

    def supervisor(
        self, *services: Service, after_tier: Mapping[str, Callable[[], object]] | None = None
    ) -> Supervisor:
        return Supervisor(services, self.home, self._hear, self._patience, after_tier=after_tier)

    def _hear(self, text: str) -> None:
        self.told.append(text)
        self._news.set()

    async def wait_for(self, words: str) -> None:
        async with asyncio.timeout(60):
            while not any(words in text for text in self.told):
                self._news.clear()
                await self._news.wait()

    def happened(self) -> list[str]:
        return self.diary.read_text().splitlines()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def run_until(supervisor: Supervisor, script: Callable[[], object]) -> int:
    """Run the supervisor and a script at the same time; return the supervisor's exit code when both have ended."""

    async def both() -> int:
        life = asyncio.create_task(supervisor.run())
        await asyncio.gather(life, script())  # type: ignore[call-overload]
        return life.result()

    return asyncio.run(both())


def test_the_hook_after_a_tier_runs_when_the_tier_is_ready_and_before_the_next_one_starts(
    stage: Stage, free_port: Callable[[], int]
) -> None:
    rows = [replace(stage.service(name, free_port()), tier=name) for name in ("brokers", "services")]
    seen: list[list[str]] = []
    supervisor = stage.supervisor(*rows, after_tier={"brokers": lambda: seen.append(stage.happened())})

    async def script() -> None:
        await stage.wait_for("Ctrl-C stops everything")
        supervisor.request_stop()

    assert run_until(supervisor, script) == 0
    assert seen == [["brokers starts"]]


def test_a_failing_hook_after_a_tier_ends_the_start(stage: Stage, free_port: Callable[[], int]) -> None:
    rows = [replace(stage.service(name, free_port()), tier=name) for name in ("brokers", "services")]

    def fail() -> None:
        raise StartFailure("no users could be made")

    assert asyncio.run(stage.supervisor(*rows, after_tier={"brokers": fail}).run()) == 1
    assert "no users could be made" in stage.told
    assert stage.happened() == ["brokers starts", "brokers stops"]


def test_services_start_in_the_order_of_the_table_and_stop_in_reverse(
    stage: Stage, free_port: Callable[[], int]
) -> None:
    supervisor = stage.supervisor(*(stage.service(name, free_port()) for name in ("one", "two", "three")))

    async def script() -> None:
        await stage.wait_for("Ctrl-C stops everything")
        supervisor.request_stop()

    assert run_until(supervisor, script) == 0
    assert stage.happened() == [
        *("one starts", "two starts", "three starts"),
        *("three stops", "two stops", "one stops"),
    ]
    assert stage.told[1:] == ["stopping three, two, one"]


def test_the_services_of_a_tier_start_concurrently_and_the_next_tier_waits_for_all_of_them(
    stage: Stage, free_port: Callable[[], int]
) -> None:
    # Each of the two becomes ready only when the other one listens, as brokers of one quorum.
    first, second = free_port(), free_port()

    async def both_listen(host: str, _: int) -> bool:
        return await accepts_connections(host, first) and await accepts_connections(host, second)

    brokers = [
        replace(stage.service(name, port), is_ready=both_listen, tier="brokers")
        for name, port in (("one", first), ("two", second))
    ]
    supervisor = stage.supervisor(*brokers, stage.service("above", free_port()))

    async def script() -> None:
        await stage.wait_for("Ctrl-C stops everything")
        supervisor.request_stop()

    assert run_until(supervisor, script) == 0
    assert sorted(stage.happened()[:2]) == ["one starts", "two starts"]
    assert stage.happened()[2:4] == ["above starts", "above stops"]
    assert sorted(stage.happened()[4:]) == ["one stops", "two stops"]


def test_a_service_that_hangs_leaves_the_tier_below_most_of_the_time_to_stop(
    stage: Stage, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert supervisor_file.SHARE_OF_AN_UPPER_TIER < 0.5
    monkeypatch.setattr(supervisor_file, "SHARE_OF_AN_UPPER_TIER", 0.01)
    broker, hanging = stage.service("broker", free_port()), stage.service("hanging", free_port(), STUBBORN)
    supervisor = stage.supervisor(broker, hanging)

    async def script() -> None:
        await stage.wait_for("Ctrl-C stops everything")
        supervisor.request_stop()

    assert run_until(supervisor, script) == 0
    assert stage.told[1:] == ["stopping hanging, broker", "hanging did not stop when asked and was killed"]
    assert stage.happened()[-1] == "broker stops"


def test_the_table_shows_the_address_and_the_log_of_each_service(stage: Stage, free_port: Callable[[], int]) -> None:
    port = free_port()
    supervisor = stage.supervisor(stage.service("alvaro", port))

    async def script() -> None:
        await stage.wait_for("Ctrl-C stops everything")
        supervisor.request_stop()

    assert run_until(supervisor, script) == 0
    heading, row, ending = stage.told[0].splitlines()
    log = stage.home / "logs" / "alvaro.log"
    assert heading.split() == ["service", "address", "state", "ready", "after", "pid", "log"]
    name, address, state, _, unit, pid, path = row.split()
    assert (name, address, state, unit) == ("alvaro", f"localhost:{port}", "ready", "s")
    assert (pid, path) == (str(supervisor.children[0].pid), str(log))
    assert str(stage.home) in ending
    assert log.read_text() == "hello from alvaro\n"


def test_a_port_in_use_gives_one_error_line_and_exit_code_1_and_starts_nothing(
    stage: Stage, free_port: Callable[[], int]
) -> None:
    first, taken = free_port(), free_port()
    with socket.create_server(("127.0.0.1", taken)):
        supervisor = stage.supervisor(stage.service("one", first), stage.service("two", taken))
        assert asyncio.run(supervisor.run()) == 1
    assert stage.told == [
        f"Cannot start two: port {taken} is already taken by another program; stop it, or use --port-shift."
    ]
    assert not stage.diary.exists()


def test_a_service_that_the_user_has_stopped_stays_down_until_it_is_released(
    stage: Stage, free_port: Callable[[], int]
) -> None:
    supervisor = stage.supervisor(stage.service("one", free_port()), stage.service("two", free_port()))
    previous_handler = signal.signal(held_services.CHANGED, signal.SIG_IGN)

    async def script() -> None:
        await stage.wait_for("Ctrl-C stops everything")
        held_services.hold(stage.home, ["two"], os.getpid())
        supervisor.apply_held_services()
        await stage.wait_for("two was stopped and stays so until it is started again")
        assert [child.state for child in supervisor.children] == ["ready", "stopped"]
        held_services.release(stage.home, ["two"], os.getpid())
        supervisor.apply_held_services()
        await stage.wait_for("two is back")
        supervisor.request_stop()

    try:
        assert run_until(supervisor, script) == 0
    finally:
        signal.signal(held_services.CHANGED, previous_handler)
    assert stage.happened() == ["one starts", "two starts", "two stops", "two starts", "two stops", "one stops"]


def test_a_service_that_dies_at_the_start_is_reported_with_its_log_and_the_others_are_stopped(
    stage: Stage, free_port: Callable[[], int]
) -> None:
    good = stage.service("good", free_port())
    supervisor = stage.supervisor(good, stage.service("bad", free_port(), FAILING))
    assert asyncio.run(supervisor.run()) == 1
    log = stage.home / "logs" / "bad.log"
    expected = f"bad stopped before it was ready (exit code 5). Its log is {log}:\n  | the disk is on fire"
    assert expected in stage.told
    assert not any(child.is_running for child in supervisor.children)


def test_a_service_that_never_listens_is_a_failure_at_the_deadline(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    stage = Stage(tmp_path, Patience(ready_s=0.1, stop_s=60))
    port = free_port()
    supervisor = stage.supervisor(stage.service("silent", port, SILENT))
    assert asyncio.run(supervisor.run()) == 1
    log = tmp_path / "logs" / "silent.log"
    assert f"silent did not become ready on localhost:{port} within 0.1 s. Its log is {log} and empty." in stage.told
    assert repr(supervisor.children[0]) == f"<Child silent localhost:{port}: killed by SIGTERM>"


def test_a_command_that_does_not_exist_gives_one_error_line(stage: Stage, free_port: Callable[[], int]) -> None:
    supervisor = stage.supervisor(Service("ghost", ("/nonexistent/ghost",), free_port()))
    assert asyncio.run(supervisor.run()) == 1
    assert stage.told == ["Cannot start ghost: [Errno 2] No such file or directory: '/nonexistent/ghost'."]


def test_a_service_that_exits_is_restarted(stage: Stage, free_port: Callable[[], int]) -> None:
    port = free_port()
    supervisor = stage.supervisor(stage.service("phoenix", port))

    async def script() -> None:
        await stage.wait_for("Ctrl-C stops everything")
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"die")
        await stage.wait_for("phoenix is back on")
        writer.close()
        supervisor.request_stop()

    assert run_until(supervisor, script) == 0
    assert any("phoenix stopped by itself (exit code 3); starting it again in 0.01 s" in text for text in stage.told)
    assert stage.happened() == [f"phoenix {what}" for what in ("starts", "dies", "starts", "stops")]


def test_a_service_that_ignores_the_request_to_stop_is_killed_at_the_deadline(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    stage = Stage(tmp_path, Patience(ready_s=60, stop_s=0.2))
    supervisor = stage.supervisor(stage.service("stubborn", free_port(), STUBBORN))

    async def script() -> None:
        await stage.wait_for("Ctrl-C stops everything")
        supervisor.request_stop()

    assert run_until(supervisor, script) == 0
    assert stage.told[-1] == "stubborn did not stop when asked and was killed"
    assert "killed by SIGKILL" in repr(supervisor.children[0])


def test_a_second_request_to_stop_kills_at_once(tmp_path: Path, free_port: Callable[[], int]) -> None:
    stage = Stage(tmp_path, Patience(ready_s=60, stop_s=600))
    supervisor = stage.supervisor(stage.service("stubborn", free_port(), STUBBORN))

    async def script() -> None:
        await stage.wait_for("Ctrl-C stops everything")
        supervisor.request_stop()
        await stage.wait_for("stopping stubborn")
        supervisor.request_stop()

    assert run_until(supervisor, script) == 0
    assert stage.told[-1] == "stubborn did not stop when asked and was killed"


def test_stopping_while_services_are_starting_is_not_reported_as_a_failure(
    stage: Stage, free_port: Callable[[], int]
) -> None:
    supervisor = stage.supervisor(stage.service("silent", free_port(), SILENT))

    async def script() -> None:
        supervisor.request_stop()

    assert run_until(supervisor, script) == 0
    assert stage.told == ["stopping silent"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_supervisor_stops_the_services_and_exits_with_0(
    stage: Stage, free_port: Callable[[], int], number: signal.Signals
) -> None:
    port = free_port()
    code = f"""
import sys
from pathlib import Path
from pessoa.platform.service_rows import Service, accepts_connections
from pessoa.platform.supervisor import Supervisor
def tell(text):
    print(text, flush=True)
command = (sys.executable, "-ISc", {LISTEN!r}, "{port}", {str(stage.diary)!r}, "one")
sys.exit(Supervisor([Service("one", command, {port})], Path({str(stage.home)!r}), tell).run_until_signalled())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C stops everything" in line:
                break
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == "stopping one\n"
    assert stage.happened() == ["one starts", "one stops"]


def test_a_child_process_has_the_home_in_its_environment_and_its_own_session(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    code = "import os; print(os.environ['PESSOA_HOME'], os.getsid(0) == os.getpid())"
    child = Child(Service("one", (sys.executable, "-c", code), free_port()), tmp_path)

    async def life() -> None:
        await child.start()
        await child.wait_until_exited()

    asyncio.run(life())
    assert child.last_log_lines(1) == [f"{tmp_path} True"]


def test_the_pause_before_a_restart_doubles_up_to_its_limit() -> None:
    pauses = [Patience(first_restart_s=1, longest_restart_s=10).restart_pause_s(n) for n in (1, 2, 3, 4, 5, 10_000)]
    assert pauses == [1, 2, 4, 8, 10, 10]
