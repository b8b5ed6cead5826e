"""Make the pictures of docs/images again: every page of the control centre, light and dark, desktop and phone.

    .venv/bin/python tools/control_center_screenshots.py [FOLDER]

A cluster of three brokers with a small shop's data, a schema registry, Connect, ksql and pipelines on one Spark, and a
control centre are started for it. Pictures are WebP, about 25 KB each.
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

import msgspec  # noqa: E402
from confluent_kafka import Producer  # noqa: E402

from pessoa.pipelines.spark_server import SparkServer  # noqa: E402
from pessoa.testing import Cluster  # noqa: E402
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
    "access": "/access?tab=quotas",
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


def main(folder: Path) -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is not on PATH")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, Cluster(brokers=3) as cluster:
        spark = SparkServer.start(Path(home) / "spark", SMALL)
        try:
            with live_services(Path(home), spark.address, cluster) as services:
                fill(cluster.bootstrap_servers, services.registry)
                _start_shop(services)
                _take(services, folder, chromium)
        finally:
            spark.stop()
    return 0


def _take(services: LiveServices, folder: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    ended = threading.Event()
    clicks = threading.Thread(target=_click, args=(services.servers, ended), daemon=True)
    clicks.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for look in LOOKS:
                _take_all(browser, services.url, folder, look)
            browser.close()
    finally:
        ended.set()
        clicks.join()


def _start_shop(services: LiveServices) -> None:
    """Connectors, queries and dead letters, as a small shop has them."""
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
    """Something to see in the charts."""
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


def _take_all(browser: Browser, url: str, folder: Path, look: str) -> None:
    theme, width, height = LOOKS[look]
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-US")
    context.add_cookies([{"name": "pessoa_theme", "value": theme, "url": url}])
    page, blank = context.new_page(), context.new_page()
    # Charts have something to show where a page was open for a while.
    for path in ("/", PAGES["topic"]):
        context.new_page().goto(url + path)
    for name, path in PAGES.items():
        page.goto(url + path)
        page.wait_for_selector(".main")
        if name == "classroom":
            _begin_lesson(page)
        if name == "ksql":
            _run_query(page)
        if name == "analysis":
            page.get_by_role("button", name="Analyse").click()
            page.wait_for_selector(".notice.good")
        page.wait_for_timeout(3000 if name in ("home", "topic") else 700)
        _save(blank, page.screenshot(), folder / f"{name}-{look}.webp")
    context.close()


def _run_query(page: Page) -> None:
    page.wait_for_selector("[data-completes]", state="attached")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("SELECT city, total\n  FROM city_totals\n  EMIT CHANGES;")
    page.wait_for_timeout(400)
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Bars").click()
    page.wait_for_selector(".bar-row", timeout=120_000)
    page.evaluate("document.activeElement.blur()")


def _begin_lesson(page: Page) -> None:
    page.get_by_role("button", name="Begin").click()
    for _ in range(2):
        page.get_by_role("button", name="Add a consumer").click()
    page.wait_for_timeout(9000)


def _save(page: Page, picture: bytes, target: Path) -> None:
    """As WebP, a quarter of the PNG: Chromium itself makes it."""
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
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"))
