"""The table of pages: each file registers its own."""

from __future__ import annotations

from fastapi import FastAPI

from pessoa.control_center.center import Center
from pessoa.control_center.pages import (
    access_page,
    alerts_page,
    brokers_page,
    classroom_page,
    connect_page,
    consumers_page,
    home_page,
    ksql_page,
    lineage_page,
    login_page,
    schemas_page,
    settings_page,
    topic_page,
    topics_page,
)

PAGES = (
    home_page,
    classroom_page,
    brokers_page,
    topics_page,
    topic_page,
    consumers_page,
    schemas_page,
    connect_page,
    ksql_page,
    lineage_page,
    access_page,
    alerts_page,
    settings_page,
)


def register_pages(center: Center, app: FastAPI) -> None:
    login_page.register(center, app)
    for one in PAGES:
        one.register(center)
