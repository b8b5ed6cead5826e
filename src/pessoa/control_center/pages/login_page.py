"""Logging in and out: plain forms, so that they work before any script has loaded.

The form carries no token of its own: the session cookie is `SameSite=Strict`, and `request_guard.py` refuses forms of
other sites. Where to go afterwards must be a path of ours.
"""

from __future__ import annotations

from urllib.parse import parse_qs, quote

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pessoa.control_center.accounts import COOKIE
from pessoa.control_center.center import Center
from pessoa.control_center.pages.frame import STYLE
from pessoa.control_center.pages.parts import Html, notice, tag
from pessoa.control_center.texts import Text, chosen_language
from pessoa.web.asgi_app import BODY_TIMEOUT_S
from pessoa.web.bodies import BodyLimit, read_body
from pessoa.web.problems import HttpProblem

# Anyone may send a form: no more of it is read than a name and a password need.
_FORM_LIMIT = BodyLimit(4096, timeout_s=BODY_TIMEOUT_S)
OIDC_COOKIE = "pessoa_oidc"


def register(center: Center, app: FastAPI) -> None:
    async def form(request: Request) -> Response:
        return HTMLResponse(_form(request, has_provider=center.oidc is not None))

    async def log_in(request: Request) -> Response:
        name = ""
        try:
            given = parse_qs((await read_body(request, _FORM_LIMIT)).decode("utf-8", "replace"))
            name, password = (given.get(field, [""])[0] for field in ("name", "password"))
            token = await center.accounts.log_in(name, password)
        except HttpProblem as problem:
            center.audit.note(name[:64] or "?", "log in", "", problem.message)
            return HTMLResponse(_form(request, problem, has_provider=center.oidc is not None), problem.status)
        center.audit.note(name, "log in", "")
        answer = RedirectResponse(safe_path(request.query_params.get("next")), 303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=_is_https(request), path="/")
        return answer

    async def to_provider(request: Request) -> Response:
        if center.oidc is None:
            return RedirectResponse("/login", 303)
        url, state = center.oidc.begin(_callback(request), safe_path(request.query_params.get("next")))
        answer = RedirectResponse(url, 303)
        # Lax: the provider's redirect back is a request of another site.
        answer.set_cookie(OIDC_COOKIE, state, httponly=True, samesite="lax", secure=_is_https(request), max_age=600)
        return answer

    async def from_provider(request: Request) -> Response:
        assert center.oidc is not None
        given = request.query_params
        try:
            token, after = await center.oidc.finish(
                given.get("code", ""), given.get("state", ""), request.cookies.get(OIDC_COOKIE, ""), _callback(request)
            )
            session = await center.accounts.log_in_by(f"Bearer {token}")
        except HttpProblem as problem:
            center.audit.note("?", "log in by OIDC", "", problem.message)
            return HTMLResponse(_form(request, problem, has_provider=True), problem.status)
        person = center.accounts.by_cookie(session)
        center.audit.note(person.name if person else "?", "log in by OIDC", "")
        # The next request must be one of our own page: a Strict cookie does not go with a redirect from elsewhere.
        answer = HTMLResponse(str(Html('<meta http-equiv="refresh" content="0;url={}">').format(after)))
        answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=_is_https(request), path="/")
        answer.delete_cookie(OIDC_COOKIE)
        return answer

    async def log_out(request: Request) -> Response:
        center.accounts.log_out(request.cookies.get(COOKIE))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE)
        return answer

    app.add_api_route("/login", form, methods=["GET"], include_in_schema=False, response_model=None)
    app.add_api_route("/login", log_in, methods=["POST"], include_in_schema=False, response_model=None)
    app.add_api_route("/login/oidc", to_provider, methods=["GET"], include_in_schema=False, response_model=None)
    if center.oidc is not None:
        callback_path = "/login/oidc/callback"
        app.add_api_route(callback_path, from_provider, methods=["GET"], include_in_schema=False, response_model=None)
    app.add_api_route("/logout", log_out, methods=["GET"], include_in_schema=False, response_model=None)


def _is_https(request: Request) -> bool:
    return request.url.scheme == "https"


def _callback(request: Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc}/login/oidc/callback"


def safe_path(path: str | None) -> str:
    """Return the path if it is one of this service, and "/" otherwise. Browsers drop control characters: "/\\t/host"
    would lead to another host."""
    if path is None or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    return path


def _form(request: Request, problem: HttpProblem | None = None, *, has_provider: bool = False) -> str:
    t = Text(chosen_language(request.cookies.get("pessoa_language"), request.headers.get("accept-language")))
    message = ""
    if problem is not None:
        message = notice(t("Name or password is wrong.") if problem.status == 401 else problem.message, "bad")
    elif request.query_params.get("next"):
        message = notice(t("Please log in to go on."))
    field = Html('<label>{0}<br><input name="{1}" type="{2}" autocomplete="{3}" required style="width:100%"></label>')
    form = Html('<form method="post">{}{}<button class="btn">{}</button></form>').format(
        field.format(t("Name"), "name", "text", "username"),
        field.format(t("Password"), "password", "password", "current-password"), t("Log in"),
    )  # fmt: skip
    if has_provider:
        after = quote(safe_path(request.query_params.get("next")))
        form = form + tag("p", tag("a", t("Log in with single sign-on"), href=f"/login/oidc?next={after}", cls="link"))
    theme = request.cookies.get("pessoa_theme", "light")
    body = tag("main", tag("span", "P", cls="logo"), tag("h1", "Pessoa"), message, form, cls="login")
    head = f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE.read_text()}</style>'
    name = theme if theme in ("light", "dark") else "light"
    return (
        f'<!doctype html><html lang="{t.language}"><head><meta charset="utf-8"><title>Pessoa</title>{head}</head>'
        f'<body class="theme-{name}">{body}</body></html>'
    )
