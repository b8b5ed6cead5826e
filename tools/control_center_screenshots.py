"""Make the pictures of docs/images again: every page of the control centre, light and dark, desktop and phone.

    .venv/bin/python tools/control_center_screenshots.py [FOLDER]

A cluster of three brokers with a small shop's data, a schema registry and a control centre are started for it. Pictures
are WebP, about 25 KB each.
"""

from __future__ import annotations

import base64
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from confluent_kafka import Producer  # noqa: E402

from pessoa.testing import Cluster  # noqa: E402
from pessoa.testing.in_process_services import SchemaRegistry  # noqa: E402
from tests.browser.center_process import ControlCenter  # noqa: E402
from tests.browser.sample_data import fill  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = {
    "home": "/",
    "brokers": "/brokers",
    "broker": "/brokers/1",
    "topics": "/topics",
    "topic": "/topics/orders",
    "messages": "/topics/orders?tab=messages",
    "configuration": "/topics/orders?tab=config",
    "consumers": "/consumers",
    "group": "/consumers/billing",
    "schema": "/schemas/payments-value?version=2&against=1",
    "connect": "/connect",
    "ksql": "/ksql",
    "lineage": "/lineage",
    "access": "/access?tab=quotas",
    "alerts": "/alerts",
    "settings": "/settings",
    "audit": "/audit",
    "classroom": "/classroom",
}
LOOKS = {
    "light": ("light", 1360, 880),
    "dark": ("dark", 1360, 880),
    "phone": ("light", 390, 844),
    "phone-dark": ("dark", 390, 844),
}


def main(folder: Path) -> int:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is not on PATH")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with Cluster(brokers=3) as cluster, SchemaRegistry(cluster.bootstrap_servers) as registry:
        fill(cluster.bootstrap_servers, registry.url)
        center = ControlCenter(cluster.bootstrap_servers, registry.url)
        ended = threading.Event()
        clicks = threading.Thread(target=_click, args=(cluster.bootstrap_servers, ended), daemon=True)
        clicks.start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                for look in LOOKS:
                    _take_all(browser, center.url, folder, look)
                browser.close()
        finally:
            ended.set()
            clicks.join()
            center.stop()
    return 0


def _click(servers: str, ended: threading.Event) -> None:
    """Something to see in the charts."""
    producer = Producer({"bootstrap.servers": servers})
    number = 0
    while not ended.wait(0.1):
        for _ in range(3 + number // 40 % 5):
            producer.produce("clicks", f"/page/{number % 9}", f"u-{number % 31}")
            number += 1
        producer.poll(0)
    producer.flush(5)


def _take_all(browser: Browser, url: str, folder: Path, look: str) -> None:
    theme, width, height = LOOKS[look]
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-US")
    context.add_cookies([{"name": "pessoa_theme", "value": theme, "url": url}])
    page, blank = context.new_page(), context.new_page()
    for name, path in PAGES.items():
        page.goto(url + path)
        page.wait_for_selector(".main")
        if name == "classroom":
            _begin_lesson(page)
        page.wait_for_timeout(3000 if name in ("home", "topic") else 700)
        _save(blank, page.screenshot(), folder / f"{name}-{look}.webp")
    context.close()


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
