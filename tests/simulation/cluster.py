"""One run of the simulation: a cluster and its clients from a plan, faults, healing, and the final checks.

    start ─▶ create topics ─▶ clients and nemesis at work ─▶ heal ─▶ all partitions led and in sync, in bounded time
          ─▶ everything that producers have begun is acknowledged ─▶ read all of it ─▶ compare

`run(plan)` returns a `Report`, or raises a `Violation` that names the invariant; running the seed again shows the rest.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from pessoa.base.ids import Uuid
from pessoa.raft.memory import Memory
from pessoa.raft.messages import ReplicaKey
from pessoa.raft.voters import Address, Voter, VoterSet
from tests.simulation.admin import Admin
from tests.simulation.consumers import ConsumerMember
from tests.simulation.copier import Copier, MemberCopier
from tests.simulation.groups import GroupMember
from tests.simulation.history import History, TopicPartition, Violation
from tests.simulation.loop import Process, TooManySteps, current_process, new_loop
from tests.simulation.mover import Mover
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import Fabric
from tests.simulation.node import CONTROLLER_PORT, Node, comes_from_disk, dynamic_node_settings, node_settings
from tests.simulation.producers import IdempotentProducer, Producer, TransactionalProducer
from tests.simulation.quorum_operator import Operator
from tests.simulation.readers import READ_COMMITTED, READ_UNCOMMITTED, Reader
from tests.simulation.secured import Security, secured_settings
from tests.simulation.shares import Shares
from tests.simulation.streams_tasks import Streams
from tests.simulation.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from pessoa.log.partition_log import PartitionLog
    from pessoa.replication.partition import Partition
    from tests.simulation.client import Client
    from tests.simulation.plan import Plan

TOPIC = "t"
# The topic that copiers write to.
COPIES = "copies"
# The topics that a plan with compaction compacts, with their segment.bytes: room for the largest batch, and a few more.
_COMPACTED = {TOPIC: 400, "__consumer_offsets": 1_500, "__transaction_state": 800}
_KEYS = 3
_BRISK_S = 0.3
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
# More steps than any run needs that is not in an endless loop.
_MAX_STEPS = 400_000
# After healing: all partitions are led and all replicas in sync, and all that clients have begun is completed.
_WHOLE_WITHIN_S = 60.0
_DONE_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    fingerprint: int
    steps: int
    seconds: float
    acknowledged: int
    transactions: int
    # Records whose acknowledgement by a member of the share group was confirmed.
    shared: int = 0
    # How often a member of the streams group began to run a task.
    tasks_given: int = 0


class Cluster:
    def __init__(self, plan: Plan, trace: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.rng = Random(plan.seed ^ 0x5EED)
        self.loop = new_loop()
        self.loop.trace = None if trace is None else lambda text: trace(f"{self.loop.now_s:10.4f}  {text}")
        self.fabric = Fabric(self.loop, Random(self.rng.random()))
        self.history = History([TOPIC] if plan.is_compacted else [], drops_tombstones=plan.drops_tombstones)
        self.watch = Watch(lambda: self.loop.now_s, _COMPACTED if plan.is_compacted else (), plan.tombstones_stay_s)
        self.nodes = self._make_nodes()
        self.brokers = [node for node in self.nodes if node.is_broker]
        self.controllers = [node for node in self.nodes if node.is_controller]
        self.directories: dict[int, Uuid] = {}
        self._security = Security(self, TOPIC, COPIES) if plan.is_secured else None
        self.partitions = [TopicPartition(TOPIC, index) for index in range(plan.partitions)]
        self._shares = Shares(self, self.partitions) if plan.share_members else None
        self._streams = Streams(self, self.partitions) if plan.streams_members else None
        if plan.is_dynamic:
            self._format()
        self.clients: list[Client] = []
        self.client_hosts: list[str] = []
        self._failure: asyncio.Future[None] = self.loop.create_future()
        self._running: list[asyncio.Task[Any]] = []
        self._nodes_of: dict[int, Node] = {}
        self.loop.after_step = self._after_step
        self.loop.worker_delay = self._worker_delay
        for node in self.nodes:
            node.on_start = partial(self._note_process, node)
            node.on_bug = partial(self._report_bug, node)

    def _make_nodes(self) -> list[Node]:
        plan = self.plan
        first = 101 if plan.is_split else 1
        voters = list(range(first, first + plan.voters))
        roles = dict.fromkeys(range(1, plan.nodes + 1), "broker")
        # With a dynamic quorum every node could become a voter.
        controllers = voters if plan.is_split or not plan.is_dynamic else list(roles)
        roles |= dict.fromkeys(controllers, "controller" if plan.is_split else "broker,controller")
        settings = dynamic_node_settings if plan.is_dynamic else node_settings
        named = controllers if plan.is_dynamic else voters
        return [
            Node(
                self.loop,
                self.fabric,
                node_id,
                settings(node_id, role, named, plan.settings() | self._secured(node_id, role)),
                self.rng.getrandbits(32),
                CLUSTER_ID,
            )
            for node_id, role in roles.items()
        ]

    def _secured(self, node_id: int, role: str) -> dict[str, str]:
        return secured_settings(self.plan, node_id, role) if self.plan.is_secured else {}

    def _format(self) -> None:
        """Format all nodes: the first voters with the voter set, the others as observers that may join."""
        self.directories = {node.id: Uuid.of(1_000_000 + node.id) for node in self.nodes}
        first = [node for node in self.nodes if node.is_controller][: self.plan.voters]
        voters = VoterSet(
            Voter(ReplicaKey(node.id, self.directories[node.id]), {"CONTROLLER": Address(node.host, CONTROLLER_PORT)})
            for node in first
        )
        for node in self.nodes:
            node.format(voters if node in first else None, (self.directories[node.id], Uuid.of(2_000_000 + node.id)))

    @property
    def cluster_id(self) -> str:
        return CLUSTER_ID

    @property
    def plain_topics(self) -> list[str]:
        """Return the topics of clients that are not compacted and are replicated."""
        return [TOPIC, COPIES] if self.plan.copiers else [TOPIC]

    def kinds_of(self, node: Node) -> list[list[Node]]:
        """Return the groups of nodes that this node belongs to, of each of which a majority must stay up."""
        return [kind for kind in (self.brokers, self.controllers) if node in kind]

    def note(self, text: str) -> None:
        if self.loop.trace is not None:
            self.loop.trace(text)

    # Running.

    def run(self) -> Report:
        try:
            self.loop.run_until_complete(self._until_failure(), max_steps=_MAX_STEPS)
        except TooManySteps as circles:
            raise Violation(str(circles)) from circles
        finally:
            logging.disable(logging.CRITICAL)
            self.loop.bury()
        return Report(
            self.plan.seed,
            self.loop.fingerprint,
            self.loop.steps,
            self.loop.now_s,
            self.history.acknowledged,
            len(self.history.transactions),
            0 if self._shares is None else self._shares.ledger.done_count,
            0 if self._streams is None else self._streams.ledger.given,
        )

    async def _until_failure(self) -> None:
        story = self.loop.create_task(self._story())
        await asyncio.wait([story, self._failure], return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            self._failure.result()
        story.result()
        self._check_bugs()

    async def _story(self) -> None:
        for node in self.nodes:
            node.clock.skew_ms = self.rng.randint(-50, 50)
            node.start()
        admin = self.client(Admin, "admin")
        await self._within(_WHOLE_WITHIN_S, self.run_as(admin, self._create_topics(admin)), "the topic was not created")
        if self.plan.copiers:
            await self._within(
                _WHOLE_WITHIN_S,
                self.run_as(admin, admin.create_topic(COPIES, self.plan.partitions, self.plan.replication_factor)),
                "the topic of the copies was not created",
            )
        self._start_clients(admin)
        nemesis = Nemesis(self, Random(self.rng.random()))
        await nemesis.run(self.plan.seconds)
        self.note("healing")
        await nemesis.heal()
        await self.wait_until_whole()
        self.note("whole again")
        for client in self.clients:
            client.is_stopping = True
        await self._within(_DONE_WITHIN_S, asyncio.gather(*self._running), "the clients did not come to an end")
        await self._verdict()

    async def _create_topics(self, admin: Admin) -> None:
        plan = self.plan
        if not plan.is_compacted:
            await admin.create_topic(TOPIC, plan.partitions, plan.replication_factor)
            return
        for name, segment_bytes in _COMPACTED.items():
            partitions = plan.partitions if name == TOPIC else 1
            configs = {"cleanup.policy": "compact", "internal.segment.bytes": str(segment_bytes)}
            await admin.create_topic(name, partitions, plan.replication_factor, configs)

    def _start_clients(self, admin: Admin) -> None:
        plan = self.plan
        for number in range(plan.idempotent_producers):
            producer = self.client(IdempotentProducer, f"p{number}")
            producer.partitions, producer.in_flight = self.partitions, plan.in_flight
            self._give_keys(producer)
            self._run_client(producer)
        for number in range(plan.transactional_producers):
            transactional = self.client(TransactionalProducer, f"x{number}")
            transactional.partitions = self.partitions
            transactional.transactional_id = "tx" if plan.has_zombies else f"tx{number}"
            transactional.adds_by_producing = plan.adds_by_producing
            self._give_keys(transactional)
            self._run_client(transactional)
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            reader = self.client(Reader, f"r{isolation}")
            reader.partitions, reader.isolation = self.partitions, isolation
            self._run_client(reader)
        for number in range(plan.group_members):
            member = self.client(ConsumerMember if plan.has_consumers else GroupMember, f"g{number}")
            member.topic, member.partition_count = TOPIC, plan.partitions
            self._run_client(member)
        if plan.admin:
            admin.partitions, admin.broker_ids = self.partitions, [node.id for node in self.brokers]
            self._run_client(admin)
        if plan.has_directories:
            mover: Mover = self.client(Mover, "mover")
            internal = [TopicPartition(name, 0) for name in ("__consumer_offsets", "__transaction_state")]
            mover.partitions, mover.hosts = [*self.partitions, *internal], [node.host for node in self.brokers]
            mover.directories = plan.directories
            self._run_client(mover)
        for number in range(plan.copiers):
            name = f"c{number}"
            self._run_client(self._member_copier(name) if plan.are_copiers_members else self._copier(name))
        if plan.is_dynamic:
            operator: Operator = self.client(Operator, "operator")
            operator.controllers = {node.id: self.directories[node.id] for node in self.controllers}
            self._run_client(operator)
        for client in self._security.start() if self._security is not None else ():
            self._run_client(client)
        for client in self._shares.start() if self._shares is not None else ():
            self._run_client(client)
        for client in self._streams.start() if self._streams is not None else ():
            self._run_client(client)

    def order(self, what: str) -> None:
        """Give the warden or a client of a secured cluster an order: "rights", "password" or "token"."""
        if self._security is not None:
            self._security.order(what)

    def _give_keys(self, producer: Producer) -> None:
        """Give a producer to a compacted topic a few keys, fewer than it writes records."""
        if self.plan.is_compacted:
            producer.keys, producer.pause_s = _KEYS, _BRISK_S

    def _copier(self, name: str) -> Copier:
        copier: Copier = self.client(Copier, name)
        copier.partitions, copier.target = self.partitions, COPIES
        copier.transactional_id = "copier"
        copier.adds_by_producing = self.plan.copier_adds_by_producing
        return copier

    def _member_copier(self, name: str) -> MemberCopier:
        copier: MemberCopier = self.client(MemberCopier, name)
        copier.topic, copier.partition_count, copier.target = TOPIC, self.plan.partitions, COPIES
        copier.transactional_id = name
        copier.adds_by_producing = self.plan.copier_adds_by_producing
        return copier

    def client(self, kind: type[Any], name: str, rng: Random | None = None) -> Any:
        """Return a new client, which draws from `rng` or, by default, from a generator of the cluster's."""
        process = self.loop.new_process(name)
        client = kind(
            name,
            self.fabric,
            process,
            [node.host for node in self.brokers],
            self.history,
            rng or Random(self.rng.random()),
        )
        if self._security is not None:
            self._security.admit(client)
        self.clients.append(client)
        self.client_hosts.append(name)
        return client

    def _run_client(self, client: Client) -> None:
        self._running.append(self.run_client(client))

    def run_client(self, client: Client) -> asyncio.Task[None]:
        return self.run_as(client, client.run())

    def run_as(self, client: Client, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.spawn(client.process, work, client.name)
        task.add_done_callback(self._client_done, context=_NO_PROCESS.context)
        return task

    def _client_done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fail(_first(task.exception()))

    async def _within(self, seconds: float, work: Any, complaint: str) -> None:
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            raise Violation(f"liveness: {complaint} within {seconds} s; {self._state()}") from None

    # Checks while it runs.

    def _note_process(self, node: Node, process: Process) -> None:
        self._nodes_of[process.number] = node
        assert node.broker is not None

    def _report_bug(self, node: Node, error: BaseException) -> None:
        violation = Violation(f"{node.host} made a mistake: {error!r}")
        violation.__cause__ = error
        self._fail(violation)

    def _after_step(self, process: Process) -> None:
        node = self._nodes_of.get(process.number)
        if node is not None:
            try:
                self.watch.look(node)
            except Violation as violation:
                self._fail(violation)

    def _fail(self, error: BaseException | None) -> None:
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _worker_delay(self) -> float:
        process = current_process()
        node = self._nodes_of.get(process.number) if process is not None else None
        return self.fabric.rng.random() * (node.slowness_s if node is not None else 0.0)

    def _check_bugs(self) -> None:
        for problem in self.loop.problems:
            error = problem.get("exception")
            if comes_from_disk(error) and any(fault.startswith("disk") for fault in self.plan.faults):
                continue
            raise Violation(f"no process caught {error!r}: {problem.get('message')}") from error

    def quorum_leader(self) -> Node | None:
        """Return the node that is leader of the quorum by its own state, in the newest epoch."""
        for node in self.controllers:
            quorum = node.quorum
            if quorum is None or not node.is_up:
                continue
            if quorum.leader_id == node.id and quorum.epoch == self.watch.quorum_epoch:
                return node
        return None

    def is_whole(self) -> bool:
        """Return whether all nodes are up and unfenced, all partitions led with all replicas in sync, and all voters
        vote."""
        for node in self.controllers:
            if not node.is_up or node.quorum is None or node.quorum.raft.memory is Memory.DAMAGED:
                return False
        for node in self.brokers:
            services = getattr(node.broker, "services", None)
            if not node.is_up or services is None:
                return False
            image = services.image
            for topic in image.topics.by_id.values():
                for index, wanted in topic.partitions.items():
                    if wanted.leader < 0 or sorted(wanted.isr) != sorted(wanted.replicas):
                        return False
                    if node.id in wanted.replicas:
                        replica = services.replicas.ensure_by_id(topic.id, index)
                        if replica is None or replica.is_leader != (wanted.leader == node.id):
                            return False
            if len([one for one in image.cluster.brokers.values() if not one.fenced]) != len(self.brokers):
                return False
        return True

    async def wait_until_whole(self) -> None:
        end_s = self.loop.now_s + _WHOLE_WITHIN_S
        while not self.is_whole():
            self._check_bugs()
            if self.loop.now_s > end_s:
                raise Violation(f"liveness: the cluster was not whole within {_WHOLE_WITHIN_S} s; {self._state()}")
            await asyncio.sleep(_LOOK_EVERY_S)

    def _state(self) -> str:
        lines = []
        for node in self.nodes:
            services = getattr(node.broker, "services", None)
            if services is None:
                lines.append(f"{node!r}: {node.quorum!r}")
                continue
            lines.append(f"{node!r}: {services.quorum!r} {services.image!r}")
            lines += [f"    {replica!r}" for replica in services.replicas.all()]
        return "\n".join(["the nodes are", *lines])

    # Checks at the end.

    async def _verdict(self) -> None:
        uncommitted = await self.read(READ_UNCOMMITTED)
        await self._until_no_transaction_hangs()
        await self._until_no_move_hangs()
        committed = await self.read(READ_COMMITTED)
        self.history.check_complete(uncommitted, committed)
        if self.plan.copiers:
            copier = self._copier("last")
            offsets: dict[TopicPartition, int] = {}

            async def ask() -> None:
                offsets.update(await copier.committed_offsets())

            await self._within(_DONE_WITHIN_S, self.run_as(copier, ask()), "no broker says what the copiers committed")
            self.history.check_copies(committed, offsets)
        if self._shares is not None:
            await self._shares.finish()
        if self._streams is not None:
            await self._streams.finish()
        self._compare_replicas()

    async def read(self, isolation: int) -> dict[TopicPartition, dict[int, bytes]]:
        reader: Reader = self.client(Reader, f"final{isolation}")
        reader.isolation = isolation
        found: dict[TopicPartition, dict[int, bytes]] = {}

        async def read() -> None:
            for partition in self.partitions:
                found[partition] = await reader.read_all(partition)
                if self.plan.copiers:
                    copies = TopicPartition(COPIES, partition.number)
                    found[copies] = await reader.read_all(copies)

        await self._within(_DONE_WITHIN_S, self.run_as(reader, read()), "not everything could be read")
        return found

    async def _until_no_transaction_hangs(self) -> None:
        end_s = self.loop.now_s + _DONE_WITHIN_S
        while any(one.log.last_stable_offset != one.log.high_watermark for _, one in self.led()):
            if self.loop.now_s > end_s:
                raise Violation(f"a transaction hangs; {self._state()}")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _until_no_move_hangs(self) -> None:
        """Wait until every future replica has replaced the current one, and check that no log is in two directories."""
        end_s = self.loop.now_s + _DONE_WITHIN_S
        directories = [one for node in self.brokers if node.broker is not None for one in node.broker.directories]
        while any(one.futures for one in directories):
            if self.loop.now_s > end_s:
                raise Violation(f"a move hangs: {[one.futures for one in directories]}; {self._state()}")
            await asyncio.sleep(_LOOK_EVERY_S)
        for node in self.brokers:
            assert node.broker is not None
            kept = [key for one in node.broker.directories for key in one.partitions]
            if len(set(kept)) != len(kept):
                raise Violation(f"{node.host} has a log twice: {sorted(kept)}")

    def led(self) -> Iterator[tuple[Node, Partition]]:
        """Yield the partitions that each broker leads by its own state."""
        for node in self.brokers:
            services = getattr(node.broker, "services", None)
            for replica in services.replicas.all() if services is not None else ():
                if replica.is_leader:
                    yield node, replica

    def _compare_replicas(self) -> None:
        """Check that all replicas have the same bytes below the high watermark; replicas of compacted topics may lack
        what compaction may remove."""
        contents: dict[tuple[str, int], tuple[Node, dict[int, bytes]]] = {}
        for node in self.brokers:
            assert node.broker is not None
            replicas = node.broker.services.replicas.all()
            self.watch.look_at_compacted(node, replicas)
            for replica in replicas:
                if self.plan.is_compacted and replica.topic in _COMPACTED:
                    continue
                batches = _committed_batches(replica.log)
                first, known = contents.setdefault((replica.topic, replica.index), (node, batches))
                for offset in batches.keys() & known.keys():
                    if batches[offset] != known[offset]:
                        raise Violation(
                            f"{replica.topic}-{replica.index}: {node.host} and {first.host} have different bytes "
                            f"at {offset}"
                        )


def _committed_batches(log: PartitionLog) -> dict[int, bytes]:
    return {
        batch.base_offset: bytes(batch.view)
        for segment in log.segments
        for _, batch in segment.batches()
        if batch.last_offset < log.high_watermark
    }


def _first(error: BaseException | None) -> BaseException | None:
    """Return the first error of an exception group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _NoProcess:
    """A context that belongs to no process, created before the first process."""

    def __init__(self) -> None:
        from contextvars import Context

        self.context = Context()


_NO_PROCESS = _NoProcess()


def run(plan: Plan, trace: Callable[[str], None] | None = None) -> Report:
    """Run a plan. Deterministic: the same plan gives the same report."""
    was_enabled = gc.isenabled()
    gc.disable()
    level = logging.root.manager.disable
    if trace is None:
        logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        # A coroutine of a process that was killed before the coroutine began was never awaited.
        warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
        try:
            return Cluster(plan, trace).run()
        finally:
            logging.disable(level)
            gc.collect()
            # The remaining objects are modules and codecs, which stay; later collections need not visit them.
            gc.freeze()
            if was_enabled:
                gc.enable()
