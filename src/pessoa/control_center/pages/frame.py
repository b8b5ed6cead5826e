"""What all pages have: who looks and in which language, the frame with navigation, the search (Ctrl-K), and how a page
that fails says so.

    @page(center, "/topics/{topic}", "topics")
    async def topic_page(visit: Visit, topic: str) -> None: …

A handler renders into the frame. An `HttpProblem` of it becomes a notice in the frame; a visit without a session is
sent to /login. `visit.live(seconds, redraw)` repeats something while the page is open; a redraw that fails shows a
banner, and the banner goes when it works again.

A page that is open when its session ends leads to /login (`leave_with_session`). Buttons (`visit.button`), events
(`visit.on`) and redraws look the session up anew, so they do nothing after its end.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from nicegui import events, ui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pessoa.control_center.accounts import COOKIE, Person
from pessoa.control_center.center import Center
from pessoa.control_center.pages.parts import Html, icon, link, notice, tag
from pessoa.control_center.texts import LANGUAGES, Text, chosen_language
from pessoa.web.problems import HttpProblem

log = logging.getLogger(__name__)
_NUMBER = re.compile("-?[0-9]{1,15}")

THEMES = ("auto", "light", "dark")
STYLE = Path(__file__).with_name("style.css")
MENU = (
    ("", (("home", "/", "Home", "dashboard"), ("classroom", "/classroom", "Classroom", "school"))),
    ("Cluster", (
        ("brokers", "/brokers", "Brokers", "dns"),
        ("topics", "/topics", "Topics", "topic"),
        ("consumers", "/consumers", "Consumers", "groups"),
    )),
    ("Data", (
        ("schemas", "/schemas", "Schemas", "schema"),
        ("connect", "/connect", "Connect", "cable"),
        ("ksql", "/ksql", "ksql", "terminal"),
        ("lineage", "/lineage", "Lineage", "account_tree"),
    )),
    ("Operate", (
        ("access", "/access", "Access", "lock"),
        ("alerts", "/alerts", "Alerts", "notifications"),
        ("settings", "/settings", "Settings", "settings"),
        ("audit", "/audit", "Audit log", "history"),
    )),
)  # fmt: skip
_SCRIPT = """
document.addEventListener('keydown', function (e) {
  if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === 'k') { e.preventDefault(); emitEvent('palette', {}); }
});
document.addEventListener('input', function (e) {
  // A page sends 1 MB at most: a longer text would not reach the server, and what was there before would count.
  if (!e.target.value || JSON.stringify(e.target.value).length < 990000) return;
  e.stopImmediatePropagation();
  e.target.value = '';
  e.target.dispatchEvent(new Event('input', {bubbles: true}));
  Quasar.Notify.create({type: 'negative', message: document.body.dataset.tooLong, timeout: 10000});
}, true);
window.setCookie = function (name, value) {
  document.cookie = name + '=' + value + ';path=/;max-age=31536000;samesite=strict'; location.reload();
};
window.labelEditors = function (label) {
  new MutationObserver(function () {
    document.querySelectorAll('.cm-content:not([aria-label])').forEach(function (el) {
      el.setAttribute('aria-label', label);
    });
  }).observe(document, {childList: true, subtree: true});
};
window.prepareEditor = async function (id, words) {
  const CM = await import('nicegui-codemirror');
  const one = getElement(id), view = await one.editorPromise;
  const dark = document.body.classList.contains('body--dark');
  one.setTheme(dark ? 'vscodeDark' : 'vscodeLight');
  const complete = function (context) {
    const word = context.matchBefore(/[\\w.]+/);
    if (!word && !context.explicit) return null;
    const typed = word ? word.text.toUpperCase() : '';
    const options = words.filter(function (o) { return o.label.toUpperCase().startsWith(typed); });
    return {from: word ? word.from : context.pos, options: options, filter: false};
  };
  view.dispatch({effects: CM.StateEffect.appendConfig.of(
    CM.EditorState.languageData.of(function () { return [{autocomplete: complete}]; }))});
  view.dom.dataset.completes = words.length;
};
window.nameCluster = function (name) {
  const named = function (href) {
    const url = new URL(href, location.href);
    if (!url.searchParams.has('cluster')) url.searchParams.set('cluster', name);
    return url.href;
  };
  history.replaceState(history.state, '', named(location.href));
  document.addEventListener('click', function (e) {
    const a = e.target.closest && e.target.closest('a[href^="/"]');
    if (a) a.href = named(a.href);
  }, true);
  document.addEventListener('submit', function (e) {
    if (e.target.elements.cluster) return;
    const field = document.createElement('input');
    field.type = 'hidden'; field.name = 'cluster'; field.value = name;
    e.target.append(field);
  }, true);
};
// The chosen one of many tabs is not to be searched for on a phone.
const tabsShown = new MutationObserver(function () {
  const chosen = document.querySelector('.tabs .on');
  if (!chosen) return;
  tabsShown.disconnect();
  const row = chosen.parentNode;
  row.scrollLeft = chosen.offsetLeft - row.offsetLeft - (row.clientWidth - chosen.offsetWidth) / 2;
});
tabsShown.observe(document, {childList: true, subtree: true});
window.copyText = function (el) {
  const text = el.closest('.more').querySelector('pre').textContent;
  navigator.clipboard && navigator.clipboard.writeText(text);
};
"""


class Visit:
    """One open page: its user, its language and its URL."""

    def __init__(self, center: Center, request: Request) -> None:
        self.center = center
        self.request = request
        accept = request.headers.get("accept-language")
        self.t = Text(chosen_language(request.cookies.get("pessoa_language"), accept))
        chosen = request.cookies.get("pessoa_theme", "auto")
        self.theme = chosen if chosen in THEMES else "auto"
        self._banner: ui.html | None = None

    @property
    def person(self) -> Person:
        """The user of the page, with the present role. Raises the problem 401 once the session has ended."""
        found = self.center.accounts.of_session(self.request.cookies.get(COOKIE))
        if found is None:
            raise HttpProblem(401, self.t("The session has ended: log in again."))
        return found

    def has_session(self) -> bool:
        """Return whether the session is valid; if not, redirect to the login page. Does not prolong the session, since
        redraws call this."""
        if self.center.accounts.of_session(self.request.cookies.get(COOKIE)) is not None:
            return True
        ui.navigate.to(login_address(self.request))
        return False

    def leave_with_session(self) -> None:
        """Redirect to the login page at the moment when the session ends, so that no data stays on the screen."""
        accounts, token = self.center.accounts, self.request.cookies.get(COOKIE)
        if not accounts.demands_login:
            return

        def look() -> None:
            left = accounts.seconds_left(token)
            if left > 0:
                timer.interval = left
                return
            timer.cancel()
            ui.navigate.to(login_address(self.request))

        timer = ui.timer(accounts.seconds_left(token), look, immediate=False)

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int) -> int:
        text = self.query(name)
        return int(text) if _NUMBER.fullmatch(text) else default

    def here(self, **changed: object) -> str:
        """Return this URL with other parameters; None and the empty text remove one."""
        query = {**self.request.query_params, **changed}
        kept = {key: value for key, value in query.items() if value not in (None, "")}
        return f"{self.request.url.path}?{urlencode(kept)}" if kept else self.request.url.path

    def go(self, path: str) -> None:
        """Open another page, of the same cluster."""
        if len(self.center.clusters) > 1:
            path += f"{'&' if '?' in path else '?'}cluster={quote(self.center.config.name)}"
        ui.navigate.to(path)

    def html(self, content: Html | None = None) -> ui.html:
        """Return an element for HTML; its content must be escaped already."""
        return ui.html(str(content or ""), sanitize=False)

    def live(self, seconds: float, redraw: Callable[[], Awaitable[None]]) -> None:
        async def attempt() -> None:
            self.center.look()
            if not self.has_session():
                return
            try:
                await redraw()
            except HttpProblem as problem:
                self.show_banner(problem.message)
            else:
                self.show_banner("")

        self.center.look()
        ui.timer(seconds, attempt, immediate=False)

    def at_end(self, end: Callable[[], object]) -> None:
        """Call the function when the page is closed, perhaps twice: a page whose browser never opened a WebSocket does
        not disconnect, it is only deleted."""
        ui.context.client.on_disconnect(end)
        ui.context.client.on_delete(end)

    def show_banner(self, text: str) -> None:
        if self._banner is not None:
            content = str(notice(text, "bad")) if text else ""
            if self._banner.content != content:
                self._banner.set_content(content)

    async def attempt(self, action: Awaitable[object], done: str) -> bool:
        """Run the user's action, and notify whether it worked."""
        try:
            await action
        except HttpProblem as problem:
            ui.notify(problem.message, type="negative", close_button=True, timeout=10_000)
            return False
        ui.notify(done, type="positive")
        return True

    async def attempt_quietly(self, action: Awaitable[object]) -> None:
        """Run an action of the page, and notify only a failure."""
        try:
            await action
        except HttpProblem as problem:
            ui.notify(problem.message, type="negative", close_button=True, timeout=10_000)

    def button(
        self,
        text: str,
        act: Callable[[], Any],
        role: str = "editor",
        *,
        why_not: str | None = None,
        primary: bool = True,
    ) -> ui.button:
        """Return a button. If the user lacks the role it is disabled, with the reason as its tooltip."""
        found = ui.button(text, on_click=lambda: self.act(act), color=None)
        found.props("no-caps unelevated" if primary else "no-caps outline")
        found.classes("primary" if primary else "secondary")
        if not self.person.may(role):
            why_not = self.t("This needs the role {role}.", role=role)
        if why_not:
            found.disable()
            found.tooltip(why_not)
        return found

    def on(self, event: str, act: Callable[..., Any]) -> None:
        """Call `act` when the page emits an event."""

        async def run(given: events.GenericEventArguments) -> None:
            await self.act(act, given)

        ui.on(event, run)

    async def act(self, act: Callable[..., Any], *given: object) -> None:
        """Run the user's action if the session is valid, prolong it, and notify a failure."""
        if not self.has_session():
            return
        self.center.accounts.by_cookie(self.request.cookies.get(COOKIE))
        try:
            found = act(*given)
            if inspect.isawaitable(found):
                await found
        except HttpProblem as problem:
            ui.notify(problem.message, type="negative", close_button=True, timeout=10_000)


