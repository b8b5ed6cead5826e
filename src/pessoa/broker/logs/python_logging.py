"""Files for what this process says with Python's logging: the error log, and the authorizer log.

Loggers belong to the process: where several brokers share one, each has what all of them say. A record that another
thread makes is written by the loop of the broker.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.base.json_value import JsonValue
    from pessoa.broker.logs.log_writer import LogWriter

_traceback = logging.Formatter().formatException


class LogFileHandler(logging.Handler):
    def __init__(self, writer: LogWriter, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.writer = writer
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            entry = _entry(record)
            if _is_running(self._loop):
                self._write(entry, record.levelno)
            else:
                self._loop.call_soon_threadsafe(self._write, entry, record.levelno)
        except RuntimeError:
            # The loop of a broker that was killed: nothing is left to write with.
            pass
        except Exception:  # noqa: BLE001 (as in all of Python's handlers: logging must not fail what logs)
            self.handleError(record)

    def _write(self, entry: dict[str, JsonValue], level: int) -> None:
        self.writer.write(entry)
        if level >= logging.ERROR:
            # What follows may be the end of the process.
            self.writer.file.flush()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _entry(record: logging.LogRecord) -> dict[str, JsonValue]:
    entry: dict[str, JsonValue] = {
        "level": record.levelname,
        "logger": record.name,
        "message": record.getMessage(),
    }
    if record.exc_info is not None and record.exc_info[0] is not None:
        entry["traceback"] = _traceback(record.exc_info)
    return entry
