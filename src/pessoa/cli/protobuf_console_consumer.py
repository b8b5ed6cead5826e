"""`kafka-protobuf-console-consumer`: prints records in Protobuf as JSON, one a line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pessoa.cli.console_consumer import make_options
from pessoa.cli.schema_console import consumer

OPTIONS = make_options("kafka-protobuf-console-consumer")


def main(words: Sequence[str] | None = None) -> int:
    return consumer(OPTIONS, words)


if __name__ == "__main__":
    sys.exit(main())
