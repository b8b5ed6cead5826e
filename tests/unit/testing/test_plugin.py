"""The effect of the plugin on a session of pytest before any test runs."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader


def test_pytest_does_not_rewrite_the_modules_that_brokers_import() -> None:
    """A module that pytest rewrites is parsed, and brokers import theirs in several threads at once."""
    import pessoa.broker.lifecycle
    import pessoa.coordinator.group_coordinator

    for module in (pessoa.broker.lifecycle, pessoa.coordinator.group_coordinator):
        assert type(module.__loader__) is SourceFileLoader
