"""Messages of a topic: browsed, searched, filtered, followed; produced, sent again, downloaded.

The query is in the URL, so a search can be sent to a colleague. The scan runs on the server; the page shows a window
of it (the last WINDOW) and takes what waits every quarter of a second. A live tail keeps KEPT messages for the
download.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import msgspec
from nicegui import events, ui
from nicegui.elements.upload_files import FileUpload

from pessoa.base.json_value import JsonValue
from pessoa.control_center.accounts import demand
from pessoa.control_center.csv_text import csv_table
from pessoa.control_center.filter_expressions import BadFilter, compile_filter
from pessoa.control_center.message_reading import SHOWN_BYTES, Message, MessageQuery, Scan, as_text, newest
from pessoa.control_center.pages.frame import Visit
from pessoa.control_center.pages.parts import Html, badge, bytes_text, compact, date_clock, notice, tag
from pessoa.control_center.stored_state import SavedFilter
from pessoa.control_center.texts import Text
from pessoa.web.problems import HttpProblem

WINDOW = 100
KEPT = 5000
KEPT_BYTES = 16 << 20
STARTS = (("newest", "Newest"), ("earliest", "From the beginning"), ("offset", "From an offset"),
          ("time", "From a time"), ("live", "Live"))  # fmt: skip
_PREVIEW = 300
MAX_UPLOAD = 5 << 20


class MessageView:
    """The part of the page that shows the messages and the progress of one scan."""

    def __init__(self, visit: Visit, scan: Scan, list_html: ui.html, progress_html: ui.html) -> None:
        self._visit = visit
        self.scan = scan
        self._list_html = list_html
        self._progress_html = progress_html
        self.kept: deque[Message] = deque(maxlen=KEPT if scan.query.start == "live" else max(scan.query.limit, 1))
        self._drawn_state = -1
        self.received = 0
        self._bytes = 0

    def take(self) -> None:
        waiting = self.scan.take_waiting()
        if self.scan.query.start == "newest":
            # Partitions are read one after the other: the last that came are not the newest.
            self.kept = deque(newest([*self.kept, *waiting], self.scan.query.limit))
        else:
            self._keep(waiting)
        self.received += len(waiting)
        state = self.received * 2 + self.scan.progress.is_done
        self._progress_html.set_content(str(self._progress()))
        if state != self._drawn_state:
            self._drawn_state = state
            self._list_html.set_content(str(self._list()))

    def _keep(self, waiting: list[Message]) -> None:
        for one in waiting:
            if len(self.kept) == self.kept.maxlen or self._bytes > KEPT_BYTES:
                self._bytes -= self.kept.popleft().size if self.kept else 0
            self.kept.append(one)
            self._bytes += one.size

    def messages(self) -> list[Message]:
        return list(reversed(self.kept)) if self.scan.query.start == "live" else list(self.kept)

    def _list(self) -> Html:
        shown = self.messages()[:WINDOW]
        if not shown and self.scan.progress.is_done and self.scan.progress.error is None:
            return tag("p", self._visit.t("No message fits."), cls="empty")
        return tag("div", *(draw_message(self._visit, one) for one in shown))

    def _progress(self) -> Html:
        t, progress = self._visit.t, self.scan.progress
        if progress.error:
            return notice(progress.error, "bad")
        if self.scan.query.start == "live" and not progress.is_done:
            words = t("Live: {n} messages so far; the last {m} are shown.", n=f"{self.received:,}", m=WINDOW)
            return notice(words, "good")
        words = t("{n} of {m} messages read, {k} found", n=f"{progress.scanned:,}", m=f"{progress.total:,}",
                  k=f"{progress.matched:,}")  # fmt: skip
        if progress.is_done:
            return notice(f"{words} · {progress.seconds:.1f} s · {bytes_text(progress.bytes)}")
        share = progress.scanned / max(1, progress.total)
        return notice(f"{words} · {share:.0%}", "warning")


async def draw(visit: Visit, topic: str) -> None:
    t = visit.t
    visit.html(_form(visit, topic))
    with ui.element("div").classes("spread"):
        progress_html = visit.html()
        actions = ui.element("div").classes("actions")
    shown = visit.html()
    try:
        query = _query(visit, topic)
    except BadFilter as wrong:
        visit.html(notice(str(wrong), "bad"))
        return
    view = MessageView(visit, await visit.center.messages(visit.person, query), shown, progress_html)
    visit.at_end(view.scan.stop)

    def step() -> None:
        visit.center.look()
        if not visit.has_session():
            view.scan.stop()
            timer.deactivate()
            return
        view.take()
        if view.scan.progress.is_done:
            timer.deactivate()

    timer = ui.timer(0.25, step, immediate=False)

    # What is read in a moment is in the first answer already.
    await _wait_a_moment(view)
    with actions:
        visit.button(t("Stop"), view.scan.stop, "reader", primary=False)
        visit.button("JSON", lambda: _download(view, topic, "json"), "reader", primary=False).tooltip(t("Download"))
        visit.button("CSV", lambda: _download(view, topic, "csv"), "reader", primary=False).tooltip(t("Download"))
        visit.button(t("Save the filter"), lambda: _open_saving(visit, topic), primary=False,
                     why_not=None if visit.query("filter") else t("There is no filter."))  # fmt: skip
        visit.button(t("Produce"), lambda: open_producer(visit, topic))
    _serve_events(visit, topic, view)


async def _wait_a_moment(view: MessageView) -> None:
    import asyncio

    for _ in range(20):
        view.take()
        if view.scan.progress.is_done or view.scan.query.start == "live":
            break
        await asyncio.sleep(0.05)
    view.take()


def _query(visit: Visit, topic: str) -> MessageQuery:
    start = visit.query("start", "newest")
    amount = visit.number("amount", 0)
    if start == "time":
        amount = _time_ms(visit.query("at"))
    query = MessageQuery(
        topic, start if start in dict(STARTS) else "newest", amount, limit=min(max(visit.number("limit", 50), 1), 1000),
        search=visit.query("search")[:500], hidden=visit.center.hidden_paths(topic, visit.person),
        value_format=_format(visit, "value"), key_format=_format(visit, "key"),
    )  # fmt: skip
    if (partition := visit.number("partition", -1)) >= 0:
        query = replace(query, partitions=(partition,))
    if text := visit.query("filter").strip():
        query = replace(query, passes=compile_filter(text))
    return query


def _format(visit: Visit, part: str) -> str:
    text = visit.query(part)
    return text if text in visit.center.decoder.formats else "auto"


def _time_ms(text: str) -> int:
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


def _form(visit: Visit, topic: str) -> Html:
    t = visit.t

    def select(name: str, label: str, options: list[tuple[str, str]], chosen: str) -> Html:
        drawn = [
            Html('<option value="{}"{}>{}</option>').format(key, Html(" selected") if key == chosen else "", text)
            for key, text in options
        ]
        return Html('<select name="{}" aria-label="{}">{}</select>').format(name, label, Html("").join(drawn))

    def field(kind: str, name: str, label: str, style: str = "") -> Html:
        form = Html('<input type="{}" name="{}" value="{}" placeholder="{}" aria-label="{}" style="{}">')
        return form.format(kind, name, visit.query(name), label, label, style)

    info = visit.center.state.stored.filters
    mine = [(one.expression, one.name) for one in info if one.topic in ("", topic)]
    saved: Html = Html("")
    if mine:
        choices = Html("").join(Html('<option value="{}">{}</option>').format(text, name) for text, name in mine)
        saved = Html('<datalist id="saved-filters">{}</datalist>').format(choices)
    text = Html('<input type="text" name="filter" value="{}" list="saved-filters" placeholder="{}" aria-label="{}" '
                'style="flex:1;min-width:280px" class="mono">').format(
        visit.query("filter"), 'value.amount > 100 and key startswith "c-1"', t("Filter"))  # fmt: skip
    start = visit.query("start", "newest")
    formats = [(one, one) for one in visit.center.decoder.formats]
    first = tag(
        "div", Html('<input type="hidden" name="tab" value="messages">'),
        select("start", t("Where to begin"), [(key, t(words)) for key, words in STARTS], start),
        field("number", "amount", t("Offset"), "width:116px"), field("datetime-local", "at", t("Time"), "width:206px"),
        field("number", "partition", t("Partition"), "width:104px"), field("number", "limit", t("Limit"), "width:78px"),
        select("key", t("Format of keys"), [("", t("key: auto")), *formats[1:]], visit.query("key")),
        select("value", t("Format of values"), [("", t("value: auto")), *formats[1:]], visit.query("value")),
        cls="bar-form where",
    )  # fmt: skip
    second = tag("div", field("search", "search", t("Search keys, values, headers")), text, saved,
                 tag("button", t("Show"), cls="btn"), cls="bar-form")  # fmt: skip
    return Html('<form method="get" class="card">{}{}</form>').format(first, second)


def draw_message(visit: Visit, one: Message) -> Html:
    t = visit.t
    text = as_text(one.value)
    preview = tag("em", t("null"), cls="dim") if one.value is None else text[:_PREVIEW]
    head = tag(
        "summary", tag("span", f"{one.partition} · {one.offset:,}", cls="where"),
        tag("span", date_clock(one.timestamp), cls="where"), tag("span", as_text(one.key)[:80], cls="key"),
        tag("span", preview, cls="value mono"), badge(one.value_format),
    )  # fmt: skip
    facts = tag("p", f"{t('Partition')} {one.partition} · {t('offset')} {one.offset} · {bytes_text(one.size)}",
                f" · {t('schema')} {one.schema_id}" if one.schema_id is not None else "", cls="dim")  # fmt: skip
    headers = tag("p", *(badge(f"{name}: {as_text(value)[:120]}") for name, value in one.headers))
    where = {"data_partition": one.partition, "data_offset": one.offset}
    call = "{p:+this.dataset.partition,o:+this.dataset.offset}"
    buttons = tag(
        "div", tag("button", t("Copy"), cls="btn secondary", onclick="copyText(this)"),
        tag("button", t("Send again"), cls="btn secondary", onclick=f"emitEvent('resend',{call})", **where),
        tag("button", t("All of it"), cls="btn secondary", onclick=f"emitEvent('whole',{call})", **where)
        if one.is_cut else "", cls="actions",
    )  # fmt: skip
    trouble = notice(one.trouble, "warning") if one.trouble else ""
    more = tag("div", facts, headers, trouble, tag("pre", pretty(one.value, SHOWN_BYTES)), buttons, cls="more")
    return tag("details", head, more, cls="msg")


def pretty(value: JsonValue, bound: int | None = None) -> str:
    """Return the value over several lines; if these would be much longer than the value, on one line, truncated to
    `bound` characters."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    text, most = as_text(value), 4 * SHOWN_BYTES
    lines = msgspec.json.format(text, indent=2) if len(text) <= most else text
    return lines if len(lines) <= most else text[:bound]


