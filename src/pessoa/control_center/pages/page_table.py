"""The table of pages: each file registers its own."""

from __future__ import annotations

from fastapi import FastAPI

from pessoa.control_center.center import Center
from pessoa.control_center.pages import home, login

PAGES = (home,)


def register_pages(center: Center, app: FastAPI) -> None:
    login.register(center, app)
    for one in PAGES:
        one.register(center)
