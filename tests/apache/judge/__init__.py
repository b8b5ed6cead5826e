"""The judge: Apache Kafka's message and record classes in one Java process, which answers lines with lines.

    with Judge() as judge:
        judge.roundtrip("ApiVersionsRequest", 3, data)        # what Apache makes of our bytes, as bytes and as JSON
        judge.read_batches(data)                              # what Apache reads in our record batches
        judge.write_batch("zstd", [{"value": b"v"}])          # a batch of Apache's, for us to read

`Judge.java` beside this file defines the lines. It is compiled once into the cache, under the hash of its text.
`roundtrip_many` sends all its questions without waiting and then reads the answers, so that tens of thousands of
comparisons take seconds; a thread does the sending, because both pipes are finite and a judge that waits until its
answers are read would otherwise block us both.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.apache.class_archive import small_java
from tests.apache.jars import java

STOP_TIMEOUT_S = 10.0

# A record for write_batch: offset, timestamp, key, value, headers; all may be left out.
Record = Mapping[str, Any]


class JudgeError(Exception):
    """Apache's classes refuse the bytes; the message is their exception."""


@dataclass(frozen=True)
class Verdict:
    """Apache's result for one message: its bytes and JSON of the message, or its error."""

    data: bytes = b""
    json_text: str = "null"
    error: str | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.json_text)


class Judge:
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<Judge {'not running' if self._process is None else f'in process {self._process.pid}'}>"

    def __enter__(self) -> Self:
        command = [str(java()), *small_java(), "-Xmx512m", "Judge"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        # The judge ends when its input ends.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def kill(self) -> None:
        """Kill the process; questions afterwards raise a JudgeError."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def versions(self) -> dict[str, tuple[int, int]]:
        """Return every message of Apache's with its lowest and its highest version."""
        ranges = json.loads(_payload(self._ask(["V"])[0]))
        return {name: (lowest, highest) for name, (lowest, highest) in ranges.items()}

    def apis(self) -> dict[str, dict[str, Any]]:
        """Return every API by name: key, oldestVersion, latestVersion, latestStableVersion, listeners; and
        headerVersions: from each version, as text, to the versions of its request's and its response's header."""
        apis: dict[str, dict[str, Any]] = json.loads(_payload(self._ask(["A"])[0]))
        return apis

    def errors(self) -> list[dict[str, Any]]:
        """Return every error: code, name, retriable."""
        errors: list[dict[str, Any]] = json.loads(_payload(self._ask(["E"])[0]))
        return errors

    def fields(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return each message's fields in order, each with its `default` and, for structs, their fields in `of`."""
        return [json.loads(_payload(answer)) for answer in self._ask([f"F {name}" for name in names])]

    def roundtrip(self, name: str, version: int, data: bytes) -> tuple[bytes, Any]:
        """Return Apache's bytes and JSON of a message that it has read; raise JudgeError if it cannot read it."""
        verdict = self.roundtrip_many([(name, version, data)])[0]
        if verdict.error is not None:
            raise JudgeError(verdict.error)
        return verdict.data, verdict.json

    def roundtrip_many(self, messages: Iterable[tuple[str, int, bytes]]) -> list[Verdict]:
        return [_verdict(answer) for answer in self._ask([f"M {n} {v} {data.hex()}" for n, v, data in messages])]

    def translate_many(self, messages: Iterable[tuple[str, int, int, bytes]]) -> list[Verdict]:
        """Let Apache read each message in one version and write it in another, which it may refuse."""
        lines = [f"T {name} {source} {target} {data.hex()}" for name, source, target, data in messages]
        return [_verdict(answer) for answer in self._ask(lines)]

    def read_batches(self, data: bytes) -> list[dict[str, Any]]:
        """Return the batches in the bytes, each with its header fields and its `records`; keys and values are bytes."""
        batches: list[dict[str, Any]] = json.loads(_payload(self._ask([f"B {data.hex()}"])[0]))
        for batch in batches:
            for record in batch["records"]:
                record["key"] = _bytes_or_none(record["key"])
                record["value"] = _bytes_or_none(record["value"])
                record["headers"] = [(key, _bytes_or_none(value)) for key, value in record["headers"]]
        return batches

    def write_batch(self, codec: str, records: Sequence[Record], **batch: object) -> bytes:
        """Return a batch by Apache. `batch` may give baseOffset, leaderEpoch, producerId, producerEpoch, baseSequence,
        isTransactional, timestampType with logAppendTime, deleteHorizonMs and magic."""
        question = json.dumps({**batch, "records": [_record_as_json(record) for record in records]})
        return bytes.fromhex(_payload(self._ask([f"W {codec} {question}"])[0]))

    def write_control_batch(self, kind: str, message: Mapping[str, object], **batch: object) -> bytes:
        """Return a control batch by Apache of a kind: COMMIT, ABORT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER,
        KRAFT_VERSION, KRAFT_VOTERS. `batch` may give baseOffset, timestamp, leaderEpoch, producerId, producerEpoch."""
        question = json.dumps({**batch, "message": message})
        return bytes.fromhex(_payload(self._ask([f"C {kind} {question}"])[0]))

    def _ask(self, questions: Sequence[str]) -> list[str]:
        assert self._process is not None, "the judge is asked inside its `with` block"
        assert self._process.stdout is not None
        sender = threading.Thread(target=self._send, args=(questions,), daemon=True)
        sender.start()
        answers = [self._process.stdout.readline() for _ in questions]
        sender.join()
        if not all(answer.endswith(b"\n") for answer in answers):
            raise JudgeError(f"the judge ended with {self._process.wait()} before it had answered everything")
        return [answer.decode().rstrip("\n") for answer in answers]

    def _send(self, questions: Sequence[str]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            for question in questions:
                assert "\n" not in question
                self._process.stdin.write(question.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # The reading thread reports the missing answers.
            return


def _payload(answer: str) -> str:
    status, _, payload = answer.partition(" ")
    if status != "OK":
        raise JudgeError(payload)
    return payload


def _verdict(answer: str) -> Verdict:
    status, _, payload = answer.partition(" ")
    if status != "OK":
        return Verdict(error=payload)
    data, _, json_text = payload.partition(" ")
    return Verdict(bytes.fromhex(data), json_text)


def _record_as_json(record: Record) -> dict[str, object]:
    headers = [(key, _hex_or_none(value)) for key, value in record.get("headers", ())]
    hexes = {name: _hex_or_none(record.get(name)) for name in ("key", "value")}
    return {**record, **hexes, "headers": headers}


def _hex_or_none(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes_or_none(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
