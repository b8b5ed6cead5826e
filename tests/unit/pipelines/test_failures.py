"""The reason of a failure, extracted from Spark's stack traces."""

from __future__ import annotations

from pessoa.pipelines.failures import STOPPED_BY_RECORD, failure_reason, is_final, is_state_of_micro_batches

PYTHON = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Lost task 0.0
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/site/pyspark/worker.py", line 1, in main
    process()
  File "/home/ana/flows.py", line 12, in checked
    raise ValueError("this record is poison")
ValueError: this record is poison

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
"""
JAVA = """\
[STREAM_FAILED] Query terminated with exception: boom
org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Some.thing(Some.scala:1)
Caused by: org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [vendas]
\t... 7 more
"""


def test_a_python_error_is_shown_with_the_lines_of_the_users_own_file() -> None:
    assert failure_reason(PYTHON) == (
        "ValueError: this record is poison\n"
        '  File "/home/ana/flows.py", line 12, in checked\n'
        '    raise ValueError("this record is poison")'
    )


def test_a_java_error_is_shown_as_its_innermost_cause() -> None:
    assert failure_reason(JAVA) == "Not authorized to access topics: [vendas] (TopicAuthorizationException)"


def test_an_unrecognised_error_text_is_shown_as_its_first_lines() -> None:
    assert failure_reason("something\n\nis wrong") == "something is wrong"


def test_a_plan_text_with_the_marker_of_bad_records_is_not_taken_for_a_bad_record() -> None:
    plan = f"Filter raise_error(concat({STOPPED_BY_RECORD}: , concat(rowtopic#1, -, rowpartition#2)))"
    text = f"org.apache.spark.SparkException: the disk is full\n\tat a.B.c(D.scala:1)\n{plan}"
    assert not is_final(text)
    assert failure_reason(text) == "the disk is full (SparkException)"


def test_a_state_that_real_time_mode_does_not_support_is_recognised_by_sparks_error_class() -> None:
    assert is_state_of_micro_batches("[STREAMING_REAL_TIME_MODE.CHECKPOINT_FORMAT_V1_NOT_SUPPORTED] Streaming …")
    assert not is_state_of_micro_batches("the disk is full")


def test_a_bad_record_that_stops_a_pipeline_is_the_whole_error_and_final() -> None:
    text = "[USER_RAISED] a bad record stopped the pipeline: t-0@7: no JSON SQLSTATE: P0001\n\tat x"
    assert failure_reason(text) == "a bad record stopped the pipeline: t-0@7: no JSON"
    assert is_final(failure_reason(text))
    assert not is_final(failure_reason(JAVA))


def lost(reason: str, code: str = "") -> str:
    return (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Some of it is wrong SQLSTATE: XXKST\n"
        f"org.apache.spark.sql.kafka010.KafkaIllegalStateException: {code}Some data may have been"
        " lost because they are not available in Kafka any more; either the data was aged out by Kafka or the topic may"
        " have been deleted before all the data in the\ntopic was processed.\nIf you don't want your streaming query to"
        f" fail on such cases, set the source option failOnDataLoss to false.\nReason:\n{reason} SQLSTATE: 22000\n"
        "\tat a.B.c(B.scala:1)\n"
    )


def test_the_error_for_deleted_records_has_the_reason_and_ends_the_query() -> None:
    reason = failure_reason(lost("Partition vendas-0 offset was changed from 50 to 10.\nThis could"))
    assert reason.startswith("records that were to be read are gone: a topic was deleted and made again. Nothing was")
    assert reason.endswith("(Partition vendas-0 offset was changed from 50 to 10. This could)")
    assert is_final(reason)
    reason = failure_reason(
        lost("Partitions Set(vendas-0) have been deleted.", "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] ")
    )
    assert reason.startswith("records that were to be read are gone: a topic was deleted. Nothing")
    reason = failure_reason(lost("Starting offset for vendas-0 was 3 but consumer reset to 9."))
    assert "they were removed before they were read, or a topic was deleted and made again" in reason
    assert is_final(reason)


def test_the_error_for_deleted_records_without_a_known_reason_is_shown_too() -> None:
    text = (
        "a.b.KafkaIllegalStateException: Some data may have been lost because they are not available in Kafka any more;"
    )
    assert "or a topic was deleted and made again" in failure_reason(text)
    assert is_final(failure_reason(text))


def test_the_text_of_a_users_own_error_is_not_taken_for_sparks() -> None:
    text = PYTHON.replace(
        "this record is poison", "[KAFKA_DATA_LOSS.X] Some data may have been lost because they are not"
    )
    assert failure_reason(text).startswith("ValueError: [KAFKA_DATA_LOSS.X] Some data may have been lost")
    assert not is_final(failure_reason(text))


def test_a_full_disk_and_a_lost_executor_are_recognised_as_transient_errors() -> None:
    full = "[STREAM_FAILED] Query terminated\njava.io.IOException: No space left on device\n\tat a.B.c(B.scala:1)"
    assert failure_reason(full).startswith("there is no space left on a disk that Spark writes to")
    assert failure_reason(full).endswith("(No space left on device (IOException))")
    executor = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most"
        " recent failure: Lost task 0.3 in stage 3.0 (TID 9) (127.0.0.1 executor 1): ExecutorLostFailure (executor 1"
        " exited unrelated to the running tasks) Reason: Command exited with code 137\nDriver stacktrace:"
    )
    assert failure_reason(executor) == "an executor of Spark's cluster was lost: Command exited with code 137"
    assert not is_final(failure_reason(full))
    assert not is_final(failure_reason(executor))
