"""The levels of this process's loggers, under Kafka's names: what the BROKER_LOGGER resource shows and changes.

Loggers belong to the process, so brokers that share one share their levels too. Only ours are here, and the root that
they inherit from; a level that is changed this way is gone after a restart, as in Kafka (KIP-412).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pessoa.base.config_values import ConfigProblem

ROOT = "root"
_OURS = "pessoa"
# Of loggers that Kafka's operators know by name, those that we write to.
_KAFKAS = frozenset({"kafka.authorizer.logger", "kafka.request.logger"})
# The levels that were set, by the names of their loggers; the others follow what they inherit, or a setting.
changed: dict[str, int] = {}
# Called after a level has changed.
on_change: list[Callable[[], None]] = []

# Python has no TRACE; 5 is where other packages have put it.
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
_BY_SEVERITY = sorted(LEVELS.items(), key=lambda item: item[1], reverse=True)


def logger_levels() -> dict[str, str]:
    """Return every logger with its effective level."""
    names = sorted(name for name in logging.root.manager.loggerDict if _is_ours(name))
    return {ROOT: _name(logging.root)} | {name: _name(logging.getLogger(name)) for name in names}


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == _OURS or name in _KAFKAS


def problem(name: str, level: str | None) -> ConfigProblem | None:
    """Return the problem with a change of a logger's level; None if there is none. A level of None means to inherit
    it again."""
    if name not in logger_levels():
        return ConfigProblem(name, level, "there is no such logger")
    if level is None:
        return (
            ConfigProblem(name, None, "the root logger needs a level", is_invalid_request=True)
            if name == ROOT
            else None
        )
    if level not in LEVELS:
        return ConfigProblem(name, level, f"the level must be one of {', '.join(LEVELS)}")
    return None


def set_level(name: str, level: str | None) -> None:
    """Set the level of a logger, after `problem` has found the change valid; None means to inherit it again."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    if level is None:
        changed.pop(name, None)
        logger.setLevel(logging.NOTSET)
    else:
        changed[name] = LEVELS[level]
        logger.setLevel(LEVELS[level])
    for notify in tuple(on_change):
        notify()


def _name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, number in _BY_SEVERITY if level >= number), "TRACE")