def _serve_events(visit: Visit, topic: str, view: MessageView) -> None:
    def found(event: events.GenericEventArguments) -> Message | None:
        at = (event.args.get("p"), event.args.get("o"))
        return next((one for one in view.kept if (one.partition, one.offset) == at), None)

    async def resend(event: events.GenericEventArguments) -> None:
        demand(visit.person, "editor")
        one = found(event)
        if one is None:
            return
        whole = await read_one(visit, topic, one.partition, one.offset)
        open_producer(visit, topic, whole)

    async def whole(event: events.GenericEventArguments) -> None:
        one = found(event)
        if one is None:
            return
        message = await read_one(visit, topic, one.partition, one.offset)
        data = as_text(message.value).encode()
        ui.download.content(data, f"{topic}-{one.partition}-{one.offset}.{'json' if data[:1] in b'{[' else 'txt'}")

    visit.on("resend", resend)
    visit.on("whole", whole)


async def read_one(visit: Visit, topic: str, partition: int, offset: int) -> Message:
    """Return one message with its whole value. Raises the problem 404 if it no longer exists."""
    query = MessageQuery(topic, "offset", offset, (partition,), 1, whole_values=True,
                         hidden=visit.center.hidden_paths(topic, visit.person))  # fmt: skip
    scan = await visit.center.messages(visit.person, query)
    async for batch in scan.batches():
        if batch and batch[0].offset == offset:
            return batch[0]
    raise HttpProblem(404, scan.progress.error or visit.t("This message is no longer there."))


