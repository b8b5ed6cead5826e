"""Which logs a node writes, as its first stage: they are there before anything can be said, and closed last.

A log is on while the setting `pessoa.logs` of the node names it, unless the level of its logger was changed by hand:

    log         logger                     on from    off (not in `pessoa.logs`)
    access      kafka.request.logger       DEBUG; INFO: only requests that did not succeed
    agent       pessoa.agent               INFO       FATAL
    referrer    pessoa.referrer            INFO       FATAL
    audit       pessoa.audit               INFO       FATAL
    error       all loggers, from the level of pessoa.error on, which is WARN; off at FATAL
    authorizer  kafka.authorizer.logger    on while it is in `pessoa.logs`, from INFO on; its level says what is shown

So each can be changed for good (`kafka-configs --alter --entity-type brokers --add-config pessoa.logs=[access,error]`)
or until the next start (`--entity-type broker-loggers --entity-name 1 --add-config kafka.request.logger=DEBUG`), until
that level is deleted, or until a change of `pessoa.logs` turns the log on or off.

Loggers belong to the process, settings to a node: of several nodes in a process each writes what its own setting names.
A level that was changed by hand holds for all of them; without one, a logger shows the level that it has while any of
them names its log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pessoa.base import log_levels
from pessoa.broker.logs.log_file import Rotation
from pessoa.security.authorizer_log import LOGGER as AUTHORIZER_LOGGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pessoa.base.ids import Uuid
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.logs.audit_log import AuditLog
    from pessoa.broker.logs.log_writer import LogWriter
    from pessoa.broker.logs.python_logging import LogFileHandler
    from pessoa.broker.observers import Watcher
    from pessoa.broker.stages.node_context import NodeContext

ACCESS, AGENT, AUDIT, AUTHORIZER, ERROR, REFERRER = "access", "agent", "audit", "authorizer", "error", "referrer"
OFF = logging.CRITICAL
# The logger of a log, and the level that it has while `pessoa.logs` names the log.
_LOGGERS = {
    ACCESS: (logging.getLogger("kafka.request.logger"), logging.DEBUG),
    AGENT: (logging.getLogger("pessoa.agent"), logging.INFO),
    AUDIT: (logging.getLogger("pessoa.audit"), logging.INFO),
    REFERRER: (logging.getLogger("pessoa.referrer"), logging.INFO),
    ERROR: (logging.getLogger("pessoa.error"), logging.WARNING),
}
for _logger, _ in _LOGGERS.values():
    _logger.setLevel(OFF)
_authorizer = logging.getLogger(AUTHORIZER_LOGGER)


# The nodes of this process that write logs.
_nodes: list[NodeLogs] = []


def _show_levels() -> None:
    """Set the levels of the logs' loggers by the settings of all nodes, except those that were changed by hand."""
    named = frozenset[str]().union(*(one.named for one in tuple(_nodes)))
    for name, (logger, level) in _LOGGERS.items():
        if logger.name not in log_levels.changed:
            logger.setLevel(level if name in named else OFF)
    # As in the configuration that Kafka ships: what has a file of its own is not printed as well.
    _authorizer.propagate = AUTHORIZER not in named
    if AUTHORIZER_LOGGER not in log_levels.changed:
        _authorizer.setLevel(logging.INFO if AUTHORIZER in named else logging.NOTSET)


def _forget_levels(names: Iterable[str]) -> None:
    """Let the settings decide again whether these logs are on."""
    for name in names:
        logger = AUTHORIZER_LOGGER if name == AUTHORIZER else _LOGGERS[name][0].name
        if logger in log_levels.changed:
            log_levels.set_level(logger, None)


