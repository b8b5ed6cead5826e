"""Data pipelines on Spark: the logical plan, its compiler, and the engine that keeps queries running.

The only home of pyspark, which is imported late: `import pessoa.pipelines` stays cheap.
"""
