"""MqttSource: the messages of MQTT topics as records: the key is the MQTT topic, the value the message's bytes.

A message is acknowledged when its record is in Kafka (`commit`), so with `mqtt.qos` 1 or 2 and
`mqtt.clean.session.enabled=false` the server sends again what was under way when a worker died. Servers have a limit
for messages that are not acknowledged (mosquitto: `max_inflight_messages`, 20): raise it where that is too slow. With
QoS 0 the server keeps nothing, and messages of the time without a worker are gone.

A thread of paho's client reads the socket and fills a queue of bounded length; when it is full, the socket is not read.
"""

from __future__ import annotations

import logging
import queue
import threading
import time as clock
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pessoa.base.config_values import Value, at_least, between
from pessoa.connect.connector import Offsets, SourceConnector
from pessoa.connect.connectors.mirror_clusters import BYTES as BYTES_CONVERTER
from pessoa.connect.data import BOOLEAN as BOOLEAN_SCHEMA
from pessoa.connect.data import BYTES, INT32, Header, Record
from pessoa.connect.data import STRING as STRING_SCHEMA
from pessoa.connect.definition import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    REQUIRED,
    STRING,
    Config,
    Settings,
    Table,
    key,
)

if TYPE_CHECKING:
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

log = logging.getLogger("pessoa.connect")

