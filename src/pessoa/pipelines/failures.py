"""What went wrong, in a few lines that a person can use, and whether it may pass by itself. Pure.

Spark's failures are Java stack traces with the Python traceback of a worker somewhere inside. What helps is the message
at their root, and for a Python function where in the user's file it was raised.

Kafka's have a code. librdkafka marks those of a transactional producer that may be tried again, and says nothing of
those of a consumer or an admin client; Kafka's own table of errors does.
"""

from __future__ import annotations

import re
from typing import Any

# Long enough for a traceback of the user's own.
MOST_CHARACTERS = 2000
_PYTHON = re.compile(
    r"Traceback \(most recent call last\):\n((?:[ \t].*\n|\n)*)([\w.]+(?:Error|Exception|\w+)?:.*|[\w.]+)"
)
_JAVA_FRAME = re.compile(r"^\s+at [\w.$/<>]+\(.*\)$|^\s*\.\.\. \d+ more$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+([\w$]+): (.*)$", re.MULTILINE)
# Frames of Spark's own Python are not where the mistake is.
_SPARKS_FILE = re.compile(r'File ".*(?:/pyspark/|pyspark\.zip|/pessoa/pipelines/)')


# How a plan says that its user wants it to stop at a record; the rest of the line is the reason.
STOPPED_BY_RECORD = "a bad record stopped the pipeline"
_BAD_RECORD = re.compile(rf"{STOPPED_BY_RECORD}: .*?(?= SQLSTATE|\n|$)")

# What ends when a leader or coordinator is chosen, a broker comes back, or all brokers have heard of a new topic.
# The first line are librdkafka's own names, the others Kafka's.
_PASSING = frozenset(
    """
    _TRANSPORT _ALL_BROKERS_DOWN _TIMED_OUT _TIMED_OUT_QUEUE _RESOLVE _WAIT_COORD _UNKNOWN_TOPIC _UNKNOWN_PARTITION
    NOT_LEADER_FOR_PARTITION LEADER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE BROKER_NOT_AVAILABLE NETWORK_EXCEPTION
    REQUEST_TIMED_OUT UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID KAFKA_STORAGE_ERROR OFFSET_NOT_AVAILABLE
    FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS NOT_COORDINATOR
    NOT_CONTROLLER NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND CONCURRENT_TRANSACTIONS
    """.split()
)


def is_passing(error: Any) -> bool:
    """Whether what a client of Kafka ran into, a KafkaError, may be over in a moment."""
    return not error.fatal() and (error.retriable() or error.name() in _PASSING)


def is_final(reason: str) -> bool:
    """Whether another attempt would end in the same way for certain."""
    return STOPPED_BY_RECORD in reason


def plain(text: str) -> str:
    """The reason of a failure that Spark tells in `text`."""
    if bad_record := _BAD_RECORD.search(text):
        return bad_record[0][:MOST_CHARACTERS]
    tracebacks = list(_PYTHON.finditer(text))
    if tracebacks:
        last = tracebacks[-1]
        where = _own_frames(last[1])
        return (f"{last[2].strip()}\n{where}" if where else last[2].strip())[:MOST_CHARACTERS]
    without_frames = _JAVA_FRAME.sub("", text)
    causes = _CAUSE.findall(without_frames)
    lines = [line.strip() for line in without_frames.splitlines() if line.strip()]
    if causes:
        name, message = causes[-1]
        return f"{message} ({name})"[:MOST_CHARACTERS]
    return " ".join(lines[:3])[:MOST_CHARACTERS]


def _own_frames(frames: str) -> str:
    lines = frames.splitlines()
    kept: list[str] = []
    is_own = False
    for line in lines:
        if line.lstrip().startswith('File "'):
            is_own = not _SPARKS_FILE.search(line)
        if is_own:
            kept.append(line)
    return "\n".join(kept)
