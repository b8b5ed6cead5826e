"""`kafka-protobuf-console-producer`: every line of standard input, which is JSON, becomes a record in Protobuf."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pessoa.cli.schema_console import producer


def main(words: Sequence[str] | None = None) -> int:
    return producer("PROTOBUF", "kafka-protobuf-console-producer", words)


if __name__ == "__main__":
    sys.exit(main())