def login_address(request: Request) -> str:
    """Return the URL of the login page, which leads back to this page."""
    return f"/login?next={quote(request.url.path + (f'?{request.url.query}' if request.url.query else ''))}"


def page(center: Center, path: str, active: str, title: str) -> Callable[[Callable[..., Awaitable[None]]], None]:
    """Return a decorator that serves a handler at a path: the handler's parameters after `visit` are those of the
    path."""

    def register(handler: Callable[..., Awaitable[None]]) -> None:
        @functools.wraps(handler)
        async def serve(request: Request, **names: str) -> Response | None:
            if center.accounts.by_cookie(request.cookies.get(COOKIE)) is None:
                return RedirectResponse(login_address(request), 303)
            cluster = request.query_params.get("cluster")
            visit = Visit(center.clusters.get(cluster or "", center), request)
            draw_frame(visit, active, title, names)
            with ui.element("div").classes("main").props("id=main"):
                visit._banner = visit.html()
                try:
                    center.of_cluster(cluster)
                    await handler(visit, **names)
                except HttpProblem as problem:
                    visit.html(notice(problem.message, "bad"))
                visit.leave_with_session()
            return None

        # FastAPI reads the names in the path from the signature.
        named = [one for one in inspect.signature(handler).parameters.values() if one.name != "visit"]
        request_parameter = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
        kept = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=str) for one in named]
        serve.__signature__ = inspect.Signature([request_parameter, *kept])  # type: ignore[attr-defined]
        ui.page(path, title=f"{title} · Pessoa", response_timeout=15)(serve)

    return register


