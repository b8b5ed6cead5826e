"""`kafka-avro-console-producer`: every line of standard input, which is JSON, becomes a record in Avro."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pessoa.cli.console_producer import make_options
from pessoa.cli.schema_console import producer

OPTIONS = make_options("kafka-avro-console-producer")


def main(words: Sequence[str] | None = None) -> int:
    return producer("AVRO", OPTIONS, words)


if __name__ == "__main__":
    sys.exit(main())
