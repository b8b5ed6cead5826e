"""The topics, groups and schemas of a small shop, which pages show in tests and on screenshots."""

from __future__ import annotations

import time

import httpx
import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

SCRIPT = "<script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"
AVRO = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "double"}],
}
CITIES = ("Lisboa", "Porto", "Évora", "Braga", "Faro")


def fill(servers: str, registry: str | None, orders: int = 400) -> None:
    """Create the topics, and produce their records, schemas and committed offsets."""
    admin = AdminClient({"bootstrap.servers": servers})
    topics = {"orders": 3, "payments": 3, "customers": 1, "clicks": 6, "hostile": 1, "empty": 2}
    wanted = [
        NewTopic(name, count, 3, config={"max.message.bytes": "8000000"} if name == "hostile" else {})
        for name, count in topics.items()
    ]
    for future in admin.create_topics(wanted).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 8_000_000, "linger.ms": 5})
    started_ms = time.time_ns() // 1_000_000 - orders
    for number in range(orders):
        order = an_order(number)
        headers: list[tuple[str, str | bytes | None]] = [("trace", f"t-{number}".encode()), ("source", b"web")]
        # Different times, of which the newest are those of all partitions.
        at_ms = started_ms + number
        key = f"c-{number % 17}".encode()
        producer.produce("orders", msgspec.json.encode(order), key, headers=headers, timestamp=at_ms)
        producer.produce("clicks", f"/page/{number % 9}".encode(), f"u-{number % 31}".encode())
        producer.poll(0)
    producer.produce("hostile", SCRIPT.encode(), b"script", headers=[("x", SCRIPT.encode())])
    producer.produce("hostile", bytes(range(256)), b"binary")
    producer.produce("hostile", msgspec.json.encode({"big": "x" * 5_000_000}), b"big")
    producer.produce("hostile", None, b"tombstone")
    for number in range(20):
        producer.produce("customers", f"name {number}".encode(), f"c-{number}".encode())
    if registry is not None:
        _produce_payments(producer, registry)
    producer.flush(60)
    commit(servers, "billing", "orders", orders // 6)
    commit(servers, "reports", "orders", orders // 20)


def an_order(number: int) -> dict[str, object]:
    return {
        "id": number, "customer": f"c-{number % 17}", "city": CITIES[number % 5], "amount": round(number * 1.37, 2),
        "card": {"number": f"4000-{number:04d}", "holder": "Bernardo Soares"}, "items": [{"name": "tea", "n": 2}],
    }  # fmt: skip


def _produce_payments(producer: Producer, registry: str) -> None:
    import io

    from fastavro import parse_schema, schemaless_writer

    parsed = parse_schema(AVRO)
    body = {"schema": msgspec.json.encode(AVRO).decode()}
    answer = httpx.post(f"{registry}/subjects/payments-value/versions", json=body, timeout=30).raise_for_status()
    second = {**AVRO, "fields": [*AVRO["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}
    body = {"schema": msgspec.json.encode(second).decode()}
    httpx.post(f"{registry}/subjects/payments-value/versions", json=body, timeout=30).raise_for_status()
    for number in range(40):
        out = io.BytesIO(b"\x00" + answer.json()["id"].to_bytes(4, "big"))
        out.seek(5)
        schemaless_writer(out, parsed, {"id": f"p-{number}", "amount": number * 2.5})
        producer.produce("payments", out.getvalue(), f"p-{number}".encode())


def commit(servers: str, group: str, topic: str, offset: int) -> None:
    """Commit this offset in three partitions for a group without members."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    deadline = time.monotonic() + 30
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, at, offset) for at in range(3)], asynchronous=False)
            break
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    consumer.close()
