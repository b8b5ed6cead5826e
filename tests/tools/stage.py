r"""One script of commands, run by Apache's tools and by ours, and the two transcripts compared.

    kafka-topics --bootstrap-server @B --create --topic Aa-orders --partitions 2
    kafka-console-producer --bootstrap-server @B --topic Aa-orders <<< one\ntwo\n

    streams-member join Aa-app Aa-orders                       a step of the stage's own, see `streams_member`

`@B` is the cluster, `@C` its controller, `@D` a directory with files for the tools. Both tools work on one cluster, so
their topics and groups must differ in name: a name with `Aa` in it gets `BB` in its place for our tool. The two have
the same hash in Java, so a HashMap has both names in the same place. A script with the line
`# unordered` is about tools that print sets, one with `# measured` about tools that print what took how long.

The controller answers for a change before the broker, which the next command asks, has followed it; so after each one
the stage waits for that. kafka-acls lists what there is right after it has changed it: it is asked twice, and what it
says the second time counts.

What cannot be equal is made so before the comparison: ids, times, ports and directories. Of standard error, stack
traces, log lines and help texts are left out; that a help text was there is kept.
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
# What a command that changes the cluster has among its words.
CHANGING = frozenset(
    "--create --delete --alter --add --remove --execute --cancel --verify upgrade downgrade disable".split()
)
# What follows a change of ACLs.
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
    """One of our tools, in this process: what it prints, and what its exit code would be."""
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
        # Detached, so that the wrappers' end does not close what is still read.
        for stream in (sys.stdout, sys.stderr):
            assert isinstance(stream, io.TextIOWrapper)
            stream.flush()
            stream.detach()
        sys.stdin, sys.stdout, sys.stderr = kept


def transcript(run: Runner, script: str, cluster: Cluster, prefix: str) -> list[Step]:
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
                # What it did it says the first time; what there is afterwards may have been read too early then.
                again = run(words[0], *words[1:], stdin=stdin)
                outcome = outcome._replace(out=_before(_LISTING, outcome.out) + _from(_LISTING, again.out))
        plain = normalised(outcome, cluster, prefix)
        if is_unordered:
            plain = plain._replace(
                out="".join(f"{one}\n" for one in sorted(map(str.strip, plain.out.splitlines())) if one)
            )
        if is_measured:
            plain = plain._replace(out=_BETWEEN_MEASURED.sub("<n>", _MEASURED.sub("<n>", plain.out)))
        steps.append(Step(line, plain))
    return steps


def _before(words: str, text: str) -> str:
    return text.partition(words)[0]


def _from(words: str, text: str) -> str:
    return "".join(text.partition(words)[1:])


def _wait_until_followed(servers: str) -> None:
    """Wait until the broker has followed all changes that the controller has answered for.

    It shows a change when it begins to follow it. So a second one, which is made when the first is shown, is shown only
    when all of the first and of what came before is done. The second takes the first back, and nothing is left.
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
    """Assert that both transcripts are equal; the number of commands that were compared."""
    expected = transcript(theirs.run, script, cluster, THEIRS)
    found = transcript(run_ours, script, cluster, OURS)
    differences = [
        f"{one}=== ours\n{other}" for one, other in zip(expected, found, strict=True) if str(one) != str(other)
    ]
    assert not differences, "\n".join(differences)
    return len(expected)


# Making equal what cannot be.

_ID = re.compile(r"(?<![\w.-])(?!\w*Exception)[A-Za-z0-9_-]{22}(?![\w-])")
_REPLACEMENTS = [
    (_ID, "<id>"),
    (re.compile(r"(?<![\w.])1[6-9]\d{11}\b"), "<ms>"),
    (re.compile(r"/tmp/[\w./-]+|/memory\b"), "<path>"),
    # They grow with everything that happens in the cluster.
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
# What a consumer of the newer protocol hears first depends on when the coordinator has worked out its assignment.
_NOTHING_ASSIGNED = '"name":"partitions_assigned","partitions":[]'
# An advertisement that the Java consumer logs.
_ADVERTISEMENT = "The consumer rebalance protocol (KIP-848) is production-ready!"
# What only our tools say to who has mistyped an option.
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
    # One id in two hundred has the other's two letters in it, and says nothing about whose line it is.
    lines = (
        line
        for line in text.splitlines()
        if other not in _ID.sub("<id>", line) and not line.startswith(_BOOTSTRAP) and _NOTHING_ASSIGNED not in line
    )
    out = "".join(f"{line}\n" for line in lines if not _TRACE.match(line) and not _LOG_OR_EXCEPTION.match(line))
    # Where a stack trace was, a blank line is left over at the end.
    out = out.rstrip("\n") + "\n" * out.endswith("\n")
    return Outcome(outcome.code, _plain(out, cluster, prefix), _plain(_essence(outcome.err), cluster, prefix))


def _plain(text: str, cluster: Cluster, prefix: str) -> str:
    text = text.replace(cluster.servers, "<servers>")
    if cluster.controllers:
        text = text.replace(cluster.controllers, "<controllers>")
    text = text.replace(prefix, THEIRS)
    for pattern, name in _REPLACEMENTS:
        text = pattern.sub(name, text)
    return text


def _essence(err: str) -> str:
    """Standard error without traces, log lines, and all of a help text but the fact that it is there."""
    lines: list[str] = []
    for line in err.splitlines():
        if re.match(r"Option\s.*Description|Option \(\* = required\)|usage: ", line):
            lines.append("<help>")
            break
        line = _UNCAUGHT.sub("", line)
        if line.startswith((_ADVERTISEMENT, _HINT)):
            continue
        if line.strip() and not _TRACE.match(line) and (not _LOG_OR_EXCEPTION.match(line)):
            # Java's sets of options come out in another order every time.
            has_set = "[" in line or "Valid " in line
            lines.append(" ".join(sorted(re.findall(r"[^\s,\[\]]+", line))) if has_set else line.rstrip())
    return "".join(f"{line}\n" for line in lines)
