"""What the verifiable clients share: one JSON object a line, each with a time and a name."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from confluent_kafka import Message


def event(name: str, **fields: object) -> None:
    line = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    print(json.dumps(line, separators=(",", ":"), ensure_ascii=False), flush=True)


def record_data(message: Message) -> None:
    event("record_data", key=_text(message.key()), value=_text(message.value()), topic=message.topic(),
          partition=message.partition(), offset=message.offset())  # fmt: skip


def _text(data: str | bytes | None) -> str | None:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else data


def own_properties(parser: argparse.ArgumentParser, path: str | None, old: str, old_path: str | None) -> dict[str, str]:
    """Return the settings in the user's file, given by the new or the old name of the option. A file that cannot be
    read is a usage error."""
    from pessoa.cli.command_line import UsageError
    from pessoa.cli.tool_run import read_properties

    if old_path is not None:
        print(f"Option --{old} has been deprecated and will be removed in a future version. Use --command-config "
              "instead.")  # fmt: skip
    path = path or old_path
    if path is None:
        return {}
    try:
        return read_properties(path)
    except UsageError as error:
        parser.error(str(error))
