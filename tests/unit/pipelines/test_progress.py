"""Lag, rates and offsets from Spark's progress reports."""

from __future__ import annotations

from pessoa.pipelines.query_progress import Progress, read_progress


def report(**changes: object) -> dict[str, object]:
    source = {
        "endOffset": '{"vendas": {"0": 428, "1": 500}}',
        "latestOffset": '{"vendas": {"0": 430, "1": 572}}',
        "numInputRows": 928,
        "processedRowsPerSecond": 464.0,
    }
    base = {
        "batchId": 3,
        "batchDuration": 2000,
        "sources": [source],
        "stateOperators": [{"numRowsTotal": 7, "memoryUsedBytes": 900}, {"numRowsTotal": 1, "memoryUsedBytes": 100}],
        "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    }
    return {**base, **changes}


def test_a_progress_report_of_spark_is_converted_to_numbers() -> None:
    assert read_progress(report()) == Progress(
        batch_id=3,
        batch_ms=2000,
        input_rows=928,
        rows_per_second=464.0,
        lag=74,
        state_rows=8,
        state_bytes=1000,
        watermark="2026-01-01T00:00:00.000Z",
        offsets=(("vendas", 0, 428), ("vendas", 1, 500)),
        lags=(("vendas", 0, 2), ("vendas", 1, 72)),
    )


def test_a_topic_that_is_read_twice_has_the_position_of_its_slower_reader() -> None:
    ends = [{"endOffset": {"t": {"0": end}}, "latestOffset": {"t": {"0": 10}}} for end in (9, 4)]
    found = read_progress(report(sources=ends))
    assert found.offsets == (("t", 0, 4),)
    assert found.lag == 6


def test_a_source_that_is_no_kafka_topic_has_no_lag() -> None:
    sources = [{"endOffset": '{"line": 12}', "latestOffset": None, "numInputRows": 2, "processedRowsPerSecond": "NaN"}]
    found = read_progress(report(sources=sources))
    assert found.lag is None
    assert found.offsets == ()
    assert found.rows_per_second == 0


def test_an_empty_spark_report_is_read_as_a_progress_with_default_values() -> None:
    assert read_progress({}) == Progress()
