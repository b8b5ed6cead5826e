"""Cases: statements, records that go in, and what must come out, as text for people. `pessoa ksql test FILE` runs them.

    # What this file is about.

    given:
    CREATE STREAM s (id STRING KEY, n INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');

    ## rows are counted by key
    CREATE TABLE t AS SELECT id, COUNT(*) AS c FROM s GROUP BY id EMIT CHANGES;
    in:
    s "a" {"n": 1} @10
    s "a" {"n": 2} @11 partition=1
    out:
    T "a" {"C": 1} @10
    T "a" {"C": 2} @11

    ## an unknown column is refused
    CREATE STREAM o AS SELECT nope FROM s EMIT CHANGES;
    error:
    line 1:27: SELECT column 'NOPE' cannot be resolved.

A case begins with `## name`; the lines below are its statements, then come sections. `given:`, before the first case,
has statements for all of them.

| section | a line |
|---|---|
| in, out | topic, key, value, `@time`, `window=start..end`, `partition=n`, `headers={…}`, `schema=id`, `key_schema=id`|
| rows | a row of the push query that the case ends with: a JSON array, `tombstone` before it if the row is gone |
| error | text that the error has: message, line and column, hint |
| log | an entry of the processing log: its type (0 to 3), and text that it has |
| each | `expression ==> value`: a case of its own, that selects the expression from the stream S of `given` |
| settings | `name = value` |
| schemas | `subject TYPE text`: a schema of the registry; ids count from 1 |

Keys and values are JSON, whatever the format: text for DELIMITED, a scalar for KAFKA, columns by their names for AVRO
and PROTOBUF (with `schema=`, as the schema's own JSON encoding has them), and `hex:00ff` for bytes as they are. null is
no bytes. Without `@time` in `out` any time will do; `in` counts up from 0. Records of one topic are compared in order.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace

SECTIONS = ("in", "out", "rows", "error", "log", "each", "settings", "schemas")
_HEADS = {f"{name}:": name for name in (*SECTIONS, "given")}
_ARROW = " ==> "
_HEX = re.compile(r"hex:((?:[0-9a-fA-F]{2})*)(?=\s|$)")
_ATTRIBUTE = re.compile(r"(window|partition|schema|key_schema|headers)=")
_DECODER = json.JSONDecoder()
# The stream that `each` selects from, and the one that it makes.
EACH_SOURCE, EACH_SINK = "S", "EACH_OUT"


class CaseProblem(Exception):
    """A file is not a case file; the message names the line."""


@dataclass(frozen=True)
class CaseBytes:
    """A key or value that a case gives as bytes, not as JSON."""

    data: bytes


# JSON as it stands in the file, bytes, or null.
Payload = str | CaseBytes | None


@dataclass(frozen=True)
class CaseRecord:
    topic: str
    key: Payload
    value: Payload
    # None: the case does not set it.
    timestamp_ms: int | None = None
    window: tuple[int, int | None] | None = None
    partition: int | None = None
    headers: tuple[tuple[str, str | None], ...] | None = None
    schema_id: int | None = None
    key_schema_id: int | None = None
    line: int = 0


@dataclass(frozen=True)
class CaseRow:
    """A row of a push query, as JSON."""

    columns: str
    is_tombstone: bool
    line: int = 0


@dataclass(frozen=True)
class CaseSchema:
    subject: str
    type: str
    text: str


@dataclass(frozen=True)
class Case:
    name: str
    line: int
    # Statements of the file, and the case's own.
    given: str
    statements: str
    inputs: tuple[CaseRecord, ...] = ()
    # None: the case has no such section.
    outputs: tuple[CaseRecord, ...] | None = None
    rows: tuple[CaseRow, ...] | None = None
    error: tuple[str, ...] | None = None
    log: tuple[tuple[int, str], ...] | None = None
    settings: tuple[tuple[str, str], ...] = ()
    schemas: tuple[CaseSchema, ...] = ()


@dataclass
class _Draft:
    name: str
    line: int
    statements: list[str] = field(default_factory=list)
    sections: dict[str, list[tuple[int, str]]] = field(default_factory=dict)


def read_cases(text: str) -> list[Case]:
    """Return the cases of a file. Raises CaseProblem."""
    given: list[str] = []
    drafts: list[_Draft] = []
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            drafts.append(_Draft(line[3:].strip(), number))
            section = ""
        elif line.strip() in _HEADS:
            section = _HEADS[line.strip()]
            if (section == "given") is bool(drafts):
                raise CaseProblem(f"line {number}: {section}: stands {'before' if drafts else 'behind'} the cases")
            if drafts:
                drafts[-1].sections.setdefault(section, [])
        elif not drafts:
            if section == "given":
                given.append(line)
            elif line.strip() and not line.startswith("#"):
                raise CaseProblem(f"line {number}: a case begins with '## name', and this is {line!r}")
        elif not section:
            drafts[-1].statements.append(line)
        elif line.strip() and not line.startswith("# "):
            drafts[-1].sections[section].append((number, line.strip()))
    cases = [case for draft in drafts for case in _cases_of(draft, "\n".join(given))]
    _refuse_same_names(cases)
    return cases


def _refuse_same_names(cases: list[Case]) -> None:
    seen: dict[str, int] = {}
    for case in cases:
        if case.name in seen:
            raise CaseProblem(f"line {case.line}: the case {case.name!r} is there already, in line {seen[case.name]}")
        seen[case.name] = case.line


def _cases_of(draft: _Draft, given: str) -> list[Case]:
    sections = draft.sections
    # The position of an error counts from the first line that has text.
    statements = "\n".join(draft.statements).strip("\n")
    case = Case(
        draft.name,
        draft.line,
        given,
        statements,
        tuple(_record(number, line) for number, line in sections.get("in", [])),
        tuple(_record(number, line) for number, line in sections["out"]) if "out" in sections else None,
        tuple(_row(number, line) for number, line in sections["rows"]) if "rows" in sections else None,
        tuple(line for _, line in sections["error"]) if "error" in sections else None,
        tuple(_entry(number, line) for number, line in sections["log"]) if "log" in sections else None,
        tuple(_setting(number, line) for number, line in sections.get("settings", [])),
        tuple(_schema(number, line) for number, line in sections.get("schemas", [])),
    )
    if "each" in sections:
        return [_case_of_expression(case, number, line) for number, line in sections["each"]]
    if all(one is None for one in (case.outputs, case.rows, case.error, case.log)):
        raise CaseProblem(f"line {draft.line}: the case {draft.name!r} expects nothing: give out, rows, error or log")
    return [case]


def _case_of_expression(case: Case, number: int, line: str) -> Case:
    expression, arrow, value = line.rpartition(_ARROW)
    if not arrow:
        raise CaseProblem(f"line {number}: 'expression{_ARROW}value' is needed, and this is {line!r}")
    _json_at(value, 0, number)
    items = f"SELECT {expression.strip()} AS X"
    select = f"CREATE STREAM {EACH_SINK} AS {items} FROM {EACH_SOURCE} EMIT CHANGES;"
    expected = CaseRecord(EACH_SINK, None, f'{{"X": {value.strip()}}}', line=number)
    return replace(
        case,
        name=f"{case.name}: {expression.strip()}",
        line=number,
        statements=f"{case.statements}\n{select}".lstrip("\n"),
        outputs=tuple(expected for _ in case.inputs),
    )


def _payload(line: str, position: int, number: int) -> tuple[Payload, int]:
    match = _HEX.match(line, position)
    if match is not None:
        return CaseBytes(bytes.fromhex(match[1])), match.end()
    end = _json_at(line, position, number)
    raw = line[position:end]
    return (None if raw == "null" else raw), end


def _json_at(line: str, position: int, number: int) -> int:
    """Return where the JSON value ends that begins at `position`."""
    try:
        _, end = _DECODER.raw_decode(line, position)
    except json.JSONDecodeError as wrong:
        raise CaseProblem(f"line {number}: no JSON at column {position + 1}: {wrong.msg}") from None
    return end


def _skip(line: str, position: int) -> int:
    while position < len(line) and line[position].isspace():
        position += 1
    return position


def _record(number: int, line: str) -> CaseRecord:
    topic = line.split(None, 1)[0]
    key, position = _payload(line, _skip(line, len(topic)), number)
    value, position = _payload(line, _skip(line, position), number)
    record = CaseRecord(topic, key, value, line=number)
    while (position := _skip(line, position)) < len(line):
        if line[position] == "@":
            match = re.compile(r"@(-?\d+)").match(line, position)
            if match is None:
                raise CaseProblem(f"line {number}: @ needs milliseconds since 1970")
            record, position = replace(record, timestamp_ms=int(match[1])), match.end()
            continue
        attribute = _ATTRIBUTE.match(line, position)
        if attribute is None:
            raise CaseProblem(f"line {number}: what is {line[position:]!r}?")
        record, position = _attribute(record, attribute[1], line, attribute.end(), number)
    return record


def _attribute(record: CaseRecord, name: str, line: str, position: int, number: int) -> tuple[CaseRecord, int]:
    if name == "headers":
        end = _json_at(line, position, number)
        pairs: list[tuple[str, object]] = json.JSONDecoder(object_pairs_hook=list).decode(line[position:end])
        headers = tuple((key, None if value is None else str(value)) for key, value in pairs)
        return replace(record, headers=headers), end
    match = re.compile(r"(-?\d+)(?:\.\.(-?\d+))?").match(line, position)
    if match is None:
        raise CaseProblem(f"line {number}: {name}= needs a number")
    first = int(match[1])
    if name == "window":
        window = (first, None if match[2] is None else int(match[2]))
        return replace(record, window=window), match.end()
    if name == "partition":
        return replace(record, partition=first), match.end()
    if name == "schema":
        return replace(record, schema_id=first), match.end()
    return replace(record, key_schema_id=first), match.end()


def _row(number: int, line: str) -> CaseRow:
    word, _, rest = line.partition(" ")
    is_tombstone = word == "tombstone"
    columns = rest.strip() if is_tombstone else line
    if not columns.startswith("[") or _json_at(columns, 0, number) != len(columns):
        raise CaseProblem(f"line {number}: a row is a JSON array")
    return CaseRow(columns, is_tombstone, number)


def _entry(number: int, line: str) -> tuple[int, str]:
    kind, _, text = line.partition(" ")
    if kind not in ("0", "1", "2", "3"):
        raise CaseProblem(f"line {number}: an entry of the log begins with its type, 0 to 3")
    return int(kind), text


def _setting(number: int, line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals:
        raise CaseProblem(f"line {number}: a setting is 'name = value'")
    return name.strip(), value.strip()


def _schema(number: int, line: str) -> CaseSchema:
    parts = line.split(None, 2)
    if len(parts) != 3 or parts[1] not in ("AVRO", "JSON", "PROTOBUF"):
        raise CaseProblem(f"line {number}: a schema is 'subject AVRO|JSON|PROTOBUF text'")
    return CaseSchema(*parts)
