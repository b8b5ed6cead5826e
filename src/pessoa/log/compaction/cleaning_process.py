"""A pass of compaction in a process of its own (docs/decisions/0003).

    broker                                    python -m pessoa.log.compaction.cleaning_process
      │── the plan ─────────────────────────────►│
      │◄───────────────────────── SwapReady ─────│   once for each group of segments
      │◄──────────── Finished, or an error ──────│

Opening records is work for the interpreter, and the interpreter does one thing at a time: in a thread of the broker it
would make the event loop wait. The child runs at the lowest priority, so that the broker goes first even where there is
only one core. It ends with its pass; its memory, the offset map, goes back with it.

Messages are pickles behind their length; both ends are the same program. The child may not outlive its parent: a
`.swap` that appears after the broker has opened the directory anew would belong to no pass. So it looks at every step,
and right before it renames anything, whether its parent is still there.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, cast

from pessoa.log.compaction.cleaning_plan import CleaningPlan, Finished, Pause, SwapReady
from pessoa.log.files import DiskError
from pessoa.log.os_disk import OsDisk
from pessoa.records.invalid_batch import InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Callable

Message = SwapReady | Finished | DiskError | InvalidBatch

_SIZE = struct.Struct(">I")
_LOWEST_PRIORITY = 19


class CleanerDied(Exception):
    """The cleaner process ended without a result: it was killed, could not be started, or has a bug, which then stands
    in the broker's stderr."""


class CleaningProcess:
    """A pass under way. `next_step` waits, so it is called from a worker thread; `stop` may be called from any."""

    def __init__(self, plan: CleaningPlan) -> None:
        self._plan = plan
        # The child must find the package where this process has found it.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        except OSError as error:
            # Too few descriptors, processes or bytes: there may be more of them another time.
            raise CleanerDied(f"the cleaner of {plan.directory} did not start: {error.strerror}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._output: IO[bytes] = self._process.stdout
        # Not at the top: a broker that has nothing to compact needs none of it.
        import pickle

        try:
            pickle.dump(plan, self._process.stdin)
            self._process.stdin.close()
        except BrokenPipeError:
            self.stop()
            raise CleanerDied(f"the cleaner of {plan.directory} did not start") from None

    def __repr__(self) -> str:
        return f"<CleaningProcess {self._process.pid} on {self._plan.directory}, exit code {self._process.poll()}>"

    @property
    def process_id(self) -> int:
        return self._process.pid

    def next_step(self) -> SwapReady | Finished:
        """Wait for the next cleaned group, or the end. `DiskError` and `InvalidBatch` are raised as in the child
        process."""
        message = _read_message(self._output)
        if message is None:
            code = self._process.wait()
            raise CleanerDied(f"the cleaner of {self._plan.directory} ended with exit code {code}")
        if isinstance(message, DiskError | InvalidBatch):
            raise message
        return message

    def stop(self) -> None:
        """End the process, wherever it is. A thread that waits in `next_step` gets `CleanerDied`."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and wait until it has ended, so that it touches no file any more."""
        self._process.kill()
        self._process.wait()
        self._output.close()


def run_child(plan: CleaningPlan, send: Callable[[Message], None], is_orphan: Callable[[], bool]) -> None:
    """Run a pass in the child process and send its steps. Ends silently if the parent has died."""
    from pessoa.log.compaction.cleaning_pass import CleaningPass

    steps = CleaningPass(OsDisk(), plan, time.monotonic).steps()
    try:
        for step in steps:
            if not isinstance(step, Pause):
                send(step)
            elif is_orphan():
                steps.close()
                return
            elif step.seconds:
                time.sleep(step.seconds)
    except (DiskError, InvalidBatch) as error:
        send(error)


def _read_message(source: IO[bytes]) -> SwapReady | Finished | DiskError | InvalidBatch | None:
    head = source.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    import pickle

    data = source.read(_SIZE.unpack(head)[0])
    try:
        return cast("Message", pickle.loads(data))  # noqa: S301  # it comes from our own child
    except (pickle.UnpicklingError, EOFError):
        # Killed in the middle of a word.
        return None


def main() -> None:
    import pickle

    os.nice(_LOWEST_PRIORITY)
    parent = os.getppid()
    plan = pickle.load(sys.stdin.buffer)  # noqa: S301  # it comes from our own parent
    output = sys.stdout.buffer

    def send(message: Message) -> None:
        data = pickle.dumps(message)
        output.write(_SIZE.pack(len(data)) + data)
        output.flush()

    run_child(plan, send, lambda: os.getppid() != parent)


if __name__ == "__main__":
    main()
