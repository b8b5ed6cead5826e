"""The Java process in which this test process runs Apache's tools, one after another.

Starting Java takes longer than running most tools, so one process is kept: it starts with the first tool and ends with
the test process (also if that is killed, because its input ends then). A thread that runs a tool while another thread's
tool is still running gets a Java process of its own.
"""

from __future__ import annotations

import atexit
import functools
import signal
import subprocess
import threading

from tests.apache.broker import TOOLS, java_command
from tests.apache.tool_server import ToolServer

_is_busy = threading.Lock()


def run_warm(tool: str, *arguments: str, stdin: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    if not _is_busy.acquire(blocking=False):
        command = java_command(TOOLS.get(tool, tool), *arguments)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s)
    try:
        code, out, err = _server().run(tool, *arguments, stdin=stdin, timeout_s=timeout_s)
    finally:
        _is_busy.release()
    if code == -signal.SIGKILL:
        raise subprocess.TimeoutExpired([tool, *arguments], timeout_s, out, err)
    return subprocess.CompletedProcess([tool, *arguments], code, out, err)


@functools.cache
def _server() -> ToolServer:
    server = ToolServer(log_level="ERROR")
    atexit.register(server.close)
    return server
