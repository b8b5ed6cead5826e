"""Make the screenshots in docs/images: every page of the control centre, light and dark, desktop and phone.

    .venv/bin/python tools/control_center_screenshots.py [FOLDER [PAGE …]]

It starts a cluster of three brokers with the data of a small shop, a schema registry, Connect, ksql and pipelines on
one Spark, and a control centre. Screenshots are WebP, about 25 KB each; without names of pages it makes all.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import httpx  # noqa: E402
import msgspec  # noqa: E402
from confluent_kafka import Consumer, Producer  # noqa: E402
from confluent_kafka.admin import AdminClient  # noqa: E402
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType  # noqa: E402
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType  # noqa: E402

from pessoa.broker.metrics.node_metrics import NodeMetrics  # noqa: E402
from pessoa.pipelines.spark_server import SparkServer  # noqa: E402
from pessoa.testing import Cluster  # noqa: E402
from tests.browser.conftest import SETTINGS  # noqa: E402
from tests.browser.live_services import LiveServices, live_services  # noqa: E402
from tests.browser.sample_data import an_order, fill  # noqa: E402
from tests.connect.serving import wait_for_states  # noqa: E402
from tests.support.spark import SMALL  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = {
    "brokers": "/brokers",
    "broker": "/brokers/1",
    "topics": "/topics",
    "messages": "/topics/orders?tab=messages",
    "configuration": "/topics/orders?tab=config",
    "analysis": "/topics/orders?tab=analysis",
    "consumers": "/consumers",
    "group": "/consumers/billing",
    "schema": "/schemas/payments-value?version=2&against=1",
    "connect": "/connect",
    "connector": "/connect/archive",
    "ksql": "/ksql",
    "lineage": "/lineage",
    "access": "/access",
    "alerts": "/alerts",
    "settings": "/settings",
    "audit": "/audit",
    "classroom": "/classroom",
    "topic": "/topics/orders",
    "home": "/",
}
LOOKS = {
    "light": ("light", 1360, 880),
    "dark": ("dark", 1360, 880),
    "phone": ("light", 390, 844),
    "phone-dark": ("dark", 390, 844),
}


def main(folder: Path, names: list[str]) -> int:
    if unknown := set(names) - set(PAGES):
        print(f"There is no page {', '.join(sorted(unknown))}: there are {', '.join(PAGES)}")
        return 1
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is not on PATH")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**SETTINGS, "pessoa.metrics.port": "0"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, Cluster(3, settings) as cluster:
        metrics = ",".join(f"{one}=http://127.0.0.1:{_metrics_port(cluster, one)}" for one in cluster)
        spark = SparkServer.start(Path(home) / "spark", SMALL)
        try:
            with live_services(
                Path(home), spark.address, cluster, f"pessoa.control.center.metrics.urls={metrics}"
            ) as services:
                fill(cluster.bootstrap_servers, services.registry)
                _start_shop(services)
                _change_things(services)
                _take(services, folder, chromium, names or list(PAGES))
        finally:
            spark.stop()
    return 0


def _metrics_port(cluster: Cluster, broker: int) -> int:
    return cluster[broker].inspect(lambda found: found.stage(NodeMetrics).endpoint.port)


def _take(services: LiveServices, folder: Path, chromium: str, names: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    ended = threading.Event()
    busy = [threading.Thread(target=_click, args=(services.servers, ended), daemon=True)]
    busy += [threading.Thread(target=_bill, args=(services.servers, ended, at), daemon=True) for at in range(2)]
    for one in busy:
        one.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            _set_up_pages(browser, services.url)
            for look in LOOKS:
                _take_all(browser, services.url, folder, look, names)
            browser.close()
    finally:
        ended.set()
        for one in busy:
            one.join()


def _set_up_pages(browser: Browser, url: str) -> None:
    """Create an alert rule that fires, and favourites."""
    page = browser.new_page(locale="en-US")
    page.goto(f"{url}/alerts")
    page.wait_for_function("window.did_handshake")
    page.get_by_role("button", name="Add a rule").click()
    page.get_by_label("Name").fill("Reports fall behind")
    page.get_by_label("Fires above").fill("300")
    page.get_by_label("Group (* for any)").fill("reports")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("cell", name="Reports fall behind").first.wait_for()
    page.goto(f"{url}/topics")
    page.wait_for_function("window.did_handshake")
    for topic in ("orders", "payments"):
        page.get_by_label(f"Favourite: {topic}", exact=True).click()
    page.locator(".star.on").nth(1).wait_for()
    page.close()


def _change_things(services: LiveServices) -> None:
    """Create ACLs of a few applications, which also gives entries in the audit log."""
    admin = AdminClient({"bootstrap.servers": services.servers})
    wanted = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, user, operation in (
            (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "shop", AclOperation.WRITE),
            (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "billing", AclOperation.READ),
            (ResourceType.GROUP, "billing", ResourcePatternType.LITERAL, "billing", AclOperation.READ),
            (ResourceType.TOPIC, "clicks", ResourcePatternType.PREFIXED, "analytics", AclOperation.READ),
        )
    ]
    for future in admin.create_acls(wanted).values():
        future.result(30)
    with httpx.Client(base_url=f"{services.url}/api/v1", timeout=30) as http:
        http.post("/topics", json={"name": "returns", "partitions": 3}).raise_for_status()
        http.put("/topics/returns/configs/retention.ms", json={"value": "604800000"}).raise_for_status()
        http.put("/topics/orders/configs/min.insync.replicas", json={"value": "2"}).raise_for_status()
        body = {"topic": "orders", "way": "exact", "amount": 10, "dry_run": False}
        http.post("/groups/reports/reset", json=body).raise_for_status()
        http.delete("/topics/returns").raise_for_status()


def _bill(servers: str, ended: threading.Event, number: int) -> None:
    """Run a member of the group `billing`, which reads a little slower than orders are produced."""
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "billing", "client.id": f"billing-{number}",
        "auto.commit.interval.ms": 500, "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.subscribe(["orders"])
    while not ended.wait(0.3):
        consumer.poll(0.1)
    consumer.close()


def _start_shop(services: LiveServices) -> None:
    """Start connectors, queries and dead letters of a small shop."""
    sink = {
        "connector.class": "FileStreamSink", "topics": "customers", "file": str(services.folder / "customers.txt"),
        "value.converter": "org.apache.kafka.connect.json.JsonConverter", "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "customers-refused",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true", "tasks.max": "1",
    }  # fmt: skip
    source = {
        "connector.class": "DatagenConnector", "kafka.topic": "users", "quickstart": "users", "max.interval": "60",
        "tasks.max": "1",
    }  # fmt: skip
    for name, config in (("archive", sink), ("visitors", source)):
        services.connect.post("/connectors", json={"name": name, "config": config}).raise_for_status()
    services.ksql.run(
        "CREATE STREAM orders (customer VARCHAR KEY, city VARCHAR, amount DOUBLE)"
        " WITH (kafka_topic='orders', value_format='JSON');"
        "CREATE STREAM large_orders AS SELECT * FROM orders WHERE amount > 300 EMIT CHANGES;"
        "CREATE TABLE city_totals AS SELECT city, COUNT(*) AS orders, SUM(amount) AS total FROM orders"
        " GROUP BY city EMIT CHANGES;",
        {"auto.offset.reset": "earliest"},
    )
    for name in ("archive", "visitors"):
        wait_for_states(services.connect, name, "RUNNING", "RUNNING")


def _click(servers: str, ended: threading.Event) -> None:
    """Produce clicks of the shop's pages, so that charts have data."""
    producer = Producer({"bootstrap.servers": servers})
    number = 0
    while not ended.wait(0.1):
        for _ in range(3 + number // 40 % 5):
            producer.produce("clicks", f"/page/{number % 9}", f"u-{number % 31}")
            number += 1
        if number % 2:
            producer.produce("orders", msgspec.json.encode(an_order(number % 400)), f"c-{number % 17}")
        producer.poll(0)
    producer.flush(5)


def _take_all(browser: Browser, url: str, folder: Path, look: str, names: list[str]) -> None:
    theme, width, height = LOOKS[look]
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-US")
    context.add_cookies([{"name": "pessoa_theme", "value": theme, "url": url}])
    page, blank = context.new_page(), context.new_page()
    # Charts show data only after a page was open for a while.
    for path in ("/", PAGES["topic"]):
        context.new_page().goto(url + path)
    for name in names:
        page.goto(url + PAGES[name])
        page.wait_for_selector(".main")
        if name == "classroom":
            _begin_lesson(page)
        if name == "ksql":
            _run_query(page)
        if name == "analysis":
            page.get_by_role("button", name="Analyse").click()
            page.wait_for_selector(".notice.good")
        # A clicked button may be below the first screen, and the mouse must not hover over anything.
        page.evaluate("scrollTo(0, 0)")
        page.mouse.move(width // 2, 1)
        # A rate needs two samples.
        page.wait_for_timeout(3000 if name in ("home", "topic", "brokers", "broker", "connect") else 700)
        _save(blank, page.screenshot(), folder / f"{name}-{look}.webp")
    context.close()


def _run_query(page: Page) -> None:
    page.wait_for_selector("[data-completes]", state="attached")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("SELECT city, total\n  FROM city_totals\n  EMIT CHANGES;")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Bars").click()
    # One bar for each city.
    page.locator(".bar-row").nth(4).wait_for(timeout=120_000)
    page.evaluate("document.activeElement.blur()")


def _begin_lesson(page: Page) -> None:
    page.get_by_role("button", name="Begin").click()
    for _ in range(2):
        page.get_by_role("button", name="Add a consumer").click()
    page.wait_for_timeout(9000)


def _save(page: Page, picture: bytes, target: Path) -> None:
    """Save the PNG as WebP, which has a quarter of its size and is encoded by Chromium."""
    source = base64.b64encode(picture).decode()
    made: str = page.evaluate(
        """async source => {
            const image = new Image();
            image.src = 'data:image/png;base64,' + source;
            await image.decode();
            const canvas = document.createElement('canvas');
            canvas.width = image.width; canvas.height = image.height;
            canvas.getContext('2d').drawImage(image, 0, 0);
            return canvas.toDataURL('image/webp', 0.82).split(',')[1];
        }""",
        source,
    )
    target.write_bytes(base64.b64decode(made))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images", sys.argv[2:]))
