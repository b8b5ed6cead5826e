"""The table of pages: each file registers its own."""

from __future__ import annotations

from fastapi import FastAPI

from pessoa.control_center.center import Center
from pessoa.control_center.pages import (
    access,
    alerts,
    brokers,
    classroom,
    connect,
    consumers,
    home,
    ksql,
    lineage,
    login,
    schemas,
    settings,
    topic,
    topics,
)

PAGES = (home, classroom, brokers, topics, topic, consumers, schemas, connect, ksql, lineage, access, alerts, settings)


def register_pages(center: Center, app: FastAPI) -> None:
    login.register(center, app)
    for one in PAGES:
        one.register(center)