def draw_frame(visit: Visit, active: str, title: str, names: dict[str, str]) -> None:
    t = visit.t
    add_head(visit)
    visit.html(tag("a", t("Skip to the content"), href="#main", cls="skip"))
    groups = []
    for group, items in MENU:
        links = [
            tag("a", icon(symbol), tag("span", t(text)), href=href, cls="nav on" if key == active else "nav",
                aria_current="page" if key == active else None)
            for key, href, text, symbol in items
        ]  # fmt: skip
        groups.append(tag("div", tag("div", t(group), cls="nav-group") if group else "", *links))
    brand = tag("a", tag("span", "P", cls="logo"), tag("span", "Pessoa", cls="brand-name"), href="/", cls="brand")
    menu = tag("nav", *groups, cls="nav-list", aria_label=t("Pages"))
    burger = Html('<input type="checkbox" id="burger" aria-label="{}">').format(t("Menu"))
    opener = Html('<label for="burger" class="burger" aria-hidden="true">{}</label>').format(icon("menu"))
    with ui.element("header").classes("side"):
        visit.html(tag("div", brand, opener, cls="side-head"))
        visit.html(_clusters(visit))
        visit.html(tag("div", burger, menu, _foot(visit), cls="side-body"))
    open_palette = _palette(visit)
    crumbs = [link(t(title), f"/{active}" if active != "home" else "/", "crumb")] if names else [tag("span", t(title))]
    crumbs += [tag("span", name, cls="crumb-name") for name in names.values()]
    with ui.element("div").classes("top"):
        visit.html(tag("h1", *[part for one in crumbs for part in (one, Html(" <em>/</em> "))][:-1]))
        search = ui.button(on_click=lambda: visit.act(open_palette), color=None)
        search.props("no-caps flat").classes("search-button")
        with search:
            visit.html(tag("span", icon("search"), t("Search"), Html(" <kbd>Ctrl K</kbd>"), cls="search-label"))


