"""The reference implementation of ksql queries: a runtime of operators without I/O that executes a logical plan.

    LogicalPlan ─ topology.py ─ stages ─┬─ Stage.prepare: a record becomes rows of a task (decode, WHERE, re-key)
                                        └─ Task.take: a row changes state and gives records (joins, aggregates, HAVING)

The same stages run in three places: in the case tests, in the server for push queries (`in_process.py`), and inside
Spark for persistent queries that Spark's own operators cannot express.

- `records.py` has what comes in and goes out, `task_rows.py` what travels between `prepare` and `take`.
- `state_store.py` is all that an operator may remember: get, put and delete of bytes.
- `format_codecs.py` reads and writes keys and values in every format.
"""
