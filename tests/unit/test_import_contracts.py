"""The tables of tools/import_contracts.py name existing modules, or planned ones that do not exist."""

from __future__ import annotations

import pytest

from tools import import_contracts


def test_the_import_tables_name_packages_that_exist_or_are_planned() -> None:
    assert list(import_contracts.problems()) == []


@pytest.mark.parametrize("table", ["STARTERS", "FILE_TOOLS", "FILE_FORMATS", "DECIDES_UNSERVED", "PURE", "SHELLS"])
def test_an_import_contract_for_a_package_that_does_not_exist_is_an_error(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(import_contracts, table, [*getattr(import_contracts, table), "log.no_such_module"])
    assert list(import_contracts.problems()) == ["the tables name modules that do not exist: log.no_such_module"]


def test_a_planned_package_that_exists_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_contracts, "PLANNED", [*import_contracts.PLANNED, "raft"])
    assert list(import_contracts.problems()) == ["these are written, and no longer PLANNED: raft"]


def test_a_pure_package_does_no_io_except_in_its_shells() -> None:
    pure = import_contracts.pure_modules()
    assert "pessoa.controller.topic_decisions" in pure
    assert "pessoa.coordinator.transactions.decisions" in pure
    assert "pessoa.raft" in pure
    assert not {"pessoa.controller", "pessoa.controller.controller"} & set(pure)