def _clusters(visit: Visit) -> Html:
    """Draw the cluster selector if there are several. The URL always names the cluster that is shown."""
    chosen, names = visit.center.config.name, list(visit.center.clusters)
    if len(names) == 1:
        return Html("")
    options = [
        Html('<option value="{0}"{1}>{0}</option>').format(one, Html(" selected") if one == chosen else "")
        for one in names
    ]
    choice = tag("select", *options, aria_label=visit.t("Cluster"), cls="cluster-choice",
                 onchange="location.href='/?cluster='+this.value")  # fmt: skip
    ui.add_body_html(f"<script>nameCluster({msgspec.json.encode(chosen).decode()})</script>")
    return choice


def add_head(visit: Visit) -> None:
    ui.add_head_html(f"<style>{STYLE.read_text()}</style>")
    ui.add_body_html(f"<script>{_SCRIPT}</script>")
    ui.query("html").props(f'lang="{visit.t.language}"')
    dark = {"dark": True, "light": False}.get(visit.theme)
    ui.dark_mode(dark)
    too_long = visit.t("This is too long for a page (1 MB): send it from a file, or through the API.")
    ui.query("body").classes(f"theme-{visit.theme}").props(f'data-too-long="{too_long}"')


def _foot(visit: Visit) -> Html:
    t = visit.t
    themes = {"auto": "brightness_auto", "light": "light_mode", "dark": "dark_mode"}
    next_theme = THEMES[(THEMES.index(visit.theme) + 1) % 3]
    theme = tag("button", icon(themes[visit.theme]), title=t("Theme: {name}", name=t(visit.theme)), cls="tool",
                aria_label=t("Theme: {name}", name=t(visit.theme)),
                onclick=f"setCookie('pessoa_theme','{next_theme}')")  # fmt: skip
    other = "pt" if t.language == "en" else "en"
    language = tag("button", other.upper(), title=LANGUAGES[other], aria_label=LANGUAGES[other], cls="tool",
                   onclick=f"setCookie('pessoa_language','{other}')")  # fmt: skip
    api = tag("a", icon("api"), href="/api/docs", title="API", aria_label="API", cls="tool")
    out: Html = Html("")
    if visit.center.accounts.demands_login:
        out = tag("a", icon("logout"), href="/logout", title=t("Log out"), aria_label=t("Log out"), cls="tool")
    user = tag("div", icon("person"), tag("span", visit.person.name), tag("small", t(visit.person.role)), cls="who")
    return tag("div", user, tag("div", theme, language, api, out, cls="tools"), cls="side-foot")


def _palette(visit: Visit) -> Callable[[], Awaitable[None]]:
    """Draw the search dialog, closed, and return the function that opens it."""
    t = visit.t
    with ui.dialog().props("position=top") as dialog, ui.element("div").classes("palette"):
        box = ui.input(placeholder=t("Topics, groups, pages …")).props(
            f'autofocus borderless debounce=120 aria-label="{t("Search")}"'
        )
        found = visit.html()

    async def search() -> None:
        found.set_content(str(await palette_links(visit, box.value or "")))

    async def open_first() -> None:
        links = await palette_targets(visit, box.value or "")
        if links:
            visit.go(links[0][2])

    box.on_value_change(lambda: visit.act(search))
    box.on("keydown.enter", lambda: visit.act(open_first))

    async def show() -> None:
        box.set_value("")
        await search()
        dialog.open()

    visit.on("palette", lambda _: show())
    return show


async def palette_targets(visit: Visit, text: str) -> list[tuple[str, str, str]]:
    """Return symbol, text and URL of what matches the text: pages, then topics and groups."""
    wanted = text.casefold().strip()
    pages = [
        (symbol, visit.t(name), href)
        for _, items in MENU
        for _, href, name, symbol in items
        if wanted in visit.t(name).casefold() or wanted in name.casefold()
    ]
    if not wanted:
        return pages
    try:
        image = await visit.center.watch.image(10.0)
        groups = await visit.center.watch.groups(10.0)
    except HttpProblem:
        return pages
    topics = [("topic", name, f"/topics/{quote(name, safe='')}") for name in image.topics if wanted in name.casefold()]
    members = [("groups", name, f"/consumers/{quote(name, safe='')}") for name in groups if wanted in name.casefold()]
    topics.sort(key=lambda one: (not one[1].casefold().startswith(wanted), one[1]))
    return [*pages[:4], *topics[:12], *sorted(members)[:8]]


async def palette_links(visit: Visit, text: str) -> Html:
    found = await palette_targets(visit, text)
    if not found:
        return tag("p", visit.t("Nothing is called so."), cls="empty small")
    rows = [tag("a", icon(symbol), tag("span", name), href=href, cls="palette-row") for symbol, name, href in found]
    return tag("div", *rows, cls="palette-rows")
