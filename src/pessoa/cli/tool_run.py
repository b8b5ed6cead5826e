"""What all command-line tools do around their work: streams, exit codes, and the settings for the connection.

    @tool(make_options)
    def main(given: Given) -> int:

`main` is then a `Tool`: called, it parses the words of its command line, does its work and turns result or exception
into output and an exit code. Usage errors print the sentence and the tool's help. What goes wrong with the cluster is a
`KafkaFailure`, which most tools print in a form of their own; what they let through becomes one line.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pessoa.cli.command_line import FLAG, UsageError, begin

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from pessoa.cli.command_line import Given, Options
    from pessoa.client.cluster_client import Cluster

# Where the platform of `pessoa up` listens. Tools of the ZooKeeper era, which name no broker, are sent there.
DEFAULT_CLUSTER = "localhost:9092"
DEFAULT_CLUSTER_VARIABLE = "PESSOA_BOOTSTRAP_SERVER"
_INTERRUPTED = 130
# librdkafka's message about a broker that it cannot reach, with a scheme unless it is plain TCP:
# `ssl://host:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)`
_ATTEMPT = re.compile(r"(\w+://)?(?P<address>[^/]+)/\w+: (?P<reason>.*?)( \(after |$)", re.DOTALL)
_SILENCE_TOLD_AGAIN_S = 30.0
# New objects between two searches for garbage, 700 unless one says so. A tool that asks a question and ends makes
# fewer than this, and none of it is garbage.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


class Tool:
    """A command whose options are an `Options`. The exit code of an act that returns None is 0."""

    def __init__(
        self,
        make_options: Callable[[], Options],
        act: Callable[[Given], int | None],
        parse: Callable[[Options, Sequence[str]], Given] = begin,
    ) -> None:
        self.make_options = make_options
        self._act = act
        self._parse = parse

    def __call__(self, words: Sequence[str] | None = None) -> int:
        options = self.make_options()
        return run(lambda typed: self._act(self._parse(options, typed)), words, options)

    def completions(self) -> dict[str, tuple[str, bool]]:
        """Return the options by name: their help, and whether a value follows."""
        table = self.make_options().table.values()
        return {option.name: (option.help, option.kind != FLAG) for option in table if not option.hidden}


def tool(
    make_options: Callable[[], Options], parse: Callable[[Options, Sequence[str]], Given] = begin
) -> Callable[[Callable[[Given], int | None]], Tool]:
    return lambda act: Tool(make_options, act, parse)


def run(
    act: Callable[[Sequence[str]], int | None], words: Sequence[str] | None = None, options: Options | None = None
) -> int:
    """Run `act` and return its exit code. Without `words` it takes sys.argv, and may end the process itself."""
    if words is not None:
        return _code_of(act, words, options)
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    code = _code_of(act, sys.argv[1:], options)
    if "threading" not in sys.modules:
        # No other thread runs in this process, so there is nothing to wait for and nothing to tidy up: what the
        # interpreter does on its way out takes a tenth of the whole time.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


def _code_of(act: Callable[[Sequence[str]], int | None], words: Sequence[str], options: Options | None) -> int:
    from pessoa.client.client_errors import KafkaFailure

    for stream in (sys.stdout, sys.stderr):
        # As the JVM in a UTF-8 locale; a tool must not fail over bytes that are no text.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        code = act(words) or 0
        sys.stdout.flush()
    except UsageError as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
        if error.with_help and options is not None:
            options.print_help(sys.stderr)
        return 1
    except KafkaFailure as failure:
        sys.stdout.flush()
        print(failure.java_text, file=sys.stderr)
        return 1
    except SystemExit as end:
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) has enough. Nothing may be written at exit, when Python flushes.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def default_cluster() -> str:
    return os.environ.get(DEFAULT_CLUSTER_VARIABLE) or DEFAULT_CLUSTER


def warn(sentence: str) -> None:
    # In one write, because a console tool may have two threads that print.
    sys.stderr.write(f"{sentence}\n")


def read_properties(path: str) -> dict[str, str]:
    """Return the contents of a Java properties file. Raises UsageError if it cannot be read."""
    from pessoa.base import properties

    try:
        return properties.read_properties(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", with_help=False) from error
    except properties.MalformedProperties as problem:
        raise UsageError(f"{path}: {problem}", with_help=False) from problem


def connect(given: Given, *, config: str = "command-config", servers: str | None = None) -> Cluster:
    """Return the cluster that the command line names. Connections are opened with the first request."""
    settings = read_properties(given.value(config)) if given.has(config) else {}
    if servers is None:
        servers = given.maybe("bootstrap-server")
    assert servers is not None
    return reach(servers, settings)


def reach(servers: str, settings: Mapping[str, str], *, controllers: bool = False) -> Cluster:
    """Return the cluster at these servers. If no broker answers, a warning is printed at once, not after a minute."""
    from pessoa.client.cluster_client import Cluster, parse_addresses

    check_names([host for host, _ in parse_addresses(servers)])
    return Cluster(servers, settings, controllers=controllers, on_silence=tell_of_silence)


def check_names(hosts: Sequence[str]) -> None:
    """Raise BadSettings if no host name of the addresses can be resolved, as the Java clients do."""
    from pessoa.client.client_errors import BadSettings

    wrong = []
    for host in hosts:
        # localhost, or an address in numbers, needs no name server.
        if host == "localhost" or host.replace(".", "").isdigit() or ":" in host:
            return
        import socket

        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            wrong.append(host)
        else:
            return
    for host in wrong:
        warn(f"WARN Couldn't resolve server {host} from bootstrap.servers: no name server knows it")
    raise BadSettings("No resolvable bootstrap urls given in bootstrap.servers")


def silence_listener() -> Callable[[KafkaError], None]:
    """Return a function for librdkafka's `error_cb`, which is called with every failed attempt. It prints once why
    no broker answers, and again if that is still or again so half a minute later."""
    from confluent_kafka import KafkaError

    # A broker that answers and refuses us is not silent. The whole reason is shown then: its parts explain each other.
    refusals = {KafkaError._AUTHENTICATION: "does not let us in", KafkaError._SSL: "cannot be reached through TLS"}
    sentence = ""
    told_s = float("-inf")

    def listen(error: KafkaError) -> None:
        nonlocal sentence, told_s
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            if attempt := _ATTEMPT.match(error.str()):
                address, reason = attempt["address"], attempt["reason"].rstrip(" :")
                refusal = refusals.get(error.code())
                if refusal is None:
                    sentence = _silence(f"{address}: {reason.rpartition(': ')[2]}")
                else:
                    sentence = f"WARN {address} {refusal}: {reason}. Trying again."
        elif sentence and time.monotonic() - told_s > _SILENCE_TOLD_AGAIN_S:
            told_s = time.monotonic()
            warn(sentence)

    return listen


def tell_of_silence(why: str) -> None:
    warn(_silence(why))


def _silence(why: str) -> str:
    return f"WARN No broker answers at {why}. Trying again; `pessoa up` starts a cluster on {DEFAULT_CLUSTER}."


def require_answer(servers: str, patience_s: float, settings: Mapping[str, str] | None = None) -> None:
    """Raise KafkaFailure if no broker answers within `patience_s`, sooner than Kafka's clients give up."""
    from pessoa.client.client_errors import KafkaFailure, TimedOut
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.topic_admin import list_topics

    try:
        with Cluster(servers, {**(settings or {}), "default.api.timeout.ms": str(int(1000 * patience_s))}) as cluster:
            list_topics(cluster)
    except TimedOut as silence:
        raise KafkaFailure("no broker answers there. `pessoa up` starts a cluster on localhost:9092.") from silence


def zookeeper_era(given: Given) -> str | None:
    """Return the cluster to use in place of --zookeeper, and print a warning; None without the option."""
    if not given.has("zookeeper"):
        return None
    server = default_cluster()
    warn(f"Warning: --zookeeper is deprecated and there is no ZooKeeper; using --bootstrap-server {server}.")
    return server
