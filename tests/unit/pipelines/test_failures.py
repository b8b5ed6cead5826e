"""Reasons out of Spark's stack traces."""

from __future__ import annotations

from pessoa.pipelines.failures import STOPPED_BY_RECORD, is_final, is_state_of_micro_batches, plain

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


def test_a_python_failure_is_told_with_the_lines_of_the_users_own_file() -> None:
    assert plain(PYTHON) == (
        "ValueError: this record is poison\n"
        '  File "/home/ana/flows.py", line 12, in checked\n'
        '    raise ValueError("this record is poison")'
    )


def test_a_java_failure_is_told_by_its_innermost_cause() -> None:
    assert plain(JAVA) == "Not authorized to access topics: [vendas] (TopicAuthorizationException)"


def test_any_other_text_is_its_first_lines() -> None:
    assert plain("something\n\nis wrong") == "something is wrong"


def test_a_plan_that_could_stop_at_a_record_is_no_record_that_stopped_it() -> None:
    plan = f"Filter raise_error(concat({STOPPED_BY_RECORD}: , concat(rowtopic#1, -, rowpartition#2)))"
    text = f"org.apache.spark.SparkException: the disk is full\n\tat a.B.c(D.scala:1)\n{plan}"
    assert not is_final(text)
    assert plain(text) == "the disk is full (SparkException)"


def test_a_state_that_real_time_mode_does_not_take_is_known_by_sparks_word_for_it() -> None:
    assert is_state_of_micro_batches("[STREAMING_REAL_TIME_MODE.CHECKPOINT_FORMAT_V1_NOT_SUPPORTED] Streaming …")
    assert not is_state_of_micro_batches("the disk is full")


def test_a_record_that_stops_a_pipeline_is_the_whole_reason_and_final() -> None:
    text = "[USER_RAISED] a bad record stopped the pipeline: t-0@7: no JSON SQLSTATE: P0001\n\tat x"
    assert plain(text) == "a bad record stopped the pipeline: t-0@7: no JSON"
    assert is_final(plain(text))
    assert not is_final(plain(JAVA))


def test_records_that_are_gone_are_told_as_that_and_end_the_query_for_good() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: Some data may have been lost\n"
        "java.lang.IllegalStateException: Partition vendas-0's offset was changed from 50 to 10\n"
        "\tat a.B.c(B.scala:1)"
    )
    reason = plain(text)
    assert "a topic was deleted and made again" in reason
    assert "vendas-0's offset was changed from 50 to 10" in reason
    assert is_final(reason)
