"""A process that stands between an owner and a program, so that the program never outlives its owner.

    owner ──pipe──► guardian ──► java (Spark) ──► Python workers

The guardian's standard input is a pipe whose other end only the owner holds. When the owner ends, however it ends, the
kernel closes that end, the guardian reads the end of the file and kills the program with everything that it started
(they are one process group). When the program ends by itself, the guardian ends with its exit code. Where the kernel
offers it (Linux), the program is also told to die with the guardian.

Run as `python -S -E guardian.py program argument…`: only what the interpreter brings along is imported, so a guardian
starts in milliseconds and stays at a few megabytes. It is never imported.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_group() -> None:
    # The guardian leads the group, so this ends the guardian as well.
    os.killpg(os.getpgid(0), signal.SIGKILL)


def watch_owner() -> None:
    while os.read(0, 4096):
        pass
    kill_group()


def main() -> None:
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    # Forked from the main thread, which lives as long as the process: the kernel's signal is bound to that thread.
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)  # noqa: PLW1509
    threading.Thread(target=watch_owner, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: program.terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = program.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Workers that are still at it must not outlive Spark.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
