"""Replay of decisions: any prefix of the log, and the log after compaction, give the same state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pessoa.schema_registry.candidates import Request
from pessoa.schema_registry.compatibility.levels import Level
from pessoa.schema_registry.deleting import decide_delete_subject, decide_delete_version
from pessoa.schema_registry.registering import decide_register
from pessoa.schema_registry.registry_records import Record, decode, encode_key, encode_value
from pessoa.schema_registry.schemas import canonical_of
from pessoa.schema_registry.scopes import ConfigRequest, decide_set_config
from pessoa.schema_registry.state import State
from pessoa.web.problems import HttpProblem


class Log:
    """A registry state and the log from which it was replayed."""

    def __init__(self) -> None:
        self.state = State(canonical_of)
        self.records: list[Record] = []

    def write(self, decide: Callable[[State], object]) -> object:
        outcome = decide(self.state)
        for record in outcome.records:  # type: ignore[attr-defined]
            self.state.replay(record)
            self.records.append(record)
        return outcome

    def register(self, subject: str, schema: str) -> int:
        def decide(state: State) -> object:
            return decide_register(
                state, subject, Request(schema), default_level=Level.NONE, normalize=False, force=False
            )

        schema_id: int = self.write(decide).entry.value.id  # type: ignore[attr-defined]
        return schema_id

    def replayed(self, records: list[Record]) -> State:
        state = State(canonical_of)
        for record in records:
            again = decode(encode_key(record.key), encode_value(record.value))
            assert again == record
            state.replay(again)
        return state

    def compacted(self) -> list[Record]:
        """Return the last record of each key, in the order of the log, without deleted keys."""
        last = {encode_key(record.key): number for number, record in enumerate(self.records)}
        return [self.records[number] for number in sorted(last.values()) if self.records[number].value is not None]


def visible(state: State) -> object:
    """Return everything that a reader of the registry can see."""
    return (
        {subject: {n: (e.value, e.guid) for n, e in versions.items()} for subject, versions in state.subjects.items()},
        {
            name: (context.highest_id, {number: set(keys) for number, keys in context.uses.items()}, context.ids)
            for name, context in state.contexts.items()
        },
        state.configs,
        state.modes,
    )


@st.composite
def actions(draw: st.DrawFn) -> tuple[str, str, int, bool]:
    return (
        draw(st.sampled_from(("register", "register", "register", "version", "subject", "config"))),
        draw(st.sampled_from(("a", "b", ":.c:a"))),
        draw(st.integers(1, 4)),
        draw(st.booleans()),
    )


def act(log: Log, action: tuple[str, str, int, bool]) -> int | None:
    kind, subject, number, permanent = action
    try:
        if kind == "register":
            return log.register(subject, f'{{"type":"fixed","name":"F","size":{number}}}')
        if kind == "version":
            log.write(lambda state: decide_delete_version(state, subject, number, permanent=permanent))
        elif kind == "subject":
            log.write(lambda state: decide_delete_subject(state, subject, permanent=permanent))
        else:
            log.write(lambda state: decide_set_config(state, subject, ConfigRequest(compatibility="NONE")))
    except HttpProblem:
        return None
    return None


@settings(max_examples=300)
@given(st.lists(actions(), max_size=25))
def test_the_log_and_the_compacted_log_give_the_same_registry_state(steps: list[tuple[str, str, int, bool]]) -> None:
    log = Log()
    for step in steps:
        act(log, step)
    assert visible(log.replayed(log.records)) == visible(log.state)
    assert visible(log.state.copy()) == visible(log.state)
    assert visible(log.replayed(log.compacted())) == visible(log.state)


@settings(max_examples=300)
@given(st.lists(actions(), max_size=25), st.integers(0, 25))
def test_an_id_belongs_to_one_schema_through_deletions_and_restarts(
    steps: list[tuple[str, str, int, bool]], restart: int
) -> None:
    log = Log()
    meaning: dict[tuple[bool, int], int] = {}
    for number, step in enumerate(steps):
        if number == restart:
            log.records = log.compacted()
            log.state = log.replayed(log.records)
        schema_id = act(log, step)
        if schema_id is not None:
            place = (step[1].startswith(":"), schema_id)
            assert meaning.setdefault(place, step[2]) == step[2]


def test_the_highest_id_is_kept_when_its_schema_was_deleted() -> None:
    log = Log()
    assert [log.register("a", '"int"'), log.register("b", '"long"')] == [1, 2]
    log.write(lambda state: decide_delete_subject(state, "b", permanent=False))
    log.write(lambda state: decide_delete_subject(state, "b", permanent=True))
    fresh = Log()
    fresh.state = log.replayed(log.compacted())
    assert "b" not in fresh.state.subjects
    assert fresh.register("b", '"string"') == 3
    assert fresh.state.all_contexts() == ["."]


def test_each_context_has_its_own_schema_ids() -> None:
    log = Log()
    assert log.register(":.c:a", '"int"') == 1
    assert log.register("a", '"long"') == 1
    assert log.register(":.c:a", '"long"') == 2


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE"])
def test_the_mode_of_a_context_applies_to_its_subjects(mode: str) -> None:
    from pessoa.schema_registry.scopes import ModeRequest, decide_set_mode

    log = Log()
    log.write(lambda state: decide_set_mode(state, ":.c:", ModeRequest(mode), force=False, mutable=True))
    with pytest.raises(HttpProblem) as refused:
        log.register(":.c:a", '"int"')
    assert refused.value.code == 42205
    assert log.register("a", '"int"') == 1
