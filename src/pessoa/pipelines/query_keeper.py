"""The keeper of an engine's queries: starts those that should run, notices progress and ends, and tries again.

A thread looks after everything about twice a second:

    Spark is gone            start it again, and all its queries
    a query has ended        start it again after a pause that doubles; give up when it has made no progress for
                             `max_restarts` attempts in a row, with the reason in its status
    a query has progressed   keep the numbers, commit its offsets to its group
    a topic was made again   end the queries that read it, with the reason (topic_ids.py)

The locks are those of engine.py: `mutex` is held while a query is changed or Spark is asked, and never while a cluster
is asked something. What a query needs from the cluster before it can start is asked for in `_prepare`, without it.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pessoa.client.topic_creation import TopicUnavailable
from pessoa.pipelines.ending_queries import EndingQueries
from pessoa.pipelines.failures import failure_reason, is_final, is_state_of_micro_batches
from pessoa.pipelines.group_offsets import GroupOffsets
from pessoa.pipelines.jars import JarsUnavailable
from pessoa.pipelines.java import NoJava
from pessoa.pipelines.launching import client_settings, launch, mode_of, must_load_tables
from pessoa.pipelines.names import Names
from pessoa.pipelines.plan import KafkaSettings, PlanRefused
from pessoa.pipelines.queries import SpecRefused
from pessoa.pipelines.query_handle import Query
from pessoa.pipelines.query_progress import Progress, read_progress
from pessoa.pipelines.spark_link import SparkLink
from pessoa.pipelines.spark_server import SparkUnavailable, in_use
from pessoa.pipelines.task_slots import NoTaskSlots, TaskSlots, count_partitions, refuse_if_full, slots_wanted
from pessoa.pipelines.topic_ids import KeptTopics, TopicLook, TopicRecreated
from pessoa.pipelines.traces import Traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_INTERVAL_S = 0.5
# Every question costs Spark some milliseconds of the cores that the queries run on.
REPORT_INTERVAL_S = 1.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
# The thread that looks after all queries does not wait longer than this for a cluster on behalf of one.
MARKERS_TIMEOUT_S = 5.0
# Only the engine's owner can mend these, so nothing is tried again.
REFUSALS = (PlanRefused, SpecRefused, NoJava, JarsUnavailable)

log = logging.getLogger(__name__)


class QueryKeeper:
    def __init__(self, kafka: KafkaSettings, spark: SparkLink, traces: Traces, mutex: threading.RLock) -> None:
        self.kafka = kafka
        self.spark = spark
        self.traces = traces
        self.mutex = mutex
        self.names = Names()
        self.ending = EndingQueries()
        self.closing = threading.Event()
        self.queries: dict[str, Query] = {}
        self.groups = GroupOffsets(client_settings(kafka))
        self._topic_look = TopicLook(client_settings(kafka))

    def __repr__(self) -> str:
        return f"<QueryKeeper of {len(self.queries)} queries, {self.spark}>"

    def task_slots(self) -> TaskSlots:
        """Return the count of Spark's task slots, and of those that are held. On a cluster it is 0 until Spark has
        started."""
        held = sum(query.task_slots for query in list(self.queries.values()) if query.running is not None)
        return TaskSlots(self.spark.task_slots or 0, held)

    def watch(self) -> None:
        while not self.closing.wait(LOOK_INTERVAL_S):
            self._prepare()
            self._look_at_topics()
            with self.mutex:
                self.look()

    def _prepare(self) -> None:
        """Create the marker topics of the queries that are about to start. The cluster may take long to answer."""
        for query in list(self.queries.values()):
            with self.mutex:
                # A query that is being deleted or started belongs to another thread.
                is_ours = self.queries.get(query.spec.id) is query and query.is_due() and not query.is_prepared
                if self.closing.is_set() or not is_ours or not self.names.maybe_take(query.spec.id):
                    continue
            try:
                self.prepare_query(query, MARKERS_TIMEOUT_S)
            except TopicUnavailable as missing:
                self._failed_to_prepare(query, str(missing), counts=not missing.may_pass)
            except TopicRecreated as other:
                self._failed_to_prepare(query, str(other))
            except Exception as failure:
                # A disk or a client may fail in many ways. Without this thread nothing would be looked after any more.
                log.exception("query %s could not be prepared", query.spec.id)
                self._failed_to_prepare(query, str(failure) or type(failure).__name__)
            else:
                continue
            finally:
                self.names.give_back(query.spec.id)
            # The others have their turn when everything else was looked after.
            return

    def _failed_to_prepare(self, query: Query, reason: str, *, counts: bool = True) -> None:
        with self.mutex:
            if query.is_due() and not self.closing.is_set():
                self._note_failure(query, reason, counts=counts)

    def _look_at_topics(self) -> None:
        """End queries whose topics were recreated. Reads files; requests to the cluster are not waited for."""
        running = [query for query in list(self.queries.values()) if query.running is not None]
        seen = self._topic_look.answer({topic for query in running for topic in query.topics()})
        for query in running if seen else ():
            # A query that is being deleted or started belongs to another thread.
            if not self.names.maybe_take(query.spec.id):
                continue
            try:
                if self.queries.get(query.spec.id) is query:
                    self._note_topics(query, seen)
            except TopicRecreated as other:
                with self.mutex:
                    if query.running is not None:
                        self._note_failure(query, str(other))
            except Exception:
                # A disk may fail in many ways. Without this thread nothing would be looked after any more.
                log.exception("the topics of query %s could not be noted", query.spec.id)
            finally:
                self.names.give_back(query.spec.id)

    def _note_topics(self, query: Query, seen: Mapping[str, str]) -> None:
        own = query.topics()
        found = {topic: topic_id for topic, topic_id in seen.items() if topic in own}
        if found:
            KeptTopics(self.traces.folder(query.spec.id)).note(found)

    def prepare_query(self, query: Query, timeout_s: float) -> None:
        if query.spec.delivery == "exactly-once":
            self.traces.make_markers(query.spec.id, query.spec.slots, timeout_s)
            query.has_markers = True
        self._note_topics(query, self._topic_look.ask(query.topics()))
        query.has_topics = True
        if query.is_real_time:
            query.partitions = count_partitions(client_settings(self.kafka), query.spec.plan)

    def look(self) -> None:
        """Run one round: notice queries that ended, start those that should run."""
        if self.spark.has_ended:
            self._lose_spark("Spark has ended")
        self._look_at([query for query in self.queries.values() if query.running is not None])
        for query in list(self.queries.values()):
            if self.closing.is_set():
                return
            self.start_if_due(query)

    def start_if_due(self, query: Query) -> None:
        if query.is_due() and query.is_prepared and self.ending.has_ended(query.spec.id):
            self.launch(query)

    def _look_at(self, queries: list[Query]) -> None:
        """Notice progress and ended queries, with one request to Spark for all, and one for each due report."""
        session = self.spark.session
        if not queries or session is None:
            return
        now_s = time.monotonic()
        found = []
        try:
            active = {running.runId for running in session.streams.active}
            for query in queries:
                assert query.running is not None
                is_active = query.running.runId in active
                is_due = now_s >= query.next_report_s or not is_active
                report = query.running.lastProgress if is_due else None
                found.append((query, is_active, report, None if is_active else query.running.exception()))
        except Exception as lost:  # noqa: BLE001
            # Any exception of Spark's client means that Spark does not answer.
            self._lose_spark(f"Spark does not answer ({type(lost).__name__})")
            return
        for query, is_active, report, failure in found:
            if report is not None:
                query.next_report_s = now_s + REPORT_INTERVAL_S
                self._note_progress(query, read_progress(report))
            if not is_active and failure is None and query.is_loading:
                query.running, query.is_loading, query.has_loaded = None, False, True
            elif not is_active and is_state_of_micro_batches(str(failure)):
                self._go_on_in_micro_batches(query)
            elif not is_active:
                self._note_failure(
                    query, failure_reason(str(failure)) if failure is not None else "Spark ended the query"
                )

    def _note_progress(self, query: Query, progress: Progress) -> None:
        query.progress = progress
        query.state = "STARTING" if query.is_loading else "RUNNING"
        if query.first_batch_id < 0:
            query.first_batch_id = progress.batch_id
        elif progress.batch_id > query.first_batch_id:
            # A batch was finished since the start: what failed before is over.
            query.attempts = 0
        self.groups.commit(query.spec.group, progress.offsets)

    def launch(self, query: Query, *, raises: bool = False) -> None:
        query.state = "STARTING" if not query.error else "RESTARTING"
        try:
            spark = self.spark.connect()
            slots = self.traces.slots(query.spec.id, query.spec.slots)
            self._take_task_slots(query, spark)
            with in_use(spark):
                self._run(query, spark, slots)
            query.first_batch_id, query.next_report_s = -1, 0.0
            query.state = "STARTING" if query.is_loading else "RUNNING"
        except REFUSALS as refused:
            if raises:
                raise
            query.state, query.error = "FAILED", str(refused)
        except NoTaskSlots as full:
            if raises:
                raise
            # Another query may end. This one waits, and that does not count as a failure.
            self._note_failure(query, str(full), counts=False)
        except SparkUnavailable as missing:
            if raises:
                raise
            self._note_failure(query, str(missing))
        except Exception as failure:
            # Spark refuses in many ways; the user's own function may raise anything.
            if raises:
                raise
            self._note_failure(query, failure_reason(str(failure)))

    def _run(self, query: Query, spark: SparkSession, slots: int) -> None:
        query.is_loading = must_load_tables(query.spec) and not query.has_loaded
        query.has_loaded = False
        checkpoint = self.traces.checkpoint(query.spec.id)
        query.running = launch(query.spec, spark, self.kafka, checkpoint, slots, loads_tables=query.is_loading)

    def _go_on_in_micro_batches(self, query: Query) -> None:
        """Restart the query in micro-batches: real-time mode does not accept the format of its state."""
        self.end(query)
        query.spec = dataclasses.replace(query.spec, speed="micro-batch", output_mode=mode_of(query.spec))
        query.state, query.next_start_s = "RESTARTING", 0.0
        query.error = (
            "its state was begun in micro-batches by an older version, so it goes on in them: to run it in real-time"
            " mode, start it anew under another name"
        )
        log.warning("query %s: %s", query.spec.id, query.error)

    def _take_task_slots(self, query: Query, spark: SparkSession) -> None:
        query.task_slots = 0
        if query.is_real_time:
            shuffle_partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
            wanted = slots_wanted(query.spec.plan, query.partitions or {}, shuffle_partitions)
            # If Spark does not report its slots, the query starts, and Spark refuses it if there are too few.
            if self.spark.task_slots is not None:
                refuse_if_full(query.spec.id, wanted, self.task_slots())
            query.task_slots = wanted

    def _note_failure(self, query: Query, reason: str, *, counts: bool = True) -> None:
        self.end(query)
        query.error = reason
        query.has_markers, query.partitions = False, None
        query.attempts += counts
        if query.attempts > query.spec.max_restarts or is_final(reason):
            query.state = "FAILED"
            log.error("query %s failed and is given up: %s", query.spec.id, reason)
            return
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** max(0, query.attempts - 1))
        query.state = "RESTARTING"
        query.restarts += counts
        query.next_start_s = time.monotonic() + pause_s
        log.warning("query %s failed and starts again in %.0f s: %s", query.spec.id, pause_s, reason)

    def _lose_spark(self, reason: str) -> None:
        if self.spark.has_ended:
            assert self.spark.server is not None
            reason = f"Spark has ended; its log is {self.spark.server.log_path}"
        log.warning("%s", reason)
        self.spark.drop()
        for query in self.queries.values():
            if query.running is not None:
                # No fault of the query's: it starts again at once, and it does not count.
                query.running, query.has_topics = None, False
                query.state, query.error = "RESTARTING", reason
                query.restarts += 1
                query.next_start_s = 0.0

    def end(self, query: Query) -> None:
        running, query.running = query.running, None
        # A topic may be made again while it rests.
        query.has_topics = False
        if running is not None and self.spark.session is not None and not self.spark.has_ended:
            self.ending.stop(query.spec.id, running)
