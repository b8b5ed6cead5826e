"""The files and topics that a query leaves under its name, and their removal when the query is deleted.

    <home>/queries/<id>/checkpoint    where it is, unless checkpoints are kept elsewhere
    <home>/queries/<id>/slots         the number of slots it began with (slots.py)
    _pessoa_batches-…                 its markers, if it is exactly-once (topic_writer.py)

A query that begins under a name goes on from what it finds there: a checkpoint without its markers would have it write
a batch twice, half a checkpoint would keep it from starting. An engine may be killed in the middle of a deletion, so
the deletion is written down first, as a file, and every step can be taken again:

    mark_deleting   <home>/deleting/<id> is written; then the engine writes a tombstone to the state topic
    remove          checkpoint and folder get a name that no query can have, each by one rename, and are removed
                    the markers are deleted; they belong to a checkpoint, and mean nothing to another
                    <home>/deleting/<id> is removed

A checkpoint in a store that only Spark reaches (S3, HDFS) is emptied by Spark (`empty_folder`), which is started for it
if need be.

The next engine in this home does all of it again where it finds that file (`finish_deletions`). If the cluster still
knows the query, it was never told, and the query stays. A step that fails leaves what comes after it as it was.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

from pessoa.client.topic_creation import delete_topic, ensure_topic
from pessoa.pipelines.slots import kept_slots, sync_names
from pessoa.pipelines.topic_writer import marker_spec, marker_topic

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# Separates the name of a deleted folder from a unique suffix. No query's name contains it.
_RUBBISH = "~deleted-"


class Traces:
    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str],
        checkpoints: str | None = None,
        session: Callable[[], SparkSession | None] = lambda: None,
    ) -> None:
        """Make the traces of the queries in `home`. `settings` are librdkafka's; `checkpoints` is where checkpoints are
        kept if not in the home: a path or a URI.

        `session` returns the Spark session, or None if Spark is not available.
        """
        self._queries = home / "queries"
        self._deleting = home / "deleting"
        self._settings = settings
        self._checkpoints = checkpoints
        self._session = session

    def __repr__(self) -> str:
        return f"<Traces in {self._queries}>"

    def folder(self, query_id: str) -> Path:
        return self._queries / query_id

    def checkpoint(self, query_id: str) -> str:
        if self._checkpoints is not None:
            return f"{self._checkpoints.rstrip('/')}/{query_id}"
        return (self.folder(query_id) / "checkpoint").absolute().as_uri()

    def slots(self, query_id: str, wanted: int) -> int:
        return kept_slots(self.folder(query_id), wanted)

    def make_markers(self, query_id: str, wanted_slots: int, timeout_s: float) -> None:
        slots = self.slots(query_id, wanted_slots)
        ensure_topic(self._admin(), marker_spec(query_id, slots), timeout_s)

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({**self._settings, "log_level": "3"})

    # Deletion.

    def mark_deleting(self, query_id: str) -> None:
        """Write a file that says that the query is being deleted."""
        self._deleting.mkdir(parents=True, exist_ok=True)
        (self._deleting / query_id).touch()
        for named in (self._deleting, self._deleting.parent):
            sync_names(named)

    def unmark_deleting(self, query_id: str) -> None:
        """Remove the file that `mark_deleting` wrote: the query stays."""
        (self._deleting / query_id).unlink(missing_ok=True)

    def remove(self, query_id: str, *, has_markers: bool) -> None:
        """Remove all traces of a query; OSError if a folder cannot be moved away, which then is unchanged."""
        self._remove_checkpoint_elsewhere(query_id)
        _remove(self.folder(query_id))
        if has_markers:
            delete_topic(self._admin(), marker_topic(query_id))
        (self._deleting / query_id).unlink(missing_ok=True)

    def finish_deletions(self, known: Collection[str]) -> None:
        """Finish the deletions that an earlier engine began; `known` are the queries that still exist."""
        for begun in sorted(self._deleting.iterdir()) if self._deleting.exists() else ():
            if begun.name in known:
                self.unmark_deleting(begun.name)
                continue
            try:
                self.remove(begun.name, has_markers=True)
            except OSError as failure:
                # The next engine in this home tries again.
                log.warning("the deletion of query %s had begun, and cannot be ended: %s", begun.name, failure)
            else:
                log.info("the deletion of query %s had begun, and is ended", begun.name)

    def _remove_checkpoint_elsewhere(self, query_id: str) -> None:
        if self._checkpoints is None:
            return
        place = self.checkpoint(query_id)
        folder = path_of(place)
        if folder is not None and folder.exists():
            _remove(folder)
            return
        session = self._session()
        if session is None or not _was_emptied(session, place):
            log.warning("a checkpoint of query %s may be left: remove %s", query_id, place)
        if folder is not None:
            _remove(folder)


def _was_emptied(session: SparkSession, place: str) -> bool:
    try:
        empty_folder(session, place)
    except Exception as refused:  # noqa: BLE001
        # Spark and the store refuse in many ways. The checkpoint is left, and its user is told.
        log.warning("%s could not be emptied: %s", place, refused)
        return False
    return True


def empty_folder(session: SparkSession, place: str) -> None:
    """Remove everything in a folder that Spark can reach; a file without rows is left in it.

    Spark Connect has no other way to delete files in a store: a write in mode "overwrite" empties the folder first.
    """
    session.range(0, 0, 1, 1).selectExpr("CAST(id AS STRING) AS nothing").write.mode("overwrite").text(place)


def path_of(place: str) -> Path | None:
    """Return the local path of a checkpoint; None if it is on another machine or in another kind of store."""
    if place.startswith("file:"):
        # With a host between the second slash and the third, or without.
        place = unquote(place.removeprefix("file:").removeprefix("//"))
    return Path(place) if place.startswith("/") else None


def _remove(folder: Path) -> None:
    """Rename a folder, then delete it. A renamed folder that cannot be deleted belongs to no query; it is tried
    again with the next query of this name."""
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}{_RUBBISH}{uuid4().hex}"))
    for rubbish in folder.parent.glob(f"{folder.name}{_RUBBISH}*"):
        try:
            shutil.rmtree(rubbish)
        except OSError as failure:
            log.warning("%s is left, and cannot be removed: %s", rubbish, failure)
