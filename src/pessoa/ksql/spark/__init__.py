"""Persistent queries on Spark.

    spark_query_runner   what the server asks: start, pause, resume, terminate, status, explain
    query_choice         which way a plan runs, and why: native_… or ordered_…
    native_plan          a plan that Spark's own operators mean as ksql does → pipelines' plan, in real-time mode
    ordered_…            every other plan: the operators of ksql/operators inside of pipelines' ordered operator

pyspark itself is the pipelines' business.
"""
