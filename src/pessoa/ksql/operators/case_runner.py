"""Runs a case in process: its statements, its records through all of its queries, and the comparison.

`run_case` raises CaseFailure, which says what was expected and what came. `open_case` and `check_*` are for those who
run the queries elsewhere, as streams on Spark.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pessoa.ksql.analysis.analyser import Decision, analyse
from pessoa.ksql.analysis.logical_plan import JoinStep, LogicalPlan, ReadSource, Step
from pessoa.ksql.analysis.source_catalogue import Catalogue, FormatOptions, Source
from pessoa.ksql.case_files import Case, CaseRecord
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.operators.case_assertions import AssertedRows, FailedAssertion, assert_source
from pessoa.ksql.operators.case_records import CaseCodec, expected_json, same_json, shown_values
from pessoa.ksql.operators.format_codecs import Side
from pessoa.ksql.operators.in_process import InProcessQuery
from pessoa.ksql.operators.inserted_rows import inserted_record
from pessoa.ksql.operators.key_partitioner import partition_of
from pessoa.ksql.operators.query_settings import WRAP_SINGLE_VALUES, FixedEvaluationContext, QuerySettings
from pessoa.ksql.operators.records import KafkaRecord, OutputRecord, ProcessingFailure, QueryFailure
from pessoa.ksql.operators.result_rows import ResultRow
from pessoa.ksql.operators.schema_source import MemorySchemas, SchemaSource
from pessoa.ksql.syntax.parser import parse_statements
from pessoa.ksql.syntax.statement_nodes import AssertSource, AssertValues
from pessoa.ksql.types.sql_types import Value

DEFAULT_PARTITIONS = 4


class CaseFailure(Exception):
    """The output of a case is not the expected one."""


@dataclass
class OpenCase:
    """A case whose statements have been analysed."""

    case: Case
    catalogue: Catalogue
    settings: QuerySettings
    schemas: MemorySchemas
    # Queries in the order of their statements, the push query among them.
    queries: list[Decision] = field(default_factory=list)
    # Records of INSERT INTO … VALUES, by topic.
    inserts: list[tuple[str, OutputRecord]] = field(default_factory=list)
    failures: list[ProcessingFailure] = field(default_factory=list)
    asserted: AssertedRows = field(init=False)

    def __post_init__(self) -> None:
        self.asserted = AssertedRows(self.settings, self.schemas)

    def source_of(self, topic: str) -> Source:
        """Return the stream or table by whose formats a topic is written: one that no query writes, if there is one."""
        found = [one for one in self.catalogue.sources.values() if one.topic == topic]
        if not found:
            raise CaseFailure(f"no stream or table has the topic {topic}")
        return next((one for one in found if one.query_id is None), found[0])

    def codec(self, topic: str) -> CaseCodec:
        return CaseCodec(self.source_of(topic), self.schemas, self.settings.is_true(WRAP_SINGLE_VALUES, True))

    def partitions(self, topic: str) -> int:
        found = [one.partitions for one in self.catalogue.sources.values() if one.topic == topic]
        return next((count for count in found if count is not None), DEFAULT_PARTITIONS)

    def input_records(self) -> list[KafkaRecord]:
        """Return the input records, in order: those of INSERT, then those of the case."""
        codecs: dict[str, CaseCodec] = {}
        offsets: dict[tuple[str, int], int] = defaultdict(int)
        found: list[KafkaRecord] = []
        for topic, one in self.inserts:
            count = self.partitions(topic)
            partition = 0 if one.partition_key is None else partition_of(one.partition_key, count)
            found.append(KafkaRecord(topic, partition, 0, one.timestamp_ms, one.key, one.value))
        for number, given in enumerate(self.case.inputs):
            if given.topic not in codecs:
                codecs[given.topic] = self.codec(given.topic)
            time = number if given.timestamp_ms is None else given.timestamp_ms
            found.append(codecs[given.topic].record(given, 0, time, self.partitions(given.topic)))
        for index, record in enumerate(found):
            place = record.topic, record.partition
            found[index] = record._replace(offset=offsets[place])
            offsets[place] += 1
        return found


def open_case(case: Case) -> OpenCase:
    """Analyse the statements of a case. Raises KsqlError as a server would."""
    failures: list[ProcessingFailure] = []
    settings = QuerySettings(FixedEvaluationContext(), failures.append, dict(case.settings))
    opened = OpenCase(case, Catalogue(), settings, MemorySchemas(), failures=failures)
    for schema in case.schemas:
        opened.schemas.register(schema.subject, schema.type, schema.text)
    for text in (case.given, case.statements):
        for parsed in parse_statements(text):
            decision = analyse(parsed, opened.catalogue)
            opened.catalogue = decision.catalogue
            if isinstance(parsed.statement, AssertValues):
                opened.asserted.add(parsed.statement, opened.catalogue)
            elif isinstance(parsed.statement, AssertSource):
                assert_source(parsed.statement, opened.catalogue)
            if decision.insert is not None:
                record = inserted_record(decision.insert, settings, opened.schemas)
                opened.inserts.append((decision.insert.target.topic, record))
            elif decision.plan is not None and not decision.message:
                opened.queries.append(decision)
    return opened


# What a case's queries run as.
MakeQuery: TypeAlias = "Callable[[LogicalPlan, QuerySettings, SchemaSource, Mapping[str, int]], InProcessQuery]"


def run_case(case: Case, make_query: MakeQuery = InProcessQuery) -> None:
    """Run a case in process. Raises CaseFailure if its output is not the expected one."""
    if case.error is not None:
        _expect_error(case, make_query)
        return
    try:
        opened = open_case(case)
        written, rows = _run(opened, make_query)
        opened.asserted.check(_all_records(opened, written))
    except FailedAssertion as failed:
        raise CaseFailure(str(failed)) from None
    check_outputs(opened, written)
    check_rows(opened, rows)
    check_log(case, opened.failures)


def _expect_error(case: Case, make_query: MakeQuery) -> None:
    assert case.error is not None
    try:
        opened = open_case(case)
        written, _ = _run(opened, make_query)
        opened.asserted.check(_all_records(opened, written))
    except (KsqlError, QueryFailure, FailedAssertion) as error:
        shown = str(error)
        for line in case.error:
            if line not in shown:
                raise CaseFailure(f"expected an error with\n  {line}\nbut it is\n  {shown}") from None
        return
    raise CaseFailure("expected an error, and there was none: " + " / ".join(case.error))


def _run(opened: OpenCase, make_query: MakeQuery) -> tuple[dict[str, list[KafkaRecord]], list[ResultRow]]:
    queries: list[InProcessQuery] = []
    for decision in opened.queries:
        assert decision.plan is not None
        topics = {one.topic: opened.partitions(one.topic) for one in opened.catalogue.sources.values()}
        queries.append(make_query(decision.plan, opened.settings, opened.schemas, topics))
    written: dict[str, list[KafkaRecord]] = defaultdict(list)
    rows: list[ResultRow] = []
    pending = deque(opened.input_records())
    while pending:
        record = pending.popleft()
        found: list[KafkaRecord] = []
        for query in queries:
            if record.topic not in query.topics:
                continue
            out = query.take(record)
            sink = query.plan.sink
            if sink is None:
                rows += query.rows
            else:
                found += [_append_record(opened, sink, one, written) for one in out]
        pending.extendleft(reversed(found))
    return written, rows


def _all_records(opened: OpenCase, written: Mapping[str, list[KafkaRecord]]) -> dict[str, list[KafkaRecord]]:
    """Return the records of each topic: the input records, then those that queries wrote."""
    found: dict[str, list[KafkaRecord]] = defaultdict(list)
    for record in opened.input_records():
        found[record.topic].append(record)
    for topic, records in written.items():
        found[topic] += records
    return found


def _append_record(
    opened: OpenCase, sink: Source, record: OutputRecord, written: dict[str, list[KafkaRecord]]
) -> KafkaRecord:
    partition = 0
    if record.partition_key is not None:
        partition = partition_of(record.partition_key, opened.partitions(sink.topic))
    offset = sum(one.partition == partition for one in written[sink.topic])
    found = KafkaRecord(
        sink.topic, partition, offset, record.timestamp_ms, record.key, record.value, record.headers
    )  # fmt: skip
    written[sink.topic].append(found)
    return found


def check_outputs(opened: OpenCase, written: dict[str, list[KafkaRecord]]) -> None:
    """Raise CaseFailure unless the written records are the expected ones. A topic that other queries read may be
    left out of the case."""
    if opened.case.outputs is None:
        return
    expected: dict[str, list[CaseRecord]] = defaultdict(list)
    for one in opened.case.outputs:
        expected[one.topic].append(one)
    plans = [decision.plan for decision in opened.queries if decision.plan is not None]
    read = {source.topic for plan in plans for source in _sources(plan.root)}
    sinks = [plan.sink.topic for plan in plans if plan.sink is not None]
    for topic in dict.fromkeys([*expected, *sinks]):
        if topic in expected or topic not in read:
            _compare(topic, expected[topic], written.get(topic, []), opened.codec(topic))


def _sources(step: Step) -> list[Source]:
    if isinstance(step, ReadSource):
        return [step.source]
    return [*_sources(step.left), step.right.source] if isinstance(step, JoinStep) else _sources(step.below)


def _compare(topic: str, expected: list[CaseRecord], written: list[KafkaRecord], codec: CaseCodec) -> None:
    for number in range(max(len(expected), len(written))):
        wanted = expected[number] if number < len(expected) else None
        found_record = written[number] if number < len(written) else None
        shown = "nothing more" if found_record is None else _record_text(codec, found_record)
        if wanted is None or found_record is None or not _matches(codec, wanted, found_record):
            place = "" if wanted is None else f" (line {wanted.line})"
            text = "nothing more" if wanted is None else _expected_text(wanted)
            raise CaseFailure(f"{topic}, record {number + 1}{place}: expected\n  {text}\nbut it is\n  {shown}")


def _expected_text(record: CaseRecord) -> str:
    time = "" if record.timestamp_ms is None else f" @{record.timestamp_ms}"
    window = "" if record.window is None else f" window={record.window[0]}..{record.window[1]}"
    return f"{record.key or 'null'} {record.value or 'null'}{time}{window}"


def _record_text(codec: CaseCodec, record: KafkaRecord) -> str:
    key, window, value = codec.decode(record)
    within = "" if window is None else f" window={window.start_ms}..{window.end_ms}"
    return f"{key!r} {value!r} @{record.timestamp_ms}{within} partition={record.partition}"


def _matches(codec: CaseCodec, wanted: CaseRecord, found_record: KafkaRecord) -> bool:
    key, window, value = codec.decode(found_record)
    if wanted.timestamp_ms is not None and wanted.timestamp_ms != found_record.timestamp_ms:
        return False
    if wanted.partition is not None and wanted.partition != found_record.partition:
        return False
    if wanted.headers is not None:
        headers = tuple((name, None if text is None else text.encode()) for name, text in wanted.headers)
        if headers != found_record.headers:
            return False
    if (wanted.window is None) is not (window is None):
        return False
    if wanted.window is not None and window is not None:
        start, end = wanted.window
        if window.start_ms != start or (end is not None and window.end_ms != end):
            return False
    return same_json(expected_json(wanted.key), key) and same_json(expected_json(wanted.value), value)


def check_rows(opened: OpenCase, rows: list[ResultRow]) -> None:
    """Raise CaseFailure unless the rows of the push query are the expected ones."""
    expected = opened.case.rows
    if expected is None:
        return
    plan = next((one.plan for one in opened.queries if one.plan is not None and one.plan.sink is None), None)
    if plan is None:
        raise CaseFailure("the case expects rows, but has no push query")
    side = Side("", False, "JSON", (*plan.key, *plan.value))
    for number in range(max(len(expected), len(rows))):
        wanted = expected[number] if number < len(expected) else None
        found_record = rows[number] if number < len(rows) else None
        columns: list[Value] = [] if found_record is None else [*(found_record.key or ()), *found_record.values]
        shown = (
            None
            if found_record is None
            else [shown_values([one], _single_column(side, at)) for at, one in enumerate(columns)]
        )
        same = wanted is not None and found_record is not None and wanted.is_tombstone is found_record.is_tombstone
        if not same or wanted is None or not same_json(expected_json(wanted.columns), shown):
            raise CaseFailure(f"row {number + 1}: expected\n  {wanted}\nbut it is\n  {shown}, {found_record}")


def _single_column(side: Side, index: int) -> Side:
    return replace(side, columns=(side.columns[index],), options=FormatOptions(wrap=False))


def check_log(case: Case, failures: list[ProcessingFailure]) -> None:
    """Raise CaseFailure unless the processing log is the expected one, if the case has one."""
    if case.log is None:
        return
    shown = "\n  ".join(f"{int(one.kind)} {one.message}" for one in failures) or "nothing"
    if len(failures) != len(case.log) or any(
        int(one.kind) != kind or text not in one.message for one, (kind, text) in zip(failures, case.log, strict=True)
    ):
        expected = "\n  ".join(f"{kind} {text}" for kind, text in case.log)
        raise CaseFailure(f"expected in the log\n  {expected}\nbut there is\n  {shown}")
