"""`kafka-json-schema-console-producer`: every line of standard input becomes a record that follows a JSON Schema."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pessoa.cli.console_producer import make_options
from pessoa.cli.schema_console import producer

OPTIONS = make_options("kafka-json-schema-console-producer")


def main(words: Sequence[str] | None = None) -> int:
    return producer("JSON", OPTIONS, words)


if __name__ == "__main__":
    sys.exit(main())
