"""Validation of a JSON value whose cost is bounded by its size.

The validators of the `jsonschema` package do what the drafts say, and they take as long as schema and value ask them
to: choices within choices double the work with every level, a pattern can be matched for ever by Python's `re`, and a
mistake deep inside is spelt out at every level above it. Schema and value are a caller's. So each keyword pays for what
it is about to do out of a budget that is set once per value (`STEPS + STEPS_PER_BYTE × size`; a step is some ten
microseconds), and an empty budget ends the validation with a DataProblem. The budget is a count and not a clock: the
same value gets the same answer on every machine.

The keywords that match patterns, and the one that would compare each item with each other, are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from jsonschema import validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing.jsonschema import ObjectSchema, Schema, lookup_recursive_ref

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.serde.patterns import BadPattern, compile_pattern
from pessoa.serde.schema_problems import DataProblem
from pessoa.serde.stack_room import is_stack_nearly_full

if TYPE_CHECKING:
    from referencing._core import Resolver

# What a small value may cost with the most tangled of schemas: some tenths of a second.
STEPS = 20_000
STEPS_PER_BYTE = 10
# The amounts of other work that take as long as one step.
_WORK_PER_STEP = 500
_CHARACTERS_PER_STEP = 10
_MEMBERS_PER_STEP = 16
_MAX_SENTENCE = 500


class KeywordValidator(Protocol):
    """The part of a `jsonschema` validator that the keyword functions use."""

    _resolver: Resolver[Schema]

    def descend(
        self, instance: JsonValue, schema: Schema, path: str | None = None, schema_path: str | None = None
    ) -> Iterator[ValidationError]: ...

    def evolve(self, **changes: object) -> KeywordValidator: ...

    def iter_errors(self, instance: JsonValue) -> Iterator[ValidationError]: ...


# The validator, the keyword's argument (each keyword has its own type), the value, and the schema around the keyword.
Check = Callable[[KeywordValidator, Any, JsonValue, ObjectSchema], Iterable[ValidationError] | None]


class WorkBudget:
    """The steps that are left for checking one value."""

    def __init__(self, size: int) -> None:
        self.left = STEPS + STEPS_PER_BYTE * size


_budget: ContextVar[WorkBudget] = ContextVar("budget")


def _spend(steps: int) -> None:
    budget = _budget.get()
    budget.left -= steps
    if budget.left < 0:
        raise DataProblem("the schema makes it too much work to check this value")
    if is_stack_nearly_full():
        raise DataProblem("nested too deeply")


def is_found_in(pattern: str, text: str) -> bool:
    """Whether a part of the text matches the pattern; the match is paid for out of the work budget."""
    try:
        found = compile_pattern(pattern)
        _spend(1 + found.work(text) // _WORK_PER_STEP)
        return found.is_found_in(text)
    except BadPattern as wrong:
        raise DataProblem(f"a pattern of the schema cannot be checked: {wrong}") from None


def check(validator: Validator, value: JsonValue, size: int) -> None:
    """Raise ValidationError if the value is not valid, or DataProblem if checking takes too many steps for `size`
    bytes."""
    _budget.set(WorkBudget(size))
    validator.validate(value)


@cache
def bounded_validator(draft: type[Validator]) -> type[Validator]:
    """Return the validator class of a draft whose keywords spend the work budget."""
    keywords = {**draft.VALIDATORS, **{name: own for name, own in _OWN.items() if name in draft.VALIDATORS}}
    extended: type[Validator] = validators.extend(draft, {name: _meter(each) for name, each in keywords.items()})  # type: ignore[no-untyped-call]
    return extended


def _meter(keyword: Check) -> Check:
    def check(
        validator: KeywordValidator, argument: JsonValue, instance: JsonValue, schema: ObjectSchema
    ) -> Iterator[ValidationError]:
        # `properties`, `enum` and `required` look at each of their members, for every value.
        _spend(1 + len(argument) // _MEMBERS_PER_STEP if isinstance(argument, dict | list) else 1)
        for error in keyword(validator, argument, instance, schema) or ():
            if len(error.message) > _MAX_SENTENCE:
                # The message quotes the value, and a thousand other errors may quote it too.
                _spend(len(error.message) // _CHARACTERS_PER_STEP)
                error.message = f"{error.message[:_MAX_SENTENCE]}…"
                error.args = (error.message,)
            yield error

    return check


# The keywords that are our own.


def _pattern(_: KeywordValidator, pattern: str, instance: JsonValue, __: ObjectSchema) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not is_found_in(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: KeywordValidator, patterns: dict[str, Schema], instance: JsonValue, _: ObjectSchema
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if is_found_in(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(
    validator: KeywordValidator, rest: Schema, instance: JsonValue, schema: ObjectSchema
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    declared = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    extras = [
        name
        for name in instance
        if name not in declared and not any(is_found_in(pattern, name) for pattern in patterns)
    ]
    if isinstance(rest, dict):
        for name in extras:
            yield from validator.descend(instance[name], rest, path=name)
    elif not rest and extras:
        yield ValidationError(f"these properties are not allowed: {_list_names(extras)}")


def _unevaluated_properties(
    validator: KeywordValidator, rest: Schema, instance: JsonValue, schema: ObjectSchema
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    evaluated = _evaluated_names(validator, instance, schema, is_outermost=True)
    wrong = [
        name
        for name, value in instance.items()
        if name not in evaluated and not _is_valid(validator.descend(value, rest, path=name))
    ]
    if wrong:
        yield ValidationError(f"these properties are not allowed: {_list_names(wrong)}")


def _evaluated_names(
    validator: KeywordValidator, instance: JsonObject, schema: Schema, *, is_outermost: bool = False
) -> set[str]:
    """Return the property names that the schema, or a schema that it applies in place, evaluates."""
    _spend(1)
    if not isinstance(schema, dict):
        return set()
    found: set[str] = set(schema.get("properties", {}).keys() & instance.keys())
    for pattern in schema.get("patternProperties", {}):
        found.update(name for name in instance if is_found_in(pattern, name))
    if "additionalProperties" in schema or ("unevaluatedProperties" in schema and not is_outermost):
        # Either keyword evaluates all remaining properties.
        return set(instance)
    for inner, subschema in _schemas_in_place(validator, instance, schema):
        if _is_valid(inner.evolve(schema=subschema).iter_errors(instance)):
            found |= _evaluated_names(inner, instance, subschema)
    return found


def _schemas_in_place(
    validator: KeywordValidator, instance: JsonObject, schema: ObjectSchema
) -> Iterator[tuple[KeywordValidator, Schema]]:
    """Yield the schemas that this one applies to the same value, each with the validator that resolves its
    references."""
    resolver = validator._resolver
    referred = [resolver.lookup(schema[keyword]) for keyword in ("$ref", "$dynamicRef") if keyword in schema]
    if "$recursiveRef" in schema:
        referred.append(lookup_recursive_ref(resolver))
    for each in referred:
        yield validator.evolve(schema=each.contents, _resolver=each.resolver), each.contents
    for keyword in ("allOf", "oneOf", "anyOf"):
        for subschema in schema.get(keyword, ()):
            yield validator, subschema
    for name, subschema in schema.get("dependentSchemas", {}).items():
        if name in instance:
            yield validator, subschema
    if "if" in schema:
        is_so = _is_valid(validator.descend(instance, schema["if"]))
        for keyword in ("if", "then") if is_so else ("else",):
            if keyword in schema:
                yield validator, schema[keyword]


def _unique_items(
    _: KeywordValidator, is_wanted: bool, instance: JsonValue, __: ObjectSchema
) -> Iterator[ValidationError]:
    if is_wanted and isinstance(instance, list) and len({_freeze(each) for each in instance}) < len(instance):
        yield ValidationError("an item stands in the array twice")


def _freeze(value: JsonValue) -> Hashable:
    """Return a hashable that is equal for equal JSON values: 1 equals 1.0, and neither equals true."""
    _spend(1)
    if isinstance(value, dict):
        return frozenset((name, _freeze(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(_freeze(each) for each in value)
    return (bool, value) if isinstance(value, bool) else value


def _is_valid(errors: Iterator[ValidationError]) -> bool:
    return next(errors, None) is None


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:10]) + (" …" if len(names) > 10 else "")


_OWN: dict[str, Check] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
