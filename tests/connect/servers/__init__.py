"""Run servers that sinks write to and sources read from, on free ports, for as long as a `with` block lasts.

opensearch()   a real OpenSearch, its jars from Maven Central
mongo()        mongo-java-server, which speaks MongoDB's wire protocol; Debian has no package of mongod
mosquitto()    Debian's MQTT broker
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.apache.broker import reserve_port
from tests.apache.jars import fetch, java, locked
from tests.support.logged_process import LoggedProcess

FOLDER = Path(__file__).parent
START_S = 180.0
SMALL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def _java_command(lock: str, program: str, *words: str) -> list[str]:
    executable = java()
    assert executable is not None
    classpath = os.pathsep.join(str(path) for path in fetch(locked(FOLDER / lock)))
    return [str(executable), *SMALL_JVM, "-cp", classpath, str(FOLDER / program), *words]


@contextmanager
def opensearch() -> Iterator[str]:
    """Start OpenSearch and yield its URL."""
    with tempfile.TemporaryDirectory(prefix="pessoa-opensearch-") as temporary:
        port, transport = reserve_port(), reserve_port()
        home = Path(temporary) / "home"
        home.mkdir()
        words = _java_command("opensearch.lock", "OpenSearchNode.java", str(home), str(port), str(transport))
        with LoggedProcess(words, Path(temporary) / "output") as process:
            process.wait_for("OpenSearch is listening", START_S)
            yield f"http://127.0.0.1:{port}"


@contextmanager
def mongo() -> Iterator[str]:
    """Start mongo-java-server and yield its connection string."""
    with tempfile.TemporaryDirectory(prefix="pessoa-mongo-") as temporary:
        port = reserve_port()
        words = _java_command("mongo.lock", "MongoNode.java", str(port))
        with LoggedProcess(words, Path(temporary) / "output") as process:
            process.wait_for("the server is listening", START_S)
            yield f"mongodb://127.0.0.1:{port}"


def mosquitto_program() -> str | None:
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Mosquitto:
    """Debian's MQTT broker; after a restart it still has the sessions of its clients and the retained messages."""

    def __init__(self, folder: Path) -> None:
        program = mosquitto_program()
        assert program is not None
        self.port = reserve_port()
        settings = folder / "mosquitto.conf"
        settings.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {folder}/\n"
            f"user root\nmax_queued_messages 0\nmax_inflight_messages 1000\n",
            encoding="ascii",
        )
        self.process = LoggedProcess([program, "-v", "-c", str(settings)], folder / "output", name="mosquitto")

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process.start()
        self.process.wait_for(r"mosquitto version \S+ running", START_S)


@contextmanager
def mosquitto() -> Iterator[Mosquitto]:
    with tempfile.TemporaryDirectory(prefix="pessoa-mosquitto-") as temporary:
        server = Mosquitto(Path(temporary))
        server.start()
        try:
            yield server
        finally:
            server.process.stop()


def publish(server: Mosquitto, *messages: tuple[str, str], qos: int = 1, retain: bool = False) -> None:
    """Publish messages; with `retain` the server keeps the last one of each topic for later subscribers."""
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    client = Client(CallbackAPIVersion.VERSION2, "sensor")
    client.connect("127.0.0.1", server.port)
    client.loop_start()
    try:
        for topic, text in messages:
            client.publish(topic, text, qos, retain).wait_for_publish(60)
    finally:
        client.disconnect()
        client.loop_stop()
