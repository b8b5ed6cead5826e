"""`kafka-json-schema-console-producer`: every line of standard input becomes a record that follows a JSON Schema."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pessoa.cli.schema_console import producer


def main(words: Sequence[str] | None = None) -> int:
    return producer("JSON", "kafka-json-schema-console-producer", words)


if __name__ == "__main__":
    sys.exit(main())
