"""A real Apache Kafka, one node or three, on free loopback ports, for as long as a `with` block lasts; and its tools.

    with ApacheKafka(log_segment_bytes=1_048_576) as kafka:
        kafka.bootstrap_servers                                        # "127.0.0.1:40123"
        kafka.run_tool("kafka-topics", "--create", "--topic", "t", "--bootstrap-server", kafka.bootstrap_servers)
    run_tool("kafka-dump-log", "--files", "00000000000000000000.log").stdout

Every node is broker and controller at once (KRaft combined mode) with a static quorum. Its `server.properties`, its
output and its data are in a temporary directory that is deleted with the block. If the caller names the data
directories, one for each node, those are used in place and kept: what Apache wrote can be read afterwards, and what
Pessoa wrote, `meta.properties` included, can be served by Apache. A directory without that file is formatted.

Started means: each node answers a Metadata request with every node. Only then is each broker registered,
unfenced and known to the others; ApiVersions or the line "started" in the log come earlier than that.

Only processes started here are signalled. Temporary nodes are killed at the end, since their data is not read
again; nodes on named directories are stopped with SIGTERM, because their files are read afterwards.
"""

from __future__ import annotations

import atexit
import base64
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.apache.class_archive import small_java
from tests.apache.jars import KAFKA_VERSION, classpath, java, why_no_java

HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
TOOL_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.02
LOG_TAIL_LINES = 40

# The scripts of Apache's bin/ and the classes behind them in 4.3.
TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-server-start": "kafka.Kafka",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}


class ApacheKafkaError(Exception):
    """Apache's program failed; the message ends with its output."""


def java_command(
    main_class: str, *arguments: str, jvm: Sequence[str] | None = None, log_level: str = "WARN"
) -> list[str]:
    """Return the command of a main class; without `jvm` (flags for measurements) Java is small and starts fast."""
    executable = java()
    if executable is None:
        raise ApacheKafkaError(why_no_java())
    options = small_java() if jvm is None else jvm
    path = [] if "-cp" in options else ["-cp", classpath()]
    logging = Path(__file__).with_name("log4j2.properties")
    flags = [f"-Dlog4j2.configurationFile={logging.as_uri()}", f"-Dpessoa.log.level={log_level}"]
    return [str(executable), *path, *options, *flags, main_class, *arguments]


