"""The log directories of a node: claimed, and formatted if they are new. They say to which cluster the node belongs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.broker.directory_claim import claim_directories
from pessoa.log.directory import DirectoryOffline, LogDirectory
from pessoa.log.meta_properties import META_PROPERTIES_FILE
from pessoa.quorum.formatting import format_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.base.ids import Uuid
    from pessoa.broker.stages.node_context import NodeContext
    from pessoa.log.meta_properties import MetaProperties
    from pessoa.wire.schema import Message

log = logging.getLogger("pessoa.broker")


async def claim_log_directories(
    node: NodeContext, wanted_cluster_id: str | None, first_records: Sequence[Message] = ()
) -> LogDirectories:
    """Lock and format the directories of this node, and read, or decide, to which cluster they belong."""
    directories = [LogDirectory(node.disk, path) for path in node.config.current.log_dirs]
    try:
        await claim_directories(directories, node.clock)
        owners = await _format(node, wanted_cluster_id, first_records)
    except BaseException:
        for directory in directories:
            directory.release()
        raise
    return LogDirectories(directories, owners, node.config.current.metadata_log_dir)


async def _format(
    node: NodeContext, cluster_id: str | None, first_records: Sequence[Message]
) -> dict[str, MetaProperties]:
    config = node.config.current
    voters = None
    paths = [*config.log_dirs, config.metadata_log_dir]
    if not any(node.disk.exists(f"{path}/{META_PROPERTIES_FILE}") for path in paths):
        from pessoa.broker.cluster_identity import first_cluster_id, first_voters

        voters = first_voters(config, node.new_uuid)
        if cluster_id is None:
            cluster_id = await first_cluster_id(config, node.controller_network, node.clock, node.controller_login())
    return format_metadata(
        node.disk,
        config.log_dirs,
        config.metadata_log_dir,
        config.node_id,
        node.new_uuid,
        node.clock.now_ms(),
        cluster_id,
        voters,
        first_records,
    )


class LogDirectories:
    def __init__(
        self, directories: Sequence[LogDirectory], owners: dict[str, MetaProperties], metadata_directory: str
    ) -> None:
        self.all = list(directories)
        self.cluster_id = next(iter(owners.values())).cluster_id
        directory_id = owners[metadata_directory].directory_id
        assert directory_id is not None
        # The id of the directory with the metadata log.
        self.metadata_id = directory_id
        # The broker epoch that a clean shutdown writes down; -1 if this broker has not registered.
        self.broker_epoch = -1

    def __repr__(self) -> str:
        return f"<LogDirectories of cluster {self.cluster_id}: {', '.join(one.path for one in self.all)}>"

    def open_logs(self, node: NodeContext) -> None:
        for directory in self.all:
            directory.open(node.config.of_topic, node.clock.now_ms())

    @property
    def ids(self) -> list[Uuid]:
        return _ids(self.all)

    def offline_ids(self) -> list[Uuid]:
        return _ids([one for one in self.all if one.offline is not None])

    @property
    def are_all_offline(self) -> bool:
        return all(one.offline is not None for one in self.all)

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last incarnation, if it shut down cleanly; else -1. Directories that disagree were
        not all there when the broker stopped (KIP-966)."""
        previous = {one.previous_broker_epoch for one in self.all}
        return previous.pop() if len(previous) == 1 else -1

    async def close(self) -> None:
        for directory in self.all:
            if directory.offline is None and directory.is_open:
                try:
                    directory.close(self.broker_epoch)
                except DirectoryOffline as problem:
                    log.error("%s could not be closed in order: %s", directory.path, problem.__cause__)  # noqa: TRY400
            directory.release()

    def abandon(self) -> None:
        for directory in self.all:
            directory.release()


def _ids(directories: list[LogDirectory]) -> list[Uuid]:
    return [one.meta.directory_id for one in directories if one.meta is not None and one.meta.directory_id is not None]