def _download(view: MessageView, topic: str, kind: str) -> None:
    found = view.messages()
    if kind == "json":
        ui.download.content(msgspec.json.encode(found), f"{topic}.json")
        return
    heads = ("partition", "offset", "timestamp", "key", "value")
    rows = [(one.partition, one.offset, one.timestamp, as_text(one.key), as_text(one.value)) for one in found]
    ui.download.content(csv_table(heads, rows), f"{topic}.csv")


def _open_saving(visit: Visit, topic: str) -> None:
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("div", tag("h2", t("Save the filter")), tag("pre", visit.query("filter"))))
        name = ui.input(t("Name")).props("outlined autofocus").style("width:100%")

        async def save() -> None:
            if not (name.value or "").strip():
                ui.notify(t("A filter needs a name."), type="negative")
                return
            demand(visit.person, "editor")
            one = SavedFilter(name.value.strip()[:100], visit.query("filter"), topic, visit.person.name)
            visit.center.state.change(filters=[*visit.center.state.stored.filters, one])
            ui.notify(t("All users find it under the field of filters."), type="positive")
            dialog.close()

        visit.button(t("Save"), save)
    dialog.open()


def open_producer(visit: Visit, topic: str, like: Message | None = None) -> None:
    """Open the dialog that produces a message: a new one, one for each line of a file, or a copy of a message."""
    t = visit.t
    with ui.dialog() as dialog, ui.element("div").classes("sheet"):
        visit.html(tag("h2", t("Send again") if like else t("Produce a message")))
        key = ui.input(t("Key"), value=as_text(like.key) if like else "").props("outlined").style("width:100%")
        value = ui.textarea(t("Value"), value=pretty(like.value) if like else "").props("outlined rows=8")
        value.classes("mono").style("width:100%;margin-top:10px")
        key_serde, value_serde = _serde_choice(visit, "key", like), _serde_choice(visit, "value", like)
        given = "\n".join(f"{name}: {as_text(one)}" for name, one in like.headers) if like else ""
        headers = ui.textarea(t("Headers: a name: value on each line"), value=given).props("outlined rows=2")
        headers.style("width:100%;margin-top:10px")
        partition = ui.number(t("Partition (empty: by the key)"), min=0, precision=0).props("outlined dense")

        async def send() -> None:
            pairs = [line.partition(":") for line in (headers.value or "").splitlines() if line.strip()]
            if wrong := next((name for name, colon, _ in pairs if not colon), None):
                ui.notify(t("{line}: write name: value", line=wrong), type="negative")
                return
            named = [(name.strip(), text.strip().encode()) for name, _, text in pairs]
            at = -1 if partition.value is None else int(partition.value)
            key_bytes = visit.center.encoded(key.value or None, key_serde())
            value_bytes = visit.center.encoded(value.value or "", value_serde())
            placed = visit.center.produce(visit.person, topic, key_bytes, value_bytes, named, at)
            if await visit.attempt(placed, t("The message is in the topic.")):
                dialog.close()

        async def load(upload: events.UploadEventArguments) -> None:
            lines = await lines_of(upload.file, t)
            for line in lines:
                await visit.center.produce(visit.person, topic, None, line)
            ui.notify(t("{n} messages are in the topic.", n=compact(len(lines))), type="positive")

        with ui.element("div").classes("actions").style("margin-top:14px"):
            visit.button(t("Produce"), send)
            visit.button(t("Cancel"), dialog.close, "reader", primary=False)
        if like is None and visit.person.may("editor"):
            visit.html(tag("p", t("Or a file with a message on each line:"), cls="dim"))
            files = ui.upload(on_upload=lambda upload: visit.act(load, upload), auto_upload=True,
                              max_file_size=MAX_UPLOAD)  # fmt: skip
            files.props("flat").style("width:100%")
    dialog.open()


async def lines_of(file: FileUpload, t: Text) -> list[bytes]:
    """Return the lines of a file that are not empty. Raises the problem 413 for a file over the limit, which our
    page would not send."""
    if file.size() > MAX_UPLOAD:
        raise HttpProblem(413, t("The file has more than {size}.", size=bytes_text(MAX_UPLOAD)))
    return [line for line in (await file.read()).splitlines() if line.strip()]


def _serde_choice(visit: Visit, part: str, like: Message | None) -> Callable[[], str]:
    """Draw a choice of the own serde that encodes the text, if there are any; return a function that returns the
    chosen name, "" for the text itself. For a message that is sent again the serde that decoded it is chosen."""
    names = visit.center.decoder.serdes.writing_names()
    if not names:
        return lambda: ""
    t = visit.t
    read_by = "" if like is None else like.key_format if part == "key" else like.value_format
    choice = ui.select({"": t("text"), **{one: one for one in names}}, value=read_by if read_by in names else "",
                       label=t("Format of keys") if part == "key" else t("Format of values"))  # fmt: skip
    choice.props("outlined dense").style("width:100%;margin-top:10px")
    return lambda: str(choice.value or "")
