"""Validation of a JSON value whose cost is bounded by its size.

The validators of the `jsonschema` package do what the drafts say, and they take as long as schema and value ask them
to: choices within choices double the work with every level, a pattern can be matched for ever by Python's `re`, and a
mistake deep inside is spelt out at every level above it. Schema and value are a caller's. So each keyword pays for what
it is about to do out of a purse that is filled once per value (`STEPS + STEPS_PER_BYTE × size`; a step is some ten
microseconds), and an empty purse ends the validation with a DataProblem. What is read of the purse is a count and not a
clock: the same value gets the same answer on every machine.

The keywords that match patterns, and the one that would compare each item with each other, are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

from jsonschema import validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from referencing.jsonschema import lookup_recursive_ref

from pessoa.serde.patterns import BadPattern, compiled
from pessoa.serde.problems import DataProblem

# What a small value may cost with the most tangled of schemas: some tenths of a second.
STEPS = 20_000
STEPS_PER_BYTE = 10
# How much of another kind of work takes as long as one step.
_WORK_PER_STEP = 500
_CHARACTERS_PER_STEP = 10
_MEMBERS_PER_STEP = 16
_MAX_SENTENCE = 500

Check = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


class Purse:
    """What checking one value may cost."""

    def __init__(self, size: int) -> None:
        self.left = STEPS + STEPS_PER_BYTE * size


_purse: ContextVar[Purse] = ContextVar("purse")


def _pay(steps: int) -> None:
    purse = _purse.get()
    purse.left -= steps
    if purse.left < 0:
        raise DataProblem("the schema makes it too much work to check this value")


def is_in(pattern: str, text: str) -> bool:
    """Whether a part of the text matches, paid for."""
    try:
        found = compiled(pattern)
        _pay(1 + found.work(text) // _WORK_PER_STEP)
        return found.is_in(text)
    except BadPattern as wrong:
        raise DataProblem(f"a pattern of the schema cannot be checked: {wrong}") from None


def check(validator: Validator, value: Any, size: int) -> None:
    """Raises ValidationError, or DataProblem if that is too much work for a value of so many bytes."""
    _purse.set(Purse(size))
    validator.validate(value)


@cache
def bounded(draft: type[Validator]) -> type[Validator]:
    """The validator of a draft, with keywords that pay."""
    keywords = {**draft.VALIDATORS, **{name: own for name, own in _OWN.items() if name in draft.VALIDATORS}}
    extended: type[Validator] = validators.extend(draft, {name: _paying(each) for name, each in keywords.items()})  # type: ignore[no-untyped-call]
    return extended


def _paying(keyword: Check) -> Check:
    def check(validator: Any, argument: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        # `properties`, `enum` and `required` look at each of their members, whatever the value is.
        _pay(1 + len(argument) // _MEMBERS_PER_STEP if isinstance(argument, dict | list) else 1)
        for error in keyword(validator, argument, instance, schema) or ():
            if len(error.message) > _MAX_SENTENCE:
                # It quotes the value, and so may every one of its thousand neighbours.
                _pay(len(error.message) // _CHARACTERS_PER_STEP)
                error.message = f"{error.message[:_MAX_SENTENCE]}…"
                error.args = (error.message,)
            yield error

    return check


# The keywords that are our own.


def _pattern(validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not is_in(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if is_in(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    declared = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    extras = [
        name for name in instance if name not in declared and not any(is_in(pattern, name) for pattern in patterns)
    ]
    if validator.is_type(rest, "object"):
        for name in extras:
            yield from validator.descend(instance[name], rest, path=name)
    elif not rest and extras:
        yield ValidationError(f"these properties are not allowed: {_listed(extras)}")


def _unevaluated_properties(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    evaluated = _evaluated(validator, instance, schema, is_outermost=True)
    wrong = [
        name
        for name, value in instance.items()
        if name not in evaluated and not _is_valid(validator.descend(value, rest, path=name))
    ]
    if wrong:
        yield ValidationError(f"these properties are not allowed: {_listed(wrong)}")


def _evaluated(validator: Any, instance: Any, schema: Any, *, is_outermost: bool = False) -> set[str]:
    """The names that a schema, or one that it applies in place, has something to say about."""
    _pay(1)
    if not isinstance(schema, dict):
        return set()
    found: set[str] = set(schema.get("properties", {}).keys() & instance.keys())
    for pattern in schema.get("patternProperties", {}):
        found.update(name for name in instance if is_in(pattern, name))
    if "additionalProperties" in schema or ("unevaluatedProperties" in schema and not is_outermost):
        # Either takes what is left over, and so everything.
        return set(instance)
    for inner, subschema in _in_place(validator, instance, schema):
        if _is_valid(inner.evolve(schema=subschema).iter_errors(instance)):
            found |= _evaluated(inner, instance, subschema)
    return found


def _in_place(validator: Any, instance: Any, schema: Any) -> Iterator[tuple[Any, Any]]:
    """The schemas that this one applies to the same value, each with the validator that knows its references."""
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


def _unique_items(validator: Any, is_wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if is_wanted and validator.is_type(instance, "array") and len({_frozen(each) for each in instance}) < len(instance):
        yield ValidationError("an item stands in the array twice")


def _frozen(value: Any) -> Any:
    """Something that can be hashed, and that is equal for equal values: 1 is 1.0, and neither is true."""
    _pay(1)
    if isinstance(value, dict):
        return frozenset((name, _frozen(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(_frozen(each) for each in value)
    return (bool, value) if isinstance(value, bool) else value


def _is_valid(errors: Iterator[ValidationError]) -> bool:
    return next(errors, None) is None


def _listed(names: list[str]) -> str:
    return ", ".join(names[:10]) + (" …" if len(names) > 10 else "")


_OWN: dict[str, Check] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
