r"""Run a script of commands with Apache's tools and with ours, and compare the two transcripts.

    kafka-topics --bootstrap-server @B --create --topic Aa-orders --partitions 2
    kafka-console-producer --bootstrap-server @B --topic Aa-orders <<< one\ntwo\n

    streams-member join Aa-app Aa-orders                       no tool; see `streams_member`

`@B` is the bootstrap address, `@C` that of a controller, `@D` a directory with files for the tools. Both run on the
same cluster, so their topics and groups must have different names: for our tools `Aa` in a name is replaced by `BB`.
`Aa` and `BB` have the same hash in Java, so a HashMap lists both names in the same order. The line `# unordered` in a
script marks tools that print sets, `# measured` tools that print durations and rates.

The controller answers a change before the broker, which the next command asks, has applied it; so after each change the
script waits for the broker. kafka-acls lists the ACLs right after it has changed them: it is run twice, and the second
listing counts.

Ids, times, ports and directories differ between two runs and are replaced before the comparison. Of standard error,
stack traces and log lines are left out, and a help text is replaced by `<help>`.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pessoa.cli.tools import load
from pessoa.client.cluster_client import Cluster as AskedCluster
from pessoa.client.config_admin import Change, Operation, ResourceType, alter_configs, list_resources
from tests.apache.tool_server import Outcome, ToolServer
from tests.tools.streams_member import streams_member

THEIRS, OURS = "Aa", "BB"
TIMEOUT_S = 120.0
_POLL_S = 0.02
# A command with one of these words changes the cluster.
CHANGING = frozenset(
    "--create --delete --alter --add --remove --execute --cancel --verify upgrade downgrade disable".split()
)
# The listing that kafka-acls prints after a change.
_LISTING = "Current ACLs for resource"
Runner = Callable[..., Outcome]


class Cluster(NamedTuple):
    servers: str
    controllers: str
    directory: str = ""


class Step(NamedTuple):
    command: str
    outcome: Outcome

    def __str__(self) -> str:
        return f"$ {self.command}\n[{self.outcome.code}]\n{self.outcome.out}--- stderr\n{self.outcome.err}"


def run_ours(tool: str, *words: str, stdin: str = "") -> Outcome:
    """Run one of our tools in this process; return its output and its exit code."""
    with _streams(stdin) as (out, err):
        code = load(tool)(list(words))
        sys.stdout.flush()
        sys.stderr.flush()
    return Outcome(code, out.getvalue().decode(), err.getvalue().decode())


@contextmanager
def _streams(stdin: str) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    kept = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", write_through=True)
    try:
        yield out, err
    finally:
        # Detached, because a wrapper that is garbage collected closes its BytesIO, which is still read.
        for stream in (sys.stdout, sys.stderr):
            assert isinstance(stream, io.TextIOWrapper)
            stream.flush()
            stream.detach()
        sys.stdin, sys.stdout, sys.stderr = kept


def transcript(run: Runner, script: str, cluster: Cluster, prefix: str) -> list[Step]:
    """Run the commands of a script; return each with its normalised output."""
    steps = []
    is_unordered = "# unordered" in script
    is_measured = "# measured" in script
    for line in script.strip().splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        command, _, given = line.partition(" <<< ")
        stdin = given.encode().decode("unicode_escape").replace(THEIRS, prefix)
        text = command.replace(THEIRS, prefix)
        for sign, value in zip(("@B", "@C", "@D"), cluster, strict=True):
            text = text.replace(sign, value)
        words = shlex.split(text)
        if words[0] == "streams-member":
            streams_member(cluster.servers, *words[1:])
            continue
        outcome = run(words[0], *words[1:], stdin=stdin)
        if outcome.code == 0 and CHANGING & set(words):
            _wait_until_followed(cluster.servers)
            if words[0] == "kafka-acls":
                # The first run has printed the change; its listing may be older than the change.
                again = run(words[0], *words[1:], stdin=stdin)
                outcome = outcome._replace(out=_text_before(_LISTING, outcome.out) + _text_from(_LISTING, again.out))
        plain = normalised(outcome, cluster, prefix)
        if is_unordered:
            plain = plain._replace(
                out="".join(f"{one}\n" for one in sorted(map(str.strip, plain.out.splitlines())) if one)
            )
        if is_measured:
            plain = plain._replace(out=_BETWEEN_MEASURED.sub("<n>", _MEASURED.sub("<n>", plain.out)))
        steps.append(Step(line, plain))
    return steps


def _text_before(words: str, text: str) -> str:
    return text.partition(words)[0]


def _text_from(words: str, text: str) -> str:
    return "".join(text.partition(words)[1:])


def _wait_until_followed(servers: str) -> None:
    """Wait until the broker has applied all changes that the controller has answered.

    A broker shows a change when it begins to apply it. A second change, made when the first is shown, is therefore
    shown only when the first one and everything before it has been applied. The second change undoes the first.
    """
    barrier = (ResourceType.CLIENT_METRICS, "barrier")
    deadline = time.monotonic() + TIMEOUT_S
    with AskedCluster(servers) as asked:
        for change in (Change("interval.ms", "1000"), Change("interval.ms", None, Operation.DELETE)):
            alter_configs(asked, barrier, [change])
            is_made = change.operation is Operation.SET
            while ("barrier" in list_resources(asked, ResourceType.CLIENT_METRICS)) is not is_made:
                assert time.monotonic() < deadline, "the broker does not follow its controller"
                time.sleep(_POLL_S)


def compare(script: str, cluster: Cluster, theirs: ToolServer) -> int:
    """Assert that both transcripts are equal; return the number of compared commands."""
    expected = transcript(theirs.run, script, cluster, THEIRS)
    found = transcript(run_ours, script, cluster, OURS)
    differences = [
        f"{one}=== ours\n{other}" for one, other in zip(expected, found, strict=True) if str(one) != str(other)
    ]
    assert not differences, "\n".join(differences)
    return len(expected)


# Replacing what differs between two runs.

_ID = re.compile(r"(?<![\w.-])(?!\w*Exception)[A-Za-z0-9_-]{22}(?![\w-])")
_REPLACEMENTS = [
    (_ID, "<id>"),
    (re.compile(r"(?<![\w.])1[6-9]\d{11}\b"), "<ms>"),
    (re.compile(r"/tmp/[\w./-]+|/memory\b"), "<path>"),
    # Epochs and offsets grow with every change in the cluster.
    (re.compile(r"(?<=Epoch: )\d+|(?<=HighWatermark: {10})\d+"), "<n>"),
    (re.compile(r"(?<=<id>\t)\d+ *"), "<n>"),
    (re.compile(r"(?<=Aa-absent      \t1          \t)\d+ *"), "<n>"),
]
# Fractions, percentiles, clocks, and how long something took. Counts of records are whole numbers and stay.
_MEASURED = re.compile(
    r"-?\d+\.\d+(E-?\d+)?|\d+(?= ms )|(?<= = )\d+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
    r"|(?<=, )\d+(?=, <n>, |, \d+\.\d+, )"
)
_BETWEEN_MEASURED = re.compile(r"(?<=<n>, )\d+(?=, <n>)")
# The first assignment of a consumer of KIP-848 is empty if the coordinator has not computed the assignment yet.
_NOTHING_ASSIGNED = '"name":"partitions_assigned","partitions":[]'
# An advertisement that the Java consumer logs.
_ADVERTISEMENT = "The consumer rebalance protocol (KIP-848) is production-ready!"
# Only our tools suggest an option for a mistyped one.
_HINT = "Did you mean --"
_TRACE = re.compile(r"\s+at |Caused by: |\s+\.\.\. \d+ more|\s+Suppressed: ")
_LOG_OR_EXCEPTION = re.compile(
    r"(\[[\d :,-]+\] )?(ERROR|WARN) |(java|javax|org|joptsimple|kafka|com|net)\.[\w.$]+(Exception|Error)\b"
)
# Java's text for the records of the bootstrap file, which kafka-storage prints for its developers.
_BOOTSTRAP = "Bootstrap metadata: "
_HELP = re.compile(r"^usage: ", re.MULTILINE)
_UNCAUGHT = re.compile(r'Exception in thread "main" [\w.$]+: ')


def normalised(outcome: Outcome, cluster: Cluster, prefix: str) -> Outcome:
    other = OURS if prefix == THEIRS else THEIRS
    said = _HELP.split(outcome.out, maxsplit=1)
    text = outcome.out if len(said) == 1 else f"{said[0]}<help>\n"
    # A random id may contain the prefix of the other tool (about one in two hundred), so ids are not searched for it.
    lines = (
        line
        for line in text.splitlines()
        if other not in _ID.sub("<id>", line) and not line.startswith(_BOOTSTRAP) and _NOTHING_ASSIGNED not in line
    )
    out = "".join(f"{line}\n" for line in lines if not _TRACE.match(line) and not _LOG_OR_EXCEPTION.match(line))
    # A removed stack trace leaves a blank line at the end.
    out = out.rstrip("\n") + "\n" * out.endswith("\n")
    return Outcome(
        outcome.code,
        _replace_variable_parts(out, cluster, prefix),
        _replace_variable_parts(_reduce_stderr(outcome.err), cluster, prefix),
    )


def _replace_variable_parts(text: str, cluster: Cluster, prefix: str) -> str:
    text = text.replace(cluster.servers, "<servers>")
    if cluster.controllers:
        text = text.replace(cluster.controllers, "<controllers>")
    text = text.replace(prefix, THEIRS)
    for pattern, name in _REPLACEMENTS:
        text = pattern.sub(name, text)
    return text


def _reduce_stderr(err: str) -> str:
    """Return standard error without stack traces and log lines, and with `<help>` for a help text."""
    lines: list[str] = []
    for line in err.splitlines():
        if re.match(r"Option\s.*Description|Option \(\* = required\)|usage: ", line):
            lines.append("<help>")
            break
        line = _UNCAUGHT.sub("", line)
        if line.startswith((_ADVERTISEMENT, _HINT)):
            continue
        if line.strip() and not _TRACE.match(line) and (not _LOG_OR_EXCEPTION.match(line)):
            # Java prints sets of options in an order that changes between runs.
            has_set = "[" in line or "Valid " in line
            lines.append(" ".join(sorted(re.findall(r"[^\s,\[\]]+", line))) if has_set else line.rstrip())
    return "".join(f"{line}\n" for line in lines)
