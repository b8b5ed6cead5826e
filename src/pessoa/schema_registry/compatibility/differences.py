"""What a comparison finds: a kind that programs know, a place, and a sentence for people.

Kinds are the words of the JVM registry (READER_FIELD_MISSING_DEFAULT_VALUE, PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL,
FIELD_SCALAR_KIND_CHANGED, …). Sentences speak of the reader's and the writer's schema; `sentence` puts in which of the
two is the new one, since that depends on the direction of the check.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    path: str
    # With {reader} and {writer} where the sentence names a side.
    description: str
    # What Avro's own checker adds: the field, the symbols, the type.
    info: str | None = None

    def sentence(self, reader: str, writer: str) -> str:
        text = self.description.replace("{reader}", reader).replace("{writer}", writer)
        item = f"errorType:'{self.kind}', description:'{text}'"
        if self.info is not None:
            item += f", additionalInfo:'{self.info}'"
        return "{" + item + "}"
