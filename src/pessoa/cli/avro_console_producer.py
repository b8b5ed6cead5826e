"""`kafka-avro-console-producer`: every line of standard input, which is JSON, becomes a record in Avro."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pessoa.cli.schema_console import producer


def main(words: Sequence[str] | None = None) -> int:
    return producer("AVRO", "kafka-avro-console-producer", words)


if __name__ == "__main__":
    sys.exit(main())
