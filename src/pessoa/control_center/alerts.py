"""Alerts: rules over what the sampler sees, shown on a page and sent to a webhook when they begin and end.

`evaluate` is pure: rules and facts in, what is wrong now out. `AlertBook` remembers since when, keeps the last events,
and sends `{"alert", "state": "firing" | "resolved", "text", "at_ms"}` to the URL of the rule, once for each change.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec

from pessoa.control_center.stored_state import AlertRule

log = logging.getLogger(__name__)

KINDS = {
    "lag": "messages of lag",
    "under-replicated": "partitions",
    "offline": "partitions",
    "disk": "percent of the disk",
}
MAX_EVENTS = 500
_WEBHOOK_S = 5.0


class BadRule(ValueError):
    """An alert rule is invalid; the sentence says why."""


class Facts(NamedTuple):
    lags: Mapping[str, int]
    behind: int
    offline: int
    # By broker: how full the fullest of its disks is, in percent.
    disks: Mapping[int, float]


class Firing(NamedTuple):
    rule: str
    subject: str
    text: str


class AlertEvent(NamedTuple):
    at_ms: int
    rule: str
    state: str
    text: str


def check_rule(rule: AlertRule) -> None:
    if not rule.name.strip():
        raise BadRule("A rule needs a name.")
    if rule.kind not in KINDS:
        raise BadRule(f"There is no kind {rule.kind!r}: choose one of {', '.join(KINDS)}.")
    if rule.threshold < 0:
        raise BadRule("A threshold cannot be below zero.")
    if rule.webhook and urlsplit(rule.webhook).scheme not in ("http", "https"):
        raise BadRule("A webhook is an http:// or https:// URL.")


def shown_rules(rules: Iterable[AlertRule], *, to_admin: bool) -> list[AlertRule]:
    """Return the rules as a user may see them: a webhook's path is often its password, so only its host is shown."""
    if to_admin:
        return list(rules)
    return [
        msgspec.structs.replace(one, webhook=urlsplit(one.webhook).hostname or "…") if one.webhook else one
        for one in rules
    ]


def evaluate(rules: Iterable[AlertRule], facts: Facts) -> list[Firing]:
    """Return the alerts that fire now: values above the threshold of their rule."""
    found = []
    for rule in rules:
        if not rule.is_on:
            continue
        match rule.kind:
            case "lag":
                for group, lag in sorted(facts.lags.items()):
                    if rule.target in ("*", group) and lag > rule.threshold:
                        found.append(Firing(rule.name, group, f"Group {group} is {lag:,} messages behind."))
            case "under-replicated" if facts.behind > rule.threshold:
                found.append(Firing(rule.name, "cluster", f"{facts.behind} partitions have lost a replica."))
            case "offline" if facts.offline > rule.threshold:
                found.append(Firing(rule.name, "cluster", f"{facts.offline} partitions have no leader."))
            case "disk":
                for broker, percent in sorted(facts.disks.items()):
                    if percent > rule.threshold:
                        found.append(
                            Firing(rule.name, f"broker {broker}", f"Disk of broker {broker}: {percent:.0f} %.")
                        )
    return found


class AlertBook:
    def __init__(self) -> None:
        self.firing: dict[tuple[str, str], tuple[int, Firing]] = {}
        self.events: deque[AlertEvent] = deque(maxlen=MAX_EVENTS)

    def __repr__(self) -> str:
        return f"<AlertBook: {len(self.firing)} firing>"

    def note(self, found: Iterable[Firing], now_ms: int) -> list[AlertEvent]:
        """Return the alerts that began and ended since the last call."""
        now = {(one.rule, one.subject): one for one in found}
        changes = [
            AlertEvent(now_ms, one.rule, "firing", one.text) for key, one in now.items() if key not in self.firing
        ]
        changes += [
            AlertEvent(now_ms, one.rule, "resolved", one.text)
            for key, (_, one) in self.firing.items()
            if key not in now
        ]
        self.firing = {key: (self.firing[key][0] if key in self.firing else now_ms, one) for key, one in now.items()}
        self.events.extend(changes)
        return changes


async def send_to_webhooks(rules: Iterable[AlertRule], changes: Iterable[AlertEvent]) -> None:
    urls = {rule.name: rule.webhook for rule in rules if rule.webhook}
    for change in changes:
        url = urls.get(change.rule)
        if url is None:
            continue
        body = {"alert": change.rule, "state": change.state, "text": change.text, "at_ms": change.at_ms}
        try:
            async with httpx.AsyncClient(timeout=_WEBHOOK_S, follow_redirects=False) as http:
                (await http.post(url, json=body)).raise_for_status()
        except httpx.HTTPError as failure:
            log.warning("the webhook of alert %r did not take it: %s", change.rule, failure)
