"""Content negotiation: the media types of request bodies and of answers.

An endpoint lists the types that it consumes and produces. A type that it produces may carry a weight of the server's
own, `application/vnd.kafka.json.v2+json; qs=0.1`, as JAX-RS has it: among the types that the caller likes equally, the
one with the highest weight wins, then the one that stands first in the table.

Accept follows RFC 9110: `q` weighs, the most specific range decides about a type, q=0 refuses it, and no header means
that anything goes. A header that cannot be parsed counts as absent: a refusal there would help no caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple


class MediaRange(NamedTuple):
    kind: str
    subtype: str
    weight: float
    # How many parameters besides q it names: `text/html;level=1` is more specific than `text/html`.
    parameter_count: int

    def specificity_for(self, media_type: str) -> int:
        """Return how specifically this range names the type; 0 if it does not."""
        kind, _, subtype = media_type.partition("/")
        if self.kind == "*":
            return 1
        if self.kind != kind:
            return 0
        if self.subtype == "*":
            return 2
        return 3 + self.parameter_count if self.subtype == subtype else 0


def essence(header: str) -> str:
    """Return the media type without parameters: `application/json` for `Application/JSON; charset=utf-8`."""
    return header.partition(";")[0].strip().lower()


@lru_cache(maxsize=512)
def choose_media_type(accept: str | None, produced: tuple[str, ...]) -> str | None:
    """Return the media type to answer in; None if the caller accepts none of those produced."""
    ranges = _ranges(accept) if accept else []
    if not ranges:
        ranges = [MediaRange("*", "*", 1.0, 0)]
    best: tuple[float, float, int] | None = None
    chosen = None
    for place, offer in enumerate(produced):
        name = essence(offer)
        closest = max(ranges, key=lambda each: each.specificity_for(name))
        if not closest.specificity_for(name) or closest.weight <= 0:
            continue
        rank = (closest.weight, _parameter(offer, "qs", 1.0), -place)
        if best is None or rank > best:
            best, chosen = rank, name
    return chosen


def consumes(content_type: str | None, consumed: Sequence[str]) -> bool:
    """Whether a body of this type is accepted; a body without a type counts as application/octet-stream."""
    name = essence(content_type) if content_type else "application/octet-stream"
    return name in consumed


@lru_cache(maxsize=512)
def _ranges(accept: str) -> list[MediaRange]:
    found = []
    for part in accept.split(","):
        name = essence(part)
        kind, slash, subtype = name.partition("/")
        if name == "*":  # sent by old Java clients
            kind, slash, subtype = "*", "/", "*"
        if not slash or not kind or not subtype:
            continue
        parameters = [each.partition("=")[0].strip() for each in part.split(";")[1:]]
        extra = sum(1 for each in parameters if each not in ("q", "qs", "charset", ""))
        found.append(MediaRange(kind, subtype, _parameter(part, "q", 1.0), extra))
    return found


def _parameter(header: str, name: str, default: float) -> float:
    for parameter in header.split(";")[1:]:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == name:
            try:
                return float(value.strip())
            except ValueError:
                return default
    return default