SCHEMES = {"tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883}
QUEUE_SIZE = 10_000
POLL_RECORDS = 2000
WAIT_S = 0.05


def _uri_complaint(value: Value, _: Settings) -> str | None:
    parts = urlsplit(str(value))
    try:
        port = parts.port
    except ValueError:
        return "its port is no number"
    if parts.scheme in SCHEMES and parts.hostname and port != 0:
        return None
    return "it must be tcp://host:1883, or ssl://host:8883"


class MqttSourceConnector(SourceConnector):
    NAMES = ("io.confluent.connect.mqtt.MqttSourceConnector",)
    DEFAULTS = {  # noqa: RUF012
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": BYTES_CONVERTER,
    }
    CONFIG = Table(
        key("mqtt.server.uri", STRING, REQUIRED, _uri_complaint, HIGH, "Where the server is: tcp://host:1883.",
            group="MQTT"),
        key("mqtt.topics", LIST, REQUIRED, HIGH, "The topics to follow, + and # included.", group="MQTT"),
        key("kafka.topic", STRING, "mqtt", HIGH, "Where the messages go.", group="Kafka"),
        key("mqtt.qos", INT, 0, between(0, 2), HIGH, "The quality of service.", group="MQTT"),
        key("mqtt.username", STRING, None, HIGH, "A user.", group="MQTT"),
        key("mqtt.password", PASSWORD, None, HIGH, "The user's password.", group="MQTT"),
        key("mqtt.clean.session.enabled", BOOLEAN, True, LOW, "Whether the server forgets us when we go.",
            group="MQTT"),
        key("mqtt.client.id", STRING, None, LOW, "Our name there; after the connector's by default.", group="MQTT"),
        key("mqtt.connect.timeout.seconds", INT, 30, at_least(1), LOW, "How long the first connection may take.",
            group="MQTT"),
        key("mqtt.keepalive.interval.seconds", INT, 60, at_least(1), LOW, "How often we say that we are there.",
            group="MQTT"),
        key("mqtt.ssl.ca", STRING, None, MEDIUM, "The file of the authority to trust, for ssl://.", group="MQTT"),
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        try:
            import paho.mqtt.client  # noqa: F401
        except ImportError:
            return {"connector.class": "it needs paho-mqtt: pip install 'pessoa[mqtt]'"}
        if settings.get("mqtt.password") and not settings.get("mqtt.username"):
            return {"mqtt.username": "a password needs a user"}
        return {}

    def start(self, config: Config, offsets: Offsets) -> None:
        self._config = config
        self._queue: queue.Queue[MQTTMessage] = queue.Queue(QUEUE_SIZE)
        # Messages that `poll` has returned and `commit` has not acknowledged.
        self._unacknowledged_messages: list[MQTTMessage] = []
        self._client: Client | None = None
        self._is_stopped = threading.Event()
        self._has_connected = threading.Event()
        self._refusal = ""
        self._started_s = clock.monotonic()

    def _open(self) -> Client:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        config = self._config
        parts = urlsplit(config.string("mqtt.server.uri"))
        name = config.optional_string("mqtt.client.id") or f"pessoa-{config.originals.get('name', 'connect')}"
        client = Client(
            CallbackAPIVersion.VERSION2, name, clean_session=config.boolean("mqtt.clean.session.enabled"),
            manual_ack=True,
        )  # fmt: skip
        user = config.optional_string("mqtt.username")
        if user:
            client.username_pw_set(user, config.optional_string("mqtt.password"))
        if parts.scheme in ("ssl", "mqtts"):
            client.tls_set(ca_certs=config.optional_string("mqtt.ssl.ca"))
        client.reconnect_delay_set(1, 30)
        client.on_connect = self._subscribe
        client.on_disconnect = self._note_loss
        client.on_message = self._queue_message
        assert parts.hostname is not None
        port = parts.port or SCHEMES[parts.scheme]
        client.connect_async(parts.hostname, port, config.integer("mqtt.keepalive.interval.seconds"))
        client.loop_start()
        return client

    # Called by paho's thread.

    def _subscribe(
        self, client: Client, _: object, __: ConnectFlags, reason: ReasonCode, ___: Properties | None
    ) -> None:
        if reason.is_failure:
            self._refusal = str(reason)
            return
        self._has_connected.set()
        quality = self._config.integer("mqtt.qos")
        client.subscribe([(topic, quality) for topic in self._config.entries("mqtt.topics")])

    def _note_loss(
        self, _: Client, __: object, ___: DisconnectFlags, reason: ReasonCode, ____: Properties | None
    ) -> None:
        if not self._is_stopped.is_set():
            log.warning("the connection to %s is gone: %s", self._config["mqtt.server.uri"], reason)

    def _queue_message(self, _: Client, __: object, message: MQTTMessage) -> None:
        while not self._is_stopped.is_set():
            try:
                self._queue.put(message, timeout=0.2)
            except queue.Full:
                continue
            return

    # Called by the task.

    def poll(self) -> Iterable[Record]:
        if self._client is None:
            self._client = self._open()
        if not self._has_connected.is_set():
            self._check_patience()
        found: list[MQTTMessage] = []
        try:
            found.append(self._queue.get(timeout=WAIT_S))
            while len(found) < POLL_RECORDS:
                found.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        self._unacknowledged_messages += found
        return [self._record(each) for each in found]

    def _check_patience(self) -> None:
        if clock.monotonic() - self._started_s > self._config.integer("mqtt.connect.timeout.seconds"):
            why = self._refusal or "it does not answer"
            raise ConnectionError(f"{self._config['mqtt.server.uri']} cannot be reached: {why}")

    def _record(self, message: MQTTMessage) -> Record:
        facts = {"message.id": message.mid, "qos": message.qos}
        flags = {"retained": bool(message.retain), "duplicate": bool(message.dup)}
        return Record(
            self._config.string("kafka.topic"),
            key_schema=STRING_SCHEMA,
            key=message.topic,
            value_schema=BYTES,
            value=bytes(message.payload),
            headers=tuple(Header(f"mqtt.{name}", INT32, number) for name, number in facts.items())
            + tuple(Header(f"mqtt.{name}", BOOLEAN_SCHEMA, flag) for name, flag in flags.items()),
        )

    def commit(self, offsets: Offsets) -> None:
        """Acknowledge all delivered messages to the MQTT server; no batch is in flight now."""
        if self._client is not None:
            for each in self._unacknowledged_messages:
                if each.qos:
                    self._client.ack(each.mid, each.qos)
        self._unacknowledged_messages.clear()

    def stop(self) -> None:
        self._is_stopped.set()
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
        self._client = None
