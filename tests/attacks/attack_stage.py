"""The setting of every attack: a broker as a process of its own, a well-behaved client beside it, and measurements.

    with stage.attack(1, max_mib=16):     the peak of the broker's memory and the client's figures are reset
        …                                  the attack; it asserts the broker's responses
    ──▶ the broker runs, has logged no bug, has served the client, and its memory has not grown beyond the bound; a
        summary line has the growth, and the client's 99th percentile during the attack and before it

The listeners require TLS and a login (SECURED), only a login (LOGIN, and SHORT, whose sessions last two seconds), a
bearer token (BEARER; its keys are at a URL of `provider`), a certificate (MUTUAL) or nothing (OPEN); access control
lists apply to all. `admin` is a super user, `ana` owns the topics and groups, `mallory` has few rights, and a client
of OPEN is anonymous.

Memory is the peak of the resident set (VmHWM), so that memory which was freed again counts too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from pessoa.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.apache.broker import reserve_port
from tests.attacks.attack_wires import LOOPBACK, Login, TlsWire, sasl_wire, secured_wire
from tests.support.certificates import Authority
from tests.support.clients import until
from tests.support.crash_wire import Wire
from tests.support.logged_process import LoggedProcess, pessoa
from tests.support.sasl import authenticate, jaas, shake_hands
from tests.support.tls_settings import TlsFiles
from tests.support.tokens import AUDIENCE, ISSUER, IdentityProvider, Issuer

MIB = 1024 * 1024
ROOT = Path(__file__).parents[2]

ADMIN = Login("admin", "the administrator's planted secret")
ANA = Login("ana", "ana's planted secret")
MALLORY = Login("mallory", "mallory's planted secret")
NODE = Login("node", "the node's planted secret")
TOKEN_SECRET = "the planted secret of tokens"
PASSWORDS = (ADMIN.password, ANA.password, MALLORY.password, NODE.password, TOKEN_SECRET)

SECURED, LOGIN, SHORT, MUTUAL, OPEN, CONTROLLER = "SECURED", "LOGIN", "SHORT", "MUTUAL", "OPEN", "CONTROLLER"
BEARER = "BEARER"
SASL_LISTENERS = (SECURED, LOGIN, SHORT, CONTROLLER)
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
# An address that is limited to ten connections.
CAPPED = "127.0.0.9"
SESSION_MS = 2_000
# The least number of records that the client writes and reads before an attack, and again during it.
_MEASURED = 50

# Topics: HIDDEN is ana's, and mallory must not see or change it.
HIDDEN, MINE, BESIDE, COMPACTED, CANARY = "hidden-topic", "mallorys", "readable", "compacted", "canary"
# Resource types, pattern types, permission types and operations of Kafka's protocol.
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, ALLOW = 3, 3
READ, WRITE, DESCRIBE = 3, 4, 8


class Figures(NamedTuple):
    """Latencies of the well-behaved client."""

    records: int
    p99_ms: float
    longest_ms: float


class WellBehaved:
    def __init__(self, port: int, trust: Path, login: Login, topic: str) -> None:
        words = [str(port), str(trust), login.name, login.password, topic]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.well_behaved_client", *words],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def figures(self, at_least: int) -> Figures:
        """Return the figures since the last call, or since the start, when at least so many records were served."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{at_least}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the client that behaves was not served, and has ended"
        return Figures(**json.loads(line))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class AttackStage:
    """The broker and the well-behaved client: `with AttackStage(folder) as stage`."""

    def __init__(self, folder: Path) -> None:
        self.files = TlsFiles(folder, Authority("the authority of a test"))
        self.trust = self.files.trust
        self.ports = {name: reserve_port() for name in (*SASL_LISTENERS, BEARER, MUTUAL, OPEN)}
        self.issuer = Issuer()
        self.provider = IdentityProvider(self.issuer)
        self.metrics_port = reserve_port()
        self.logs = folder / "logs"
        config = self.files.properties("broker", self._settings(folder))
        self.process = LoggedProcess(pessoa("broker", "--config", config), folder / "broker.log", name="the broker")
        self.client: WellBehaved
        # The growth of memory in the last attack.
        self.grown_bytes = 0
        # The client's figures during the current attack.
        self._during: list[Figures] = []
        self._closing = ExitStack()

    def _settings(self, folder: Path) -> dict[str, str]:
        protocols = {SECURED: "SASL_SSL", MUTUAL: "SSL", OPEN: "PLAINTEXT"}
        users = {f"user_{one.name}": one.password for one in (ADMIN, ANA, MALLORY, NODE)}
        node = {"username": NODE.name, "password": NODE.password}
        settings = {
            **self.files.node(self.files.issue("broker-1")),
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self.ports[CONTROLLER]}",
            "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocols.get(name, 'SASL_PLAINTEXT')}" for name in self.ports
            ),
            "inter.broker.listener.name": LOGIN,
            "controller.listener.names": CONTROLLER,
            "sasl.enabled.mechanisms": MECHANISMS,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            f"listener.name.{SHORT.lower()}.plain.connections.max.reauth.ms": str(SESSION_MS),
            f"listener.name.{MUTUAL.lower()}.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN.name};User:{NODE.name}",
            "delegation.token.secret.key": TOKEN_SECRET,
            "max.connections.per.ip.overrides": f"{CAPPED}:10",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.dirs": str(folder / "data"),
            "pessoa.logs": "access,agent,referrer,audit,error,authorizer",
            "pessoa.logs.dir": str(self.logs),
            "pessoa.metrics.port": str(self.metrics_port),
        }
        prefix = f"listener.name.{BEARER.lower()}"
        settings |= {
            f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.provider.url("/jwks"),
            f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{prefix}.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
            "pessoa.sasl.oauthbearer.allowed.urls": self.provider.url("/jwks"),
        }
        for name in SASL_LISTENERS:
            prefix = f"listener.name.{name.lower()}"
            settings[f"{prefix}.plain.sasl.jaas.config"] = jaas("PLAIN", {**node, **users})
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = jaas(mechanism, {})
        return settings

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.provider.serving())
            stack.enter_context(self.process)
            self.process.wait_for("is ready")
            self._make_what_is_attacked()
            self.client = WellBehaved(self.ports[SECURED], self.trust, ANA, CANARY)
            stack.callback(self.client.close)
            # The first records are slow because caches are empty.
            self.client.figures(_MEASURED)
            self._closing = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _make_what_is_attacked(self) -> None:
        with self.as_user(ADMIN) as admin:
            compact = {COMPACTED: {"cleanup.policy": "compact"}}
            for name in (HIDDEN, MINE, BESIDE, COMPACTED, CANARY):
                self.create_topic(admin, name, compact.get(name, {}))
            allow(admin, ANA, (TOPIC, "*", READ), (TOPIC, "*", WRITE), (TRANSACTIONAL_ID, "anas", WRITE))
            allow(admin, ANA, (GROUP, "anas", READ))
            allow(admin, MALLORY, (TOPIC, MINE, READ), (TOPIC, MINE, WRITE), (TOPIC, COMPACTED, WRITE))
            allow(admin, MALLORY, (TOPIC, BESIDE, READ), (GROUP, "mallorys", READ))
        with self.plain(LOGIN) as stranger:
            # The key for the salts of unknown users is made once, which takes 16 MiB for a moment.
            shake_hands(stranger, "SCRAM-SHA-256")
            authenticate(stranger, b"n,,n=stranger,r=x")
        with self.as_user(ANA) as ana:
            for kind in (0, 1):
                until(partial(_coordinator_code, ana, kind, "anas"), lambda code: not code, "a coordinator")
            until(lambda: _may_be_described(ana, CANARY), bool, "the broker knows the topics and what is allowed")

    def create_topic(self, wire: Wire, name: str, configs: dict[str, str] | None = None) -> ErrorCode:
        from pessoa.wire.api.create_topics import CreatableTopicConfig

        topic = CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        answer = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 7)
        return ErrorCode.of(answer.topics[0].error_code)

    # Connections.

    def as_user(self, login: Login, listener: str = SECURED) -> Wire:
        if listener == SECURED:
            return secured_wire(self.ports[SECURED], self.trust, login)
        return sasl_wire(self.ports[listener], login)

    def shaken(self) -> Wire:
        """Return a TLS connection that has not logged in."""
        return TlsWire(self.ports[SECURED], self.trust)

    def plain(self, listener: str = OPEN) -> Wire:
        return Wire(self.ports[listener])

    # Figures.

    def serves(self, count: int) -> Figures:
        """Wait, during an attack, until the client was served so often; return its figures since the last call."""
        found = self.client.figures(count)
        self._during.append(found)
        return found

    @contextmanager
    def attack(
        self, number: int | str, request: pytest.FixtureRequest, *, max_mib: int, what: str = ""
    ) -> Iterator[None]:
        self.client.figures(0)
        self._during.clear()
        alone = self.client.figures(_MEASURED)
        self._reset_peak()
        before = self._memory("VmRSS")
        yield
        self.serves(_MEASURED)
        beside_ms = max(one.p99_ms for one in self._during)
        longest_ms = max(one.longest_ms for one in self._during)
        grown = self._memory("VmHWM") - before
        assert self.process.is_running, self.process.said[-5000:]
        said = self.process.said
        assert "Traceback" not in said, said[-5000:]
        assert " ERROR " not in said, said[-5000:]
        assert grown < max_mib * MIB, f"the broker took {grown / MIB:.1f} MiB more, and {max_mib} MiB are allowed"
        note = (
            f"attack {number}{what and f' ({what})'}: +{max(0, grown) / MIB:.1f} MiB (from {before / MIB:.0f}), "
            f"p99 {beside_ms:.1f} ms beside, {alone.p99_ms:.1f} ms alone; longest {longest_ms:.0f} ms"
        )
        request.node.user_properties.append(("summary", note))
        self.grown_bytes = grown

    def _reset_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _memory(self, field: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024


def _may_be_described(wire: Wire, name: str) -> bool:
    from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return bool(wire.ask(asked, MetadataResponse, 9).topics[0].error_code == ErrorCode.NONE)


def _coordinator_code(wire: Wire, kind: int, key: str) -> int:
    """Return the error code of FindCoordinator, which also creates the internal topic."""
    from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

    answer = wire.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), FindCoordinatorResponse, 4)
    return int(answer.coordinators[0].error_code)


def allow(admin: Wire, who: Login, *rights: tuple[int, str, int]) -> None:
    creations = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=LITERAL,
            principal=f"User:{who.name}",
            host="*",
            operation=operation,
            permission_type=ALLOW,
        )
        for kind, name, operation in rights
    ]
    answer = admin.ask(CreateAclsRequest(creations=creations), CreateAclsResponse, 3)
    assert [one.error_code for one in answer.results] == [ErrorCode.NONE] * len(rights)


def raw_answer(wire: Wire, request: Message, version: int) -> bytes:
    """Return the bytes of a response, to search them for a name."""
    wire.write(request, version)
    return wire.frame()