def run_tool(
    tool: str, *arguments: str | Path, stdin: str | None = None, timeout_s: float = TOOL_TIMEOUT_S, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache's tools, by the name of its script or of its main class, to its end."""
    from tests.apache.warm_tools import run_warm

    done = run_warm(tool, *map(str, arguments), stdin=stdin or "", timeout_s=timeout_s)
    if check and done.returncode != 0:
        raise ApacheKafkaError(f"{tool} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


class ApacheKafka:
    """A cluster of Apache Kafka brokers; see the head of the file.

    Server properties are given as keywords with `_` for `.` (`log_segment_bytes=1024`) or, for keys that need other
    letters, in `properties`; both win over what this class would write.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        data: Sequence[Path] = (),
        properties: Mapping[str, object] | None = None,
        jvm: Sequence[str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        format_words: Sequence[str] = (),
        **server_properties: object,
    ) -> None:
        self._cleanup = ExitStack()
        temporary = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="apache-kafka-")))
        self._is_temporary = not data
        self._jvm = jvm
        self._start_timeout_s = start_timeout_s
        self._format_words = format_words
        overrides = {key.replace("_", "."): value for key, value in server_properties.items()}
        self._overrides = {key: _property_text(value) for key, value in (overrides | dict(properties or {})).items()}
        folders = [temporary / f"node-{position}" for position in range(1, (len(data) or nodes) + 1)]
        self.nodes = [
            _Node(position, folder, data[position - 1] if data else folder / "data")
            for position, folder in enumerate(folders, start=1)
        ]
        assert len({node.node_id for node in self.nodes}) == len(self.nodes) > 0

    def __repr__(self) -> str:
        return f"<ApacheKafka {KAFKA_VERSION} {self.nodes}>"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    @property
    def port(self) -> int:
        return self.nodes[0].port

    def node(self, node_id: int) -> _Node:
        return next(node for node in self.nodes if node.node_id == node_id)

    def data_directory(self, node_id: int = 1) -> Path:
        return self.node(node_id).data

    def log_text(self, node_id: int = 1) -> str:
        return self.node(node_id).log_text()

    def run_tool(self, tool: str, *arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a tool that must succeed."""
        return run_tool(tool, *arguments, stdin=stdin, check=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.report())
        self.close()

    def start(self) -> None:
        """Format unformatted directories, start every node that does not run and wait until each sees all nodes."""
        deadline = time.monotonic() + self._start_timeout_s
        self.write_properties()
        self._format()
        for node in self.nodes:
            node.start(self._jvm)
        for node in self.nodes:
            self._wait_until_it_sees_all_nodes(node, deadline)

    def write_properties(self) -> None:
        for node in self.nodes:
            node.write_properties(self._quorum_voters(), self._overrides, cluster_size=len(self.nodes))

    def stop(self, *, kill: bool = False) -> None:
        """Stop every node with SIGTERM and, after a deadline, SIGKILL; or kill all at once."""
        for node in self.nodes:
            node.signal(signal.SIGKILL if kill else signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for node in self.nodes:
            # The last of three nodes would wait for the stopped controllers until the deadline; a single node does not.
            node.wait_for_end(deadline)

    def close(self) -> None:
        self.stop(kill=self._is_temporary)
        self._cleanup.close()

    def report(self) -> str:
        """Return the end of every node's log, for the report of a failing test."""
        return "\n".join(f"--- {node!r}\n{node.log_tail()}" for node in self.nodes)

    def _quorum_voters(self) -> str:
        return ",".join(f"{node.node_id}@{HOST}:{node.controller_port}" for node in self.nodes)

    def _format(self) -> None:
        """Format the first node with Apache's tool, and give the others the same files with their own ids.

        The bootstrap snapshot is equal on all nodes, so this saves a Java start for each further one.
        """
        first, *others = self.nodes
        if not first.is_formatted:
            words = (*self._format_words, "-t", random_id(), "-c", str(first.properties_path))
            run_tool("kafka-storage", "format", *words, check=True)
        for node in others:
            if not node.is_formatted:
                node.format_like(first)

    def _wait_until_it_sees_all_nodes(self, node: _Node, deadline: float) -> None:
        while True:
            if node.has_ended:
                raise ApacheKafkaError(f"Apache Kafka ended while it started.\n{self.report()}")
            if node.count_of_brokers_it_sees() == len(self.nodes):
                return
            if time.monotonic() > deadline:
                raise ApacheKafkaError(f"Apache Kafka was not up after {self._start_timeout_s} s.\n{self.report()}")
            time.sleep(POLL_INTERVAL_S)


class _Node:
    """One Apache broker process, the folder of its configuration and log, and its data."""

    def __init__(self, position: int, directory: Path, data: Path) -> None:
        self.directory = directory
        self.data = data
        # A formatted directory belongs to one node: Apache refuses it under another id.
        self.node_id = int(self.meta_properties().get("node.id", position))
        self.properties_path = directory / "server.properties"
        self.log_path = directory / "node.log"
        self.port = reserve_port()
        self.controller_port = reserve_port()
        self.process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        if self.process is None:
            state = "not started"
        elif (code := self.process.poll()) is not None:
            state = f"ended with {code}"
        else:
            state = f"process {self.process.pid}"
        return f"node {self.node_id} on {HOST}:{self.port} ({state})"

    @property
    def is_formatted(self) -> bool:
        return (self.data / "meta.properties").exists()

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def meta_properties(self) -> dict[str, str]:
        """Return the properties of the formatted directory; empty if it is not formatted."""
        if not self.is_formatted:
            return {}
        lines = (self.data / "meta.properties").read_text(encoding="utf-8").splitlines()
        pairs = (line.partition("=") for line in lines if not line.startswith("#"))
        return {key.strip(): value.strip() for key, _, value in pairs}

    def write_properties(self, quorum_voters: str, overrides: Mapping[str, str], cluster_size: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        listeners = f"PLAINTEXT://{HOST}:{self.port}"
        controller = f"CONTROLLER://{HOST}:{self.controller_port}"
        replicas = str(min(3, cluster_size))
        minimum = str(max(1, min(3, cluster_size) - 1))
        values = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": quorum_voters,
            "listeners": f"{listeners},{controller}",
            "advertised.listeners": f"{listeners},{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "log.dirs": str(self.data),
            # As in the server.properties that Apache ships: a first group need not wait three seconds.
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": minimum,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": minimum,
            **overrides,
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        self.properties_path.write_text(text, encoding="utf-8")

    def format_like(self, other: _Node) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        shutil.copy(other.data / "bootstrap.checkpoint", self.data)
        meta = other.meta_properties() | {"node.id": str(self.node_id), "directory.id": random_id()}
        text = "".join(f"{key}={value}\n" for key, value in meta.items())
        (self.data / "meta.properties").write_text(text, encoding="utf-8")

    def start(self, jvm: Sequence[str] | None) -> None:
        if not self.has_ended:
            return
        command = java_command("kafka.Kafka", str(self.properties_path), jvm=jvm, log_level="INFO")
        with self.log_path.open("ab") as log:
            self.process = _start_process(command, log)

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait_for_end(self, deadline: float) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        atexit.unregister(self.process.kill)

    def count_of_brokers_it_sees(self) -> int:
        """Return the number of brokers in a Metadata v1 response; 0 while the node does not answer."""
        body = struct.pack(">hhih", 3, 1, 0, -1) + struct.pack(">i", 0)
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as connection:
                connection.sendall(struct.pack(">i", len(body)) + body)
                answer = connection.makefile("rb").read(12)
        except OSError:
            return 0
        # Size, correlation id, then the number of brokers.
        return int.from_bytes(answer[8:12], "big") if len(answer) == 12 else 0

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-LOG_TAIL_LINES:])


def _start_process(command: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    # In a session of its own: Ctrl-C in the terminal goes only to the test, which then stops its brokers in order.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    atexit.register(process.kill)
    return process


def reserve_port() -> int:
    """Return a loopback port that the kernel gives to no other process for the next minute.

    A port that was only found free may be given away before Java binds it. A port on which a connection was just
    closed by the server is in TIME_WAIT: the kernel gives it to no process, but lets a server socket with
    SO_REUSEADDR, which Java's are, listen on it.
    """
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((HOST, 0))
        server.listen(1)
        port: int = server.getsockname()[1]
        with socket.create_connection((HOST, port)):
            server.accept()[0].close()
    return port


def random_id() -> str:
    """Return a UUID in Kafka's format that does not begin with a dash, which a tool would take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _property_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
