"""A Spark standalone cluster on this machine: a master and workers, each a Java process of its own.

    with StandaloneCluster(folder, workers=2) as cluster:
        SparkOptions(master=cluster.master, …)

The classes are started with `java` as Spark's own scripts would. A worker starts its executors from the jars in
PySpark's wheel. Each process has a guardian process, so that none outlives the test process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Self

from pessoa.pipelines import spark_server
from pessoa.pipelines.jars import spark_jars
from pessoa.pipelines.java import find_java, options
from tests.support.service_process import children
from tests.support.spark import SMALL_JVM
from tests.support.typed_process import TypedProcess

HOST = "127.0.0.1"
DEADLINE_S = 240.0


class StandaloneCluster:
    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.master = ""
        self._folder = folder
        self._worker_count = workers
        self._processes: list[TypedProcess] = []

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            master = self._run("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            self.master = master.wait_for(r"Starting Spark master at (spark://\S+)", DEADLINE_S)[1]
            for worker in [self._run_worker(number) for number in range(self._worker_count)]:
                worker.wait_for("Successfully registered with master", DEADLINE_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def executors(self) -> set[str]:
        """Return the names of the workers that have started an executor, by the folders that executors left."""
        return {path.parent.parent.name for path in self._folder.glob("worker-*/app-*/*") if path.is_dir()}

    def executor_pids(self) -> list[int]:
        """Return the process ids of running executors: the children of the workers, which are children of guardians."""
        workers = [java for guardian in self._processes[1:] for java in children(guardian.pid)]
        return [executor for worker in workers for executor in children(worker)]

    def _run_worker(self, number: int) -> TypedProcess:
        name = f"worker-{number}"
        where = ("-d", str(self._folder / name))
        return self._run(
            name, "org.apache.spark.deploy.worker.Worker", "--port", "0", "--cores", "1", "--memory", "768m",
            *where, self.master,
        )  # fmt: skip

    def _run(self, name: str, main_class: str, *arguments: str) -> TypedProcess:
        guardian = [sys.executable, "-S", "-E", str(Path(spark_server.__file__).with_name("guardian.py"))]
        java = [str(find_java().executable), "-Xmx256m", *SMALL_JVM, *options(), "-cp", str(spark_jars() / "*")]
        # A worker expects a distribution of Spark, and PySpark's wheel does not name its Scala version.
        spark = {"SPARK_HOME": str(spark_jars().parent), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": HOST}
        process = TypedProcess(
            [*guardian, *java, main_class, "--host", HOST, "--webui-port", "0", *arguments],
            self._folder / f"{name}.log",
            name=name,
            environment={**os.environ, **spark},
            cwd=self._folder,
            own_session=True,
        )
        process.start()
        self._processes.append(process)
        return process

    def _end(self) -> None:
        for process in reversed(self._processes):
            # The guardian kills the whole group when its input ends.
            process.end_input()
            process.wait_for_end(DEADLINE_S)
        self._processes.clear()
