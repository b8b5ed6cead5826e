"""Backward compatible Avro schemas decode the data of the old schema: our check is compared with fastavro.

A schema is drawn and changed in ways that are common in practice, and data is drawn for the old schema. If our check
reports no incompatibility, fastavro must decode the data with the new schema. If our check reports one, fastavro may
still decode a single value; one test has fixed cases in which fastavro must fail, to show that it does detect
incompatible data.
"""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pessoa.schema_registry.compatibility.avro_compatibility import check_avro
from pessoa.serde.avro.avro_schema import AvroType
from pessoa.serde.avro.codec import AvroCodec
from pessoa.serde.avro.parsing import parse_avro
from pessoa.serde.avro.printing import avro_tree
from pessoa.serde.schema_problems import DataProblem, SchemaProblem

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
COMPLEX = ("array", "map", "enum", "fixed", "record", "union")
FIELDS = ("a", "b", "c", "d")
SYMBOLS = ("A", "B", "C")
DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "x",
    "string": "s",
}


@st.composite
def types(draw: st.DrawFn, depth: int = 3, names: list[int] | None = None) -> Any:
    """Draw a schema as JSON; named types are numbered, so that each is defined once."""
    names = names if names is not None else [0]
    kind = draw(st.sampled_from(PRIMITIVES if depth == 0 else (*PRIMITIVES, *COMPLEX)))
    if kind in PRIMITIVES:
        return kind
    if kind == "array":
        return {"type": "array", "items": draw(types(depth - 1, names))}
    if kind == "map":
        return {"type": "map", "values": draw(types(depth - 1, names))}
    if kind == "union":
        branches: list[Any] = draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))
        if draw(st.booleans()):
            branches.append({"type": "array", "items": draw(types(0, names))})
        return branches
    names[0] += 1
    name = f"N{names[0]}"
    if kind == "enum":
        return {
            "type": "enum",
            "name": name,
            "symbols": draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True)),
        }
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(1, 3))}
    fields = draw(st.lists(st.sampled_from(FIELDS), max_size=4, unique=True))
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": draw(types(depth - 1, names))} for each in fields],
    }


@st.composite
def changed(draw: st.DrawFn, tree: Any) -> Any:
    """Draw changes of a schema, many of them compatible."""
    if isinstance(tree, str):
        if draw(st.integers(0, 3)):
            return tree
        return draw(st.sampled_from((*PRIMITIVES, ["null", tree] if tree != "null" else tree)))
    if isinstance(tree, list):
        branches = list(tree)
        if draw(st.booleans()):
            extra = draw(st.sampled_from(PRIMITIVES))
            branches = [*branches, extra] if extra not in branches else draw(st.permutations(branches))
        elif len(branches) > 1 and draw(st.booleans()):
            branches = branches[:-1]
        return branches
    if tree["type"] == "array":
        return {"type": "array", "items": draw(changed(tree["items"]))}
    if tree["type"] == "map":
        return {"type": "map", "values": draw(changed(tree["values"]))}
    if tree["type"] == "enum":
        symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        default = draw(st.sampled_from((None, symbols[0])))
        return {**tree, "symbols": symbols} | ({"default": default} if default else {})
    if tree["type"] == "fixed":
        return {**tree, "size": draw(st.sampled_from((tree["size"], tree["size"], 2)))}
    return draw(changed_record(tree))


@st.composite
def changed_record(draw: st.DrawFn, tree: Any) -> Any:
    fields = []
    for field in tree["fields"]:
        change = draw(st.sampled_from(("keep", "keep", "change", "rename", "alias", "drop")))
        if change == "keep":
            fields.append(field)
        elif change == "change":
            fields.append({**field, "type": draw(changed(field["type"]))})
        elif change == "rename":
            fields.append({**field, "name": f"new_{field['name']}"})
        elif change == "alias":
            fields.append({**field, "name": f"new_{field['name']}", "aliases": [field["name"]]})
    for name in draw(st.lists(st.sampled_from(("x", "y")), max_size=2, unique=True)):
        kind = draw(st.sampled_from(PRIMITIVES))
        default = {"default": DEFAULTS[kind]} if draw(st.booleans()) else {}
        fields.append({"name": name, "type": kind, **default})
    return {**tree, "fields": draw(st.permutations(fields))}


def values(tree: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for data of a schema."""
    if isinstance(tree, list):
        return st.one_of(*(values(branch) for branch in tree))
    if isinstance(tree, str):
        return {
            "null": st.none(),
            "boolean": st.booleans(),
            "int": st.integers(-(2**31), 2**31 - 1),
            "long": st.integers(-(2**63), 2**63 - 1),
            "float": st.floats(width=32, allow_nan=False),
            "double": st.floats(allow_nan=False),
            # Bytes that are read as a string must be one: Avro lets a reader fail on others.
            "bytes": st.text(max_size=5).map(str.encode),
            "string": st.text(max_size=5),
        }[tree]
    if tree["type"] == "array":
        return st.lists(values(tree["items"]), max_size=2)
    if tree["type"] == "map":
        return st.dictionaries(st.text(max_size=3), values(tree["values"]), max_size=2)
    if tree["type"] == "enum":
        return st.sampled_from(tree["symbols"])
    if tree["type"] == "fixed":
        return st.binary(min_size=tree["size"], max_size=tree["size"])
    return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in tree["fields"]})


def parse(tree: Any) -> AvroType:
    import json

    return parse_avro(json.dumps(tree))[0]


@settings(max_examples=250)
@given(st.data())
def test_a_backward_compatible_avro_schema_decodes_data_of_the_old_one(data: st.DataObject) -> None:
    old_tree = data.draw(types())
    new_tree = data.draw(changed(old_tree))
    old = parse(old_tree)
    try:
        new = parse(new_tree)
    except SchemaProblem:
        assume(False)  # a change made two fields of one name, or a union with a branch twice
        raise
    assume(not check_avro(new, old))
    value = data.draw(values(old_tree))
    writer, reader = AvroCodec(old), AvroCodec(new)
    encoded = writer.encode(value)
    writer.decode(encoded, reader)


@settings(max_examples=100)
@given(types())
def test_an_avro_schema_is_compatible_with_itself_and_prints_as_it_was_parsed(tree: Any) -> None:
    schema = parse(tree)
    assert check_avro(schema, schema) == []
    assert avro_tree(parse(avro_tree(schema))) == avro_tree(schema)


def test_fastavro_fails_to_decode_where_the_check_reports_an_incompatibility() -> None:
    """That fastavro detects these shows that its success in the test above is meaningful."""
    refused = 0
    for old, new, value in (
        ("int", "string", 5),
        ({"type": "record", "name": "R", "fields": []},
         {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}, {}),
        (["null", "int"], "int", None),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, b"ab"),
    ):  # fmt: skip
        assert check_avro(parse(new), parse(old))
        try:
            AvroCodec(parse(old)).decode(AvroCodec(parse(old)).encode(value), AvroCodec(parse(new)))
        except DataProblem:
            refused += 1
    assert refused == 5
