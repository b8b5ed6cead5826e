"""Which registry is elected leader, and the JSON of the group protocol, which other registries share."""

from __future__ import annotations

import json
import threading
from typing import Self

import pytest

from pessoa.schema_registry import election
from pessoa.schema_registry.election import Identity, choose, decode_identity, make_assignment

A, B, C = (Identity("host", port) for port in (8081, 8082, 8083))


def test_the_registry_with_the_first_address_is_elected() -> None:
    assert choose({"m1": C, "m2": A, "m3": B}, None) == ("m2", A)


def test_a_registry_that_leads_is_elected_again() -> None:
    assert choose({"m1": C, "m2": A, "m3": B}, C) == ("m1", C)


def test_when_the_leader_has_left_the_registry_with_the_first_address_is_elected() -> None:
    assert choose({"m2": B, "m3": C}, A) == ("m2", B)


def test_a_registry_that_is_not_eligible_is_not_elected() -> None:
    idle = A._replace(is_eligible=False)
    assert choose({"m1": idle, "m2": B}, None) == ("m2", B)
    assert choose({"m1": idle}, None) is None


def test_the_election_assignment_has_the_bytes_of_the_jvm_registry() -> None:
    assert json.loads(make_assignment({"m1": A}, None)) == {
        "version": 1,
        "error": 0,
        "master": "m1",
        "master_identity": {
            "version": 1, "host": "host", "port": 8081, "master_eligibility": True, "scheme": "http",
        },
    }  # fmt: skip


def test_two_registries_with_one_address_are_an_error() -> None:
    assert json.loads(make_assignment({"m1": A, "m2": A}, None)) == {"version": 1, "error": 1}


def test_registry_identities_of_both_versions_are_decoded() -> None:
    tree = json.loads(A.encode())
    assert decode_identity(tree) == A
    tree["leader_eligibility"] = tree.pop("master_eligibility")
    assert decode_identity({**tree, "leader_eligibility": False}) == A._replace(is_eligible=False)


def test_stopping_a_registry_does_not_wait_for_an_unreachable_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    class Away:
        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def coordinator(self, group: str) -> int:
            asked.set()
            answers.wait()
            raise OSError("no broker answers")

    monkeypatch.setattr(election, "Cluster", Away)
    monkeypatch.setattr(election, "_LEAVE_S", 0.01)
    told: list[object] = []
    taking_part = election.Election("away:9092", {}, "g", A, 10_000, lambda *what: told.append(what))
    # So that a stop which waits for ever is a failure, and not an endless test.
    rescue = threading.Timer(60.0, answers.set)
    rescue.start()
    try:
        taking_part.start()
        asked.wait()
        taking_part.stop()
        assert not answers.is_set()
    finally:
        rescue.cancel()
        answers.set()
    taking_part._thread.join()
    assert told == []
