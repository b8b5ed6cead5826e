"""Pieces of pages as HTML: tables, tiles, charts, badges. Every text is escaped by `Markup.format` on its way in.

Charts are SVG, drawn here from numbers: a page needs no chart library before its first paint, and a live chart is a few
hundred bytes every two seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from pessoa.control_center.sample_history import Sample

Html = Markup
Cell = str | int | float | Markup | None

_WIDTH, _HEIGHT = 600, 120


def join(parts: Iterable[Cell]) -> Markup:
    return Markup("").join("" if one is None else one if isinstance(one, str) else str(one) for one in parts)


def tag(name: str, *content: Cell, **attributes: object) -> Markup:
    """Return an HTML element: `tag("a", "text", href=url, cls="link")`. Attributes that are None are left out, `_`
    in names becomes `-`."""
    attribute_text = join(
        Markup(' {}="{}"').format("class" if key == "cls" else key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), attribute_text, join(content))  # noqa: S704 - names of tags are ours


def link(text: Cell, href: str, cls: str = "link") -> Markup:
    return tag("a", text, href=href, cls=cls)


def icon(name: str, cls: str = "") -> Markup:
    return tag("i", name, cls=f"material-icons {cls}".strip(), aria_hidden="true")


def badge(text: str, tone: str = "plain") -> Markup:
    return tag("span", text, cls=f"badge {tone}")


def table(heads: Sequence[Cell], rows: Iterable[Sequence[Cell]], *, empty: str, numbers: Sequence[int] = ()) -> Markup:
    """Return an HTML table; `numbers` are the columns that are aligned to the right. On a phone a row is a block:
    its first cell is the title, and each of the others is below the name of its column (`data-label`)."""
    labels = [_label(head) for head in heads]

    def head(at: int, one: Cell) -> Markup:
        return tag("th", one, cls="num" if at in numbers else None, scope="col")

    def cell(at: int, one: Cell) -> Markup:
        # A lone number is no title.
        label = labels[at] if at < len(labels) and (at or isinstance(one, int)) else None
        return tag("td", one, cls="num" if at in numbers else None, data_label=label or None)

    body = [tag("tr", join(cell(at, one) for at, one in enumerate(row))) for row in rows]
    if not body:
        return tag("p", empty, cls="empty")
    top = tag("thead", tag("tr", join(head(at, one) for at, one in enumerate(heads))))
    # Pairs without heads are narrow enough for a phone.
    inner = tag("table", top, tag("tbody", *body), cls="table stacks" if any(labels) else "table")
    return tag("div", inner, cls="scroll", tabindex="0")


def _label(head: Cell) -> str:
    """Return the text of a head, without its link and the arrow of its order."""
    return (head.striptags() if isinstance(head, Markup) else str(head or "")).rstrip(" ↑↓")


def tile(label: str, value: Cell, note: Cell = "", tone: str = "") -> Markup:
    return tag(
        "div", tag("div", label, cls="tile-label"), tag("div", value, cls="tile-value"),
        tag("div", note, cls="tile-note"), cls=f"tile {tone}",
    )  # fmt: skip


def tiles(*found: Markup) -> Markup:
    return tag("div", *found, cls="tiles")


def card(title: Cell, *content: Cell, cls: str = "") -> Markup:
    return tag("section", tag("h2", title) if title else "", *content, cls=f"card {cls}")


def notice(text: Cell, tone: str = "muted") -> Markup:
    return tag("div", icon({"bad": "error", "warning": "warning", "good": "check_circle"}.get(tone, "info")),
               tag("span", text), cls=f"notice {tone}", role="status")  # fmt: skip


def chart(title: str, samples: Sequence[Sample], unit: str = "", tone: str = "a", empty: str = "") -> Markup:
    """Return an area chart over time as HTML, with the last value as text."""
    last = compact(samples[-1].value) if samples else "–"
    head = tag("div", tag("span", title), tag("strong", f"{last}{unit}"), cls="chart-head")
    if len(samples) < 2:
        return tag("div", head, tag("p", empty, cls="empty small"), cls="chart")
    first, final = samples[0].at_ms, samples[-1].at_ms
    top = max([1.0, *(one.value for one in samples)]) * 1.1
    points = [
        f"{(one.at_ms - first) * _WIDTH / max(1, final - first):.1f},{_HEIGHT - one.value * _HEIGHT / top:.1f}"
        for one in samples
    ]
    line = Markup('<polyline points="{}" class="line"/>').format(" ".join(points))
    area = Markup('<polygon points="0,{h} {p} {w},{h}" class="area"/>').format(h=_HEIGHT, w=_WIDTH, p=" ".join(points))
    words = f"{title}: {last}{unit}"
    svg = Markup('<svg viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{l}">{c}</svg>').format(
        w=_WIDTH, h=_HEIGHT, l=words, c=area + line
    )
    foot = tag("div", tag("span", clock(first)), tag("span", f"max {compact(top / 1.1)}"), tag("span", clock(final)),
               cls="chart-foot")  # fmt: skip
    return tag("div", head, svg, foot, cls=f"chart tone-{tone}")


def bar(share: float, tone: str = "") -> Markup:
    percent = f"{100 * min(1.0, max(0.0, share)):.0f}"
    return tag("div", tag("div", cls="fill", style=f"width:{percent}%"), cls=f"bar {tone}")


# Numbers and times.


def compact(number: float | None) -> str:
    """Return a short text of a number: 1.23M for 1,234,567; numbers below 10,000 as they are, – for None."""
    if number is None:
        return "–"
    for bound, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= bound:
            scaled = number / (1e3 if letter == "k" else bound)
            return f"{scaled:.3g}{letter}" if scaled < 1000 else f"{scaled:,.0f}{letter}"
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:.1f}"


def bytes_text(size: float | None) -> str:
    if size is None:
        return "–"
    for unit in ("B", "KB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def rate_text(rate: float | None, unit: str = "/s") -> str:
    return "–" if rate is None else f"{compact(round(rate, 1))}{unit}"


def clock(at_ms: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))


def date_clock(at_ms: float) -> str:
    if at_ms < 0:
        return "–"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000)) + f".{int(at_ms) % 1000:03d}"
