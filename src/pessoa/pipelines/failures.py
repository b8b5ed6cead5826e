"""The reason of a query's failure in a few lines, from Spark's long error text. Pure.

Spark's failures are Java stack traces with the Python traceback of a worker somewhere inside. What helps is the message
at their root, and for a Python function where in the user's file it was raised.
"""

from __future__ import annotations

import re

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
# Spark prints plans with its failures, and in a plan the sentence goes on with an expression.
_BAD_RECORD = re.compile(rf"{STOPPED_BY_RECORD}: (?!, concat\().*?(?= SQLSTATE|\n|$)")


_STATE_REFUSED = (
    "STREAMING_REAL_TIME_MODE.CHECKPOINT_FORMAT_V1_NOT_SUPPORTED",
    # A join with a table keeps its state in an operator of its own in micro-batches.
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
)


# What Spark's source says when its checkpoint names offsets that a topic does not have (its option failOnDataLoss):
# many words that are always the same, and the reason. Only behind the name of an exception: a record or a message of
# the user's own may have the same words in it.
_DATA_LOST = re.compile(
    r"(?:with exception: |(?:[\w$]+\.)+[\w$]+: )(?:\[KAFKA_DATA_LOSS[.\w]*\] )?Some data may have been lost"
    r" because they are not(?:.*?Reason:\s*(.*?)\s*(?=SQLSTATE|\n\s*at |\n\n|$))?",
    re.DOTALL,
)
DATA_LOST = "records that were to be read are gone: "
# By words of Spark's reason.
_HOW_LOST = {
    "offset was changed from": "a topic was deleted and made again",
    "have been deleted": "a topic was deleted",
    "Cannot find initial offsets": "a topic was deleted",
    "Added partition": "the first ones of a new partition were removed unread",
    "": "they were removed before they were read, or a topic was deleted and made again",
}
_GO_ON = "to go on with what the topic has now, delete the query or start it anew under another name"
_FULL_DISK = re.compile(r"No space left on device|Disk quota exceeded")
FULL_DISK = (
    "there is no space left on a disk that Spark writes to (the checkpoint and the state of the query, or Spark's local"
    " files). The query goes on from its last batch when there is room"
)
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure \(executor \S+ exited [^\n]*?Reason: ([^\n]*)")


def made_again(topic: str) -> str:
    """Return the failure reason of a query whose topic was deleted and created again."""
    return f"{DATA_LOST}the topic {topic} was deleted and made again since the query began to read it; {_GO_ON}"


def is_final(reason: str) -> bool:
    """Whether a restart would certainly fail in the same way."""
    return _BAD_RECORD.search(reason) is not None or reason.startswith(DATA_LOST)


def is_state_of_micro_batches(text: str) -> bool:
    """Whether Spark refuses real-time mode because of the format, or the operator, of the state that a query has."""
    return any(word in text for word in _STATE_REFUSED)


def failure_reason(text: str) -> str:
    """Return the reason of a failure, in a few lines, from Spark's error text."""
    if bad_record := _BAD_RECORD.search(text):
        return bad_record[0][:MOST_CHARACTERS]
    if lost := _DATA_LOST.search(text):
        reason = " ".join((lost[1] or _cause(text)).split())
        how = next(how for words, how in _HOW_LOST.items() if words in reason)
        return f"{DATA_LOST}{how}. Nothing was read twice or passed over; {_GO_ON} ({reason})"[:MOST_CHARACTERS]
    if _FULL_DISK.search(text):
        return f"{FULL_DISK} ({_cause(text)})"[:MOST_CHARACTERS]
    if executor := _EXECUTOR_LOST.search(text):
        return f"an executor of Spark's cluster was lost: {executor[1].strip()}"[:MOST_CHARACTERS]
    tracebacks = list(_PYTHON.finditer(text))
    if tracebacks:
        last = tracebacks[-1]
        where = _own_frames(last[1])
        return (f"{last[2].strip()}\n{where}" if where else last[2].strip())[:MOST_CHARACTERS]
    return _cause(text)[:MOST_CHARACTERS]


def _cause(text: str) -> str:
    """Return the message at the root of a Java stack trace."""
    without_frames = _JAVA_FRAME.sub("", text)
    causes = _CAUSE.findall(without_frames)
    lines = [line.strip() for line in without_frames.splitlines() if line.strip()]
    if causes:
        name, message = causes[-1]
        return f"{message} ({name})"
    return " ".join(lines[:3])


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