class NodeLogs:
    """The logs of a node; a stage of its start."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        # Those that have written something.
        self._writers: dict[str, LogWriter] = {}
        self._handlers: dict[str, LogFileHandler] = {}
        # By `pessoa.logs`.
        self.named = frozenset(node.config.current.pessoa_logs)
        # None while it is off.
        self._audit: AuditLog | None = None
        log_levels.on_change.append(self._on_level)
        node.config.on_change.append(self._configure)
        _nodes.append(self)
        self._refresh()

    def __repr__(self) -> str:
        return f"<NodeLogs: {', '.join(sorted(self.named)) or 'none'}>"

    @property
    def dropped(self) -> int:
        """How many lines were dropped, in all logs."""
        return sum(one.file.dropped for one in self._writers.values())

    async def close(self) -> None:
        self._end()
        for writer in self._writers.values():
            writer.file.close()

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.file.abandon()
        self._end()

    def _end(self) -> None:
        if self not in _nodes:
            return
        _nodes.remove(self)
        log_levels.on_change.remove(self._on_level)
        self._node.config.on_change.remove(self._configure)
        if not _nodes:
            _forget_levels((*_LOGGERS, AUTHORIZER))
        self.named = frozenset()
        _show_levels()
        self._watch(lambda _: OFF)

    # What is on.

    def _configure(self, config: BrokerConfig) -> None:
        """Turn on the logs that were added to `pessoa.logs`, and off those that were removed. A logger level that was
        set by hand is reset for these logs only."""
        before, self.named = self.named, frozenset(config.pessoa_logs)
        _forget_levels(before ^ self.named)
        self._refresh()

    def _on_level(self) -> None:
        """Refresh this broker's logs, on its own event loop, after a logger's level changed. Brokers of one process
        share loggers; in tests each has its own thread."""
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._refresh()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._refresh)

    def _refresh(self) -> None:
        if self in _nodes:
            _show_levels()
            self._watch(self._level)

    def _level(self, name: str) -> int:
        """Return the level of a log on this node."""
        logger, level = _LOGGERS[name]
        return log_levels.changed.get(logger.name, level if name in self.named else OFF)

    def _watch(self, level_of: Callable[[str], int]) -> None:
        observers = self._node.observers
        for name in (ACCESS, AGENT, REFERRER, AUDIT):
            observers.put(name, self._watcher(name, level_of(name)))
        observers.on_log_in = None if self._audit is None else self._audit.note_log_in
        error = level_of(ERROR)
        self._handle(ERROR, logging.root, None if error >= OFF else error)
        self._handle(AUTHORIZER, _authorizer, 0 if AUTHORIZER in self.named else None)

    def _watcher(self, name: str, level: int) -> Watcher | None:
        """Return the watcher of a log of requests; None if the log is off."""
        if name == AUDIT and self._audit is not None:
            self._audit.close()
            self._audit = None
        if level > logging.INFO:
            return None
        from pessoa.broker.logs.access_log import AccessLog
        from pessoa.broker.logs.audit_log import AuditLog
        from pessoa.broker.logs.connection_logs import AgentLog, ReferrerLog

        writer = self._writer(name)
        if name == ACCESS:
            return AccessLog(writer, self._topic_name, failed_only=level > logging.DEBUG)
        if name == AUDIT:
            self._audit = AuditLog(writer, self._node.clock)
            return self._audit
        return AgentLog(writer) if name == AGENT else ReferrerLog(writer)

    def _handle(self, name: str, logger: logging.Logger, level: int | None) -> None:
        """Write the records of a logger from this level on to the file of a log; None: stop writing them."""
        handler = self._handlers.pop(name, None)
        if handler is not None:
            logger.removeHandler(handler)
        if level is not None:
            from pessoa.broker.logs.python_logging import LogFileHandler

            handler = self._handlers[name] = LogFileHandler(self._writer(name), level)
            logger.addHandler(handler)

    # Files.

    def _writer(self, name: str) -> LogWriter:
        from pessoa.broker.logs.log_writer import LogWriter

        found = self._writers.get(name)
        if found is None:
            node, config = self._node, self._node.config.current
            rotation = Rotation(config.pessoa_logs_max_bytes, config.pessoa_logs_max_files)
            path = f"{logs_directory(config)}/{name}.log"
            found = self._writers[name] = LogWriter(node.disk, path, config.pessoa_logs_format, rotation, node.clock)
        return found

    def _topic_name(self, topic_id: Uuid) -> str | None:
        topic = self._node.publisher.image.topics.by_id.get(topic_id)
        return None if topic is None else topic.name


def logs_directory(config: BrokerConfig) -> str:
    """Return the directory of the logs: beside the data, since a directory in it that is no partition keeps Apache
    Kafka from starting there."""
    return config.pessoa_logs_dir or config.log_dirs[0].rstrip("/") + ".logs"
