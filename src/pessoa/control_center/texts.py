"""The words of the pages in English and Portuguese: the English sentence is the key, and `portuguese.py` has the table.

    t = Text("pt"); t("Topics") → "Tópicos"; t("{n} messages", n=3); t.count("broker", 2) → "2 brokers"

A sentence that the table lacks stays English; a test sees that none is lacking.
"""

from __future__ import annotations

from pessoa.control_center.portuguese import PORTUGUESE

LANGUAGES = {"en": "English", "pt": "Português"}


class Text:
    def __init__(self, language: str = "en") -> None:
        self.language = language if language in LANGUAGES else "en"
        self._table = PORTUGUESE if self.language == "pt" else {}

    def __repr__(self) -> str:
        return f"<Text {self.language}>"

    def __call__(self, english: str, **facts: object) -> str:
        sentence = self._table.get(english, english)
        return sentence.format(**facts) if facts else sentence

    def count(self, noun: str, number: int) -> str:
        """Return the number with its noun: `1 broker`, `3 brokers`."""
        return f"{number:,} {self(noun if number == 1 else noun + 's')}"


def chosen_language(cookie: str | None, accept: str | None) -> str:
    """Return the language of the cookie, or the first of the browser's languages that is supported; else English."""
    if cookie in LANGUAGES:
        assert cookie is not None
        return cookie
    for part in (accept or "").split(","):
        tag = part.split(";")[0].strip().lower()[:2]
        if tag in LANGUAGES:
            return tag
    return "en"
