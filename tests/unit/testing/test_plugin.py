"""What the plugin does to a session of pytest before any test runs."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader


def test_pytest_takes_our_modules_as_they_are() -> None:
    """A module that pytest rewrites is parsed, and brokers import theirs in several threads at once."""
    import pessoa.broker.lifecycle
    import pessoa.testing.cluster

    for module in (pessoa.broker.lifecycle, pessoa.testing.cluster):
        assert type(module.__loader__) is SourceFileLoader
