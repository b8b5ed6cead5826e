"""Every message that we declare, in every version, compared with Apache Kafka's own classes.

Five checks, each of all messages, so that a wrong declaration can hardly pass all of them:

    the same messages    both sides have the same names and the same version ranges
    the same bytes       Apache reads what we wrote, to the last byte, and writes the very same bytes
    the same values      Apache's JSON of the message has our values under our names: two int32 fields are not swapped
    the same defaults    a fresh message of Apache's has our fields, in our order, with our defaults
    the same refusals    a field that an older version lacks is dropped where Apache drops it, refused where it refuses

Two tables go with the messages: the APIs with their header versions, and the error codes.

Nothing is left out silently. A message or a field that one side lacks is in a table below with the reason,
and an entry that is no longer true fails. The values come from `tests.support.wire_values`, with a seed made of
name and version.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from pessoa.base.ids import Uuid
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.codec_compiler import Layout
from pessoa.wire.errors import EncodeError, ErrorCode, UnsupportedFieldError
from pessoa.wire.message_headers import request_header_version, response_header_version
from pessoa.wire.schema import REQUIRED, Field, Message, Struct
from tests.apache.judge import Judge, Verdict
from tests.support.declared_messages import all_messages
from tests.support.wire_values import random_message

pytestmark = pytest.mark.apache

VALUES_PER_VERSION = 8

# Name of the message → why the other side lacks it.
ONLY_OURS: dict[str, str] = {}
ONLY_APACHES: dict[str, str] = {}

# The same for single fields, with Apache's names.
FIELDS_ONLY_APACHES = {
    "ShareFetchRequest.topics.partitions.partitionMaxBytes": "it is for version 0 alone, and the versions start at 1",
}


class Sample(NamedTuple):
    kind: type[Message]
    version: int
    message: Any
    data: bytes

    def __str__(self) -> str:
        return f"{self.kind.__name__} v{self.version} {self.message!r} as {self.data.hex()}"


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as judge:
        yield judge


@pytest.fixture(scope="module")
def judged(judge: Judge) -> list[tuple[Sample, Verdict]]:
    samples = list(random_samples())
    verdicts = judge.roundtrip_many((sample.kind.__name__, sample.version, sample.data) for sample in samples)
    return list(zip(samples, verdicts, strict=True))


def shared_messages() -> Iterator[type[Message]]:
    return (kind for kind in all_messages() if kind.__name__ not in ONLY_OURS)


def random_samples() -> Iterator[Sample]:
    for kind in shared_messages():
        for version in kind.versions.each():
            rng = Random(f"{kind.__name__} {version}")
            for number in range(VALUES_PER_VERSION):
                message = random_message(kind, version, rng, unknown_tags=number % 2 == 1)
                yield Sample(kind, version, message, message.encode(version))


def compared(request: pytest.FixtureRequest, sentence: str) -> None:
    """Put a sentence into the report of the test, which is kept despite captured output and parallel workers."""
    request.node.user_properties.append(("compared", sentence))


def few(problems: list[str]) -> str:
    """Return the first problems, to show what they have in common."""
    return f"{len(problems)} problems, the first of them:\n" + "\n".join(problems[:10])


def test_both_sides_have_the_same_messages_in_the_same_versions(judge: Judge) -> None:
    ours = {kind.__name__: (kind.versions.first, kind.versions.last) for kind in all_messages()}
    apaches = judge.versions()
    assert set(ours) - set(apaches) == set(ONLY_OURS)
    assert set(apaches) - set(ours) == set(ONLY_APACHES)
    assert {name: ours[name] for name in ours if name in apaches} == {
        name: apaches[name] for name in apaches if name in ours
    }


def test_apache_writes_the_same_bytes_after_reading_ours(
    judged: list[tuple[Sample, Verdict]], request: pytest.FixtureRequest
) -> None:
    problems = []
    for sample, verdict in judged:
        if verdict.error is not None:
            problems.append(f"{sample} is refused: {verdict.error}")
        elif verdict.data != sample.data:
            problems.append(f"{sample} is written as {verdict.data.hex()}")
    assert not problems, few(problems)

    pairs = {(sample.kind, sample.version) for sample, _ in judged}
    assert len(pairs) == sum(len(kind.versions.each()) for kind in shared_messages())
    compared(request, f"{len(pairs)} message × version pairs with Apache Kafka, {len(judged)} values, byte by byte")


def test_apache_reads_our_values_under_the_same_field_names(judged: list[tuple[Sample, Verdict]]) -> None:
    problems: list[str] = []
    for sample, verdict in judged:
        layout = Layout(sample.kind, sample.version)
        found = list(differences(sample.message, verdict.json, layout, sample.kind.__name__))
        problems.extend(f"v{sample.version} {difference}" for difference in found)
    assert not problems, few(problems)


def test_a_fresh_message_has_the_same_fields_and_defaults_as_apaches(
    judge: Judge, request: pytest.FixtureRequest
) -> None:
    kinds = list(shared_messages())
    passed_over: set[str] = set()
    findings = [
        finding
        for kind, theirs in zip(kinds, judge.fields(kind.__name__ for kind in kinds), strict=True)
        for finding in default_differences(kind, theirs, kind.__name__, passed_over)
    ]
    problems = [finding for finding in findings if finding is not None]
    assert not problems, few(problems)
    assert passed_over == set(FIELDS_ONLY_APACHES)
    compared(request, f"{len(findings)} fields and their defaults with Apache Kafka")


def test_a_field_that_a_version_lacks_is_dropped_or_refused_as_apache_does(
    judge: Judge, request: pytest.FixtureRequest
) -> None:
    cases = [
        (sample, path, target)
        for kind in shared_messages()
        for path, sample in samples_with_one_field_set(kind)
        for target in kind.versions.each()
    ]
    asked = ((sample.kind.__name__, sample.version, target, sample.data) for sample, _, target in cases)
    problems: list[str] = []
    for (sample, path, target), verdict in zip(cases, judge.translate_many(asked), strict=True):
        apaches = outcome_of_apache(verdict)
        ours = outcome_of_ours(sample, target)
        if ours != apaches:
            where = f"{sample.kind.__name__} v{sample.version} to v{target}, {path}"
            problems.append(f"{where}: we {ours}, Apache {apaches} ({verdict.error})")
    assert not problems, few(problems)
    compared(request, f"{len(cases)} translations between versions with Apache Kafka, one field set in each")


def test_apis_have_the_same_keys_versions_and_header_versions(judge: Judge) -> None:
    apaches = judge.apis()
    assert {key.name: key.value for key in ApiKey} == {name: api["key"] for name, api in apaches.items()}
    for key in ApiKey:
        api = apaches[key.name]
        request = key.request
        assert request.api_key == key.response.api_key == key.value
        assert list(request.versions.each()) == list(range(api["oldestVersion"], api["latestVersion"] + 1)), key.name
        ours = {
            str(version): [request_header_version(request, version), response_header_version(request, version)]
            for version in request.versions.each()
        }
        assert ours == api["headerVersions"], key.name


def test_errors_have_the_same_codes_and_names_and_are_as_retriable(judge: Judge) -> None:
    ours = [{"code": error.value, "name": error.name, "retriable": error.retriable} for error in ErrorCode]
    assert ours == judge.errors()


# ---- values against Apache's JSON ----


def plain(name: str) -> str:
    """Return the same text for `current_leader_epoch` and `currentLeaderEpoch`."""
    return name.replace("_", "").lower()


def differences(ours: Struct, theirs: dict[str, Any], layout: Layout, path: str) -> Iterator[str]:
    fields = {plain(field.name): field for field in type(ours).fields if layout.has(field)}
    values = {plain(name): value for name, value in theirs.items()}
    for name in values.keys() - fields.keys():
        yield f"{path}: Apache has a field {name}"
    for name, field in fields.items():
        here = f"{path}.{field.name}"
        value = getattr(ours, field.name)
        if name in values:
            yield from value_differences(field, value, values[name], layout, here)
        elif not (layout.is_tagged(field) and is_default(field, value)):
            yield f"{here}: Apache has nothing for {value!r}"


def value_differences(field: Field, ours: Any, theirs: Any, layout: Layout, path: str) -> Iterator[str]:
    if ours is None or theirs is None:
        if ours is not theirs:
            yield f"{path}: {ours!r} is {theirs!r} to Apache"
    elif field.kind == "records":
        # Apache's JSON lacks record data; it is compared byte by byte.
        return
    elif field.kind == "struct":
        yield from differences(ours, theirs, layout, path)
    elif field.item == "struct":
        if len(ours) != len(theirs):
            yield f"{path}: {len(ours)} entries are {len(theirs)} to Apache"
        for position, (our, their) in enumerate(zip(ours, theirs, strict=False)):
            yield from differences(our, their, layout, f"{path}[{position}]")
    elif field.kind == "array":
        assert field.item is not None
        if [as_json(field.item, item) for item in ours] != theirs:
            yield f"{path}: {ours!r} is {theirs!r} to Apache"
    elif as_json(field.kind, ours) != theirs:
        yield f"{path}: {ours!r} is {theirs!r} to Apache"


def as_json(kind: str, value: Any) -> Any:
    if kind == "uuid":
        return str(value)
    return b64encode(value).decode() if kind == "bytes" else value


def is_default(field: Field, value: Any) -> bool:
    return bool(value == (list(field.zero) if field.zero == () else field.zero))


# ---- defaults ----


def default_differences(
    kind: type[Struct], theirs: dict[str, Any], path: str, passed_over: set[str]
) -> Iterator[str | None]:
    """Yield one item for each field: None if it is as in Apache, else the difference."""
    known = {name for name in theirs if f"{path}.{name}" in FIELDS_ONLY_APACHES}
    passed_over.update(f"{path}.{name}" for name in known)
    theirs = {name: described for name, described in theirs.items() if name not in known}
    if [plain(field.name) for field in kind.fields] != [plain(name) for name in theirs]:
        yield f"{path}: Apache has the fields {', '.join(theirs)}"
        return
    for field, (name, their) in zip(kind.fields, theirs.items(), strict=True):
        here = f"{path}.{name}"
        ours = default_as_apache_shows_it(field, their["default"])
        yield None if ours == their["default"] else f"{here}: our default {ours!r} is {their['default']!r} in Apache"
        if (field.struct is None) != ("of" not in their):
            yield f"{here}: only one side has a struct here"
        elif field.struct is not None:
            yield from default_differences(field.struct, their["of"], here, passed_over)


def default_as_apache_shows_it(field: Field, theirs: Any) -> Any:
    if field.kind == "struct":
        # A missing struct is None here; in Apache it is an object of defaults unless null is the default.
        return theirs if field.zero is None else field.zero
    if field.zero is None:
        return None
    if field.kind == "array":
        return list(field.zero)
    if field.kind == "bytes":
        return field.zero.hex()
    return as_json(field.kind, field.zero)


# ---- one field set ----


def samples_with_one_field_set(kind: type[Message]) -> Iterator[tuple[str, Sample]]:
    """Yield for each field, at any depth, messages that set only this field, in the highest version that has it."""
    seen = set()
    for version in reversed(kind.versions.each()):
        layout = Layout(kind, version)
        for path, message in variants(kind, layout):
            if path not in seen:
                seen.add(path)
                yield path, Sample(kind, version, message, message.encode(version))


def variants(kind: type[Struct], layout: Layout) -> Iterator[tuple[str, Any]]:
    for field in kind.fields:
        if layout.has(field):
            for path, value in field_variants(field, layout):
                assert value is None or value != field.zero, f"{kind.__name__}.{field.name}"
                yield f"{field.name}{path}", default_struct(kind, layout, **{field.name: value})


def field_variants(field: Field, layout: Layout) -> Iterator[tuple[str, Any]]:
    if layout.is_nullable(field) and field.zero is not None:
        yield " null", None
    if field.kind == "struct":
        assert field.struct is not None
        if not layout.is_tagged(field):
            yield " default", default_struct(field.struct, layout)
        for path, value in variants(field.struct, layout):
            yield f".{path}", value
    elif field.item == "struct":
        assert field.struct is not None
        yield "[] default", [default_struct(field.struct, layout)]
        for path, value in variants(field.struct, layout):
            yield f"[].{path}", [value]
    elif field.kind == "array":
        assert field.item is not None
        if field.zero is None:
            yield " empty", []
        yield "[]", [OTHER_VALUES[field.item]]
    else:
        if field.zero is None and field.kind in EMPTY_VALUES:
            yield " empty", EMPTY_VALUES[field.kind]
        yield "", not field.zero if field.kind == "bool" else OTHER_VALUES[field.kind]


EMPTY_VALUES: dict[str, Any] = {"string": "", "bytes": b"", "records": memoryview(b"")}

# No field has one of these values as its default; `variants` asserts that.
OTHER_VALUES: dict[str, Any] = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), 77),
    "float64": 7.5,
    "string": "other",
    "bytes": b"other",
    "records": memoryview(b"other"),
    "uuid": Uuid.of(0x0123456789ABCDEF0123456789ABCDEF),
}


def default_struct(kind: type[Struct], layout: Layout, **given: Any) -> Any:
    required = (field for field in kind.fields if field.default is REQUIRED and field.name not in given)
    return kind(**given, **{field.name: default_value(field, layout) for field in required})


def default_value(field: Field, layout: Layout) -> Any:
    if field.kind == "struct":
        assert field.struct is not None
        return default_struct(field.struct, layout)
    if field.kind == "records":
        return EMPTY_VALUES["records"]
    return list(field.zero) if field.kind == "array" else field.zero


def outcome_of_apache(verdict: Verdict) -> str:
    if verdict.error is None:
        return f"write {verdict.data.hex()}"
    return "refuse the field" if "UnsupportedVersionException" in verdict.error else "refuse the value"


def outcome_of_ours(sample: Sample, target: int) -> str:
    try:
        return f"write {sample.kind.decode(sample.data, sample.version).encode(target).hex()}"
    except UnsupportedFieldError:
        return "refuse the field"
    except EncodeError:
        return "refuse the value"
