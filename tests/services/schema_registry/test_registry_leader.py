"""Three registries as processes; the leader is killed during a thousand registrations, or paused with SIGSTOP.

A client tries the next registry when one does not answer, as clients with several addresses do. Afterwards every
registration has an id, no id belongs to two schemas, every remaining registry returns the ids that were answered, and
the schemas topic has the same ids.

A leader that was paused while another one was elected continues with an old state and with requests in its socket; ids
that it assigns from them must not be accepted.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from confluent_kafka import Consumer, TopicPartition

from pessoa.testing.broker import Broker
from tests.support.logged_process import LoggedProcess, pessoa

COUNT = 1000
AT_ONCE = 40
KILL_AFTER = 300
DEADLINE_S = 240.0


class Child(LoggedProcess):
    """A registry as a process of its own."""

    def __init__(self, bootstrap_servers: str, log: Path) -> None:
        words = ("--bootstrap-server", bootstrap_servers, "--host", "127.0.0.1", "--port", "0")
        settings = ("pessoa.group.session.timeout.ms=2000", "pessoa.leader.timeout.ms=5000")
        overrides = (word for each in settings for word in ("--override", each))
        super().__init__(pessoa("schema-registry", *words, *overrides), log, name="a registry")
        self.start()
        self.url = self.wait_for(r"is listening on (\S+)", DEADLINE_S)[1]

    def is_leader(self) -> bool:
        return "registry_is_leader 1.0" in httpx.get(f"{self.url}/metrics", timeout=DEADLINE_S).text


@contextmanager
def three_registries(bootstrap_servers: str) -> Iterator[list[Child]]:
    children: list[Child] = []
    with TemporaryDirectory() as folder:
        try:
            children += [Child(bootstrap_servers, Path(folder) / f"{number}.log") for number in range(3)]
            yield children
        finally:
            for child in children:
                if child.is_running:
                    child.stop(timeout_s=DEADLINE_S)


def schema(number: int) -> str:
    return f'{{"type":"record","name":"R{number}","fields":[{{"name":"f","type":"int"}}]}}'


async def register(client: httpx.AsyncClient, urls: list[str], number: int, answers: dict[int, int]) -> None:
    body = {"schema": schema(number)}
    for attempt in range(1000):
        url = urls[(number + attempt) % len(urls)]
        try:
            response = await client.post(f"{url}/subjects/s{number}/versions", json=body)
        except httpx.HTTPError:
            continue
        if response.status_code == 200:
            answers[number] = response.json()["id"]
            return
        assert response.status_code == 500, response.text
    raise AssertionError(f"no registry registered {number}")


async def register_all(children: list[Child]) -> tuple[dict[int, int], Child]:
    answers: dict[int, int] = {}
    urls = [child.url for child in children]
    killed: list[Child] = []
    pending = iter(range(COUNT))

    async def worker(client: httpx.AsyncClient) -> None:
        for number in pending:
            await register(client, urls, number, answers)
            if len(answers) >= KILL_AFTER and not killed:
                killed.append(leader_of(children))
                killed[0].kill()

    async with httpx.AsyncClient(timeout=60) as client, asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(worker(client) for _ in range(AT_ONCE)))
    return answers, killed[0]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S} s"
        time.sleep(0.05)


def leads(child: Child) -> bool:
    try:
        return child.is_leader()
    except httpx.HTTPError:
        return False


def leader_of(children: list[Child]) -> Child:
    """Wait for a leader and return it; on a busy machine another one may be elected at any time."""
    found: list[Child] = []

    def is_found() -> bool:
        found.extend(child for child in children if leads(child))
        return bool(found)

    wait_until(is_found, "a leader")
    return found[0]


def send_registration(url: str, number: int) -> socket.socket:
    """Send a registration without waiting for its answer."""
    address = url.removeprefix("http://").split(":")
    body = json.dumps({"schema": schema(number)})
    connection = socket.create_connection((address[0], int(address[1])), timeout=DEADLINE_S)
    head = f"POST /subjects/s{number}/versions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return connection


def test_a_paused_registry_leader_assigns_no_duplicate_id_after_another_was_elected() -> None:
    with (
        Broker({"group.min.session.timeout.ms": "1000"}) as broker,
        three_registries(broker.bootstrap_servers) as children,
        httpx.Client(timeout=DEADLINE_S) as client,
    ):
        sleeper = leader_of(children)
        others = [child for child in children if child is not sleeper]

        def register_at(child: Child, number: int) -> int:
            def answered() -> bool:
                answer = client.post(f"{child.url}/subjects/s{number}/versions", json={"schema": schema(number)})
                answers[number] = answer.json().get("id", 0)
                return answer.status_code == 200

            wait_until(answered, f"registration {number}")
            return answers[number]

        answers: dict[int, int] = {}
        assert register_at(sleeper, 0) == 1
        sleeper.send_signal(signal.SIGSTOP)
        try:
            # The requests are in its socket when it continues, before it learns of the election.
            asked = [send_registration(sleeper.url, number) for number in range(100, 110)]
            wait_until(lambda: any(leads(child) for child in others), "another leader")
            for number in range(1, 20):
                register_at(others[number % 2], number)
        finally:
            sleeper.send_signal(signal.SIGCONT)
        for connection in asked:
            with connection:
                while connection.recv(65536):
                    pass
        for number in range(20, 30):
            register_at(children[number % 3], number)
        in_topic = topic_ids(broker.bootstrap_servers)
        assert all(len(schemas) == 1 for schemas in in_topic.values()), in_topic
        assert len(set(answers.values())) == len(answers)
        assert all(in_topic[schema_id] == {schema(number)} for number, schema_id in answers.items())


def topic_ids(bootstrap_servers: str) -> dict[int, set[str]]:
    """Return every schema id in the topic with the schemas that have it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition("_schemas", 0, 0)])
    found: dict[int, set[str]] = {}
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, "the topic did not come to its end"
        if message.error() is not None:
            consumer.close()
            return found
        key, value = json.loads(message.key() or b"{}"), json.loads(message.value() or b"null")
        if key["keytype"] == "SCHEMA" and value is not None:
            found.setdefault(value["id"], set()).add(value["schema"])


def knows(client: httpx.Client, number: int) -> bool:
    return client.get(f"/subjects/s{number}/versions/1").status_code == 200


def test_every_registered_schema_keeps_its_unique_id_after_the_registry_leader_was_killed() -> None:
    with (
        Broker({"group.min.session.timeout.ms": "1000"}) as broker,
        three_registries(broker.bootstrap_servers) as children,
    ):
        answers, killed = asyncio.run(register_all(children))
        assert len(answers) == COUNT
        assert len(set(answers.values())) == COUNT
        in_topic = topic_ids(broker.bootstrap_servers)
        assert all(len(schemas) == 1 for schemas in in_topic.values())
        assert {number: next(iter(in_topic[schema_id])) for number, schema_id in answers.items()} == {
            number: schema(number) for number in range(COUNT)
        }
        survivors = [child for child in children if child is not killed]
        wait_until(lambda: sum(child.is_leader() for child in survivors) == 1, "one leader")
        last = max(answers, key=lambda number: answers[number])
        for child in survivors:
            with httpx.Client(base_url=child.url, timeout=DEADLINE_S) as client:
                is_known = partial(knows, client, last)
                wait_until(is_known, "everything is read from the topic")
                for number in range(0, COUNT, 25):
                    found = client.get(f"/subjects/s{number}/versions/1").json()
                    assert (found["id"], found["schema"]) == (answers[number], schema(number))
