"""Two producers with one transactional id, and a coordinator that crashes, waits, and whose appends fail, at any step.

The clients are simple and not always correct: each has one request in flight, retries at random, and uses the last
producer id and epoch that it got, also as a zombie. The log decides what is right. After every step

- its records are valid: only allowed transitions of the state, producer ids and epochs that never go back, and every
  outcome has the partitions that were added;
- no response contains anything that is not committed, and what it contains stays valid after a crash;
- a producer that got a response to InitProducerId is the only one: no older one adds partitions or ends a transaction
  after that, and no two clients ever have the same id and epoch;
- markers are requested only when their outcome is committed, and a transaction is complete only when each of its
  partitions has its marker since the last crash;
- a producer that got a response to EndTxn got the outcome, which includes the partitions that it had added.

When the faults are over, no transaction is left without an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pessoa.coordinator.transactions.marker_messages import WriteMarkers
from pessoa.coordinator.transactions.transaction import (
    HIGHEST_CLIENT_EPOCH,
    ProducerIdentity,
    State,
    TopicPartition,
    Transaction,
)
from pessoa.coordinator.transactions.transaction_encoding import from_value
from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnResponse
from pessoa.wire.api.end_txn import EndTxnResponse
from pessoa.wire.api.init_producer_id import InitProducerIdResponse
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message
from pessoa.wire.stored.record_framing import TRANSACTION_LOG, decode_coordinator_key, decode_coordinator_value
from pessoa.wire.stored.transaction_records import TransactionLogValue
from tests.unit.coordinator.transactions.driver import (
    ADD_VERSION,
    END_VERSION,
    INIT_VERSION,
    NAME,
    OLD_ADD_VERSION,
    OLD_END_VERSION,
    TIMEOUT_MS,
    Driver,
    Stored,
    add_request,
    end_request,
    init_request,
    marked,
)

PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
MAY_FOLLOW = {
    State.EMPTY: IDLE,
    State.ONGOING: (*IDLE, State.ONGOING),
    State.PREPARE_COMMIT: (State.ONGOING,),
    State.PREPARE_ABORT: (State.ONGOING, *IDLE),
    State.COMPLETE_COMMIT: (State.PREPARE_COMMIT,),
    State.COMPLETE_ABORT: (State.PREPARE_ABORT,),
}
CLIENTS = st.integers(0, 1)
# Faults are rarer than their absence, or little would ever be done.
RARELY = st.sampled_from([False, False, False, True])
PARTITIONS = st.integers(0, 2)


@dataclass
class Client:
    identity: ProducerIdentity | None = None
    # What it has been told is in its open transaction.
    added: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True)
class Asked:
    client: int
    kind: str
    identity: ProducerIdentity | None
    version: int
    partition: TopicPartition | None = None
    commits: bool = False
    # Of an end: what the client knew to be in the transaction.
    added: frozenset[TopicPartition] = frozenset()


@lru_cache(maxsize=10_000)
def read(stored: Stored) -> Transaction:
    key = decode_coordinator_key(TRANSACTION_LOG, stored.key)
    assert key is not None
    assert stored.value is not None, "nothing is old enough to expire"
    value = decode_coordinator_value(TRANSACTION_LOG, key, stored.value)
    assert isinstance(value, TransactionLogValue)
    return from_value(NAME, value)


class TransactionCoordinatorMachine(RuleBasedStateMachine):
    @initialize(transaction_version=st.sampled_from([0, 2]), near_the_end=st.booleans())
    def start(self, transaction_version: int, near_the_end: bool) -> None:
        self.driver = Driver(transaction_version)
        self.clients = [Client(), Client()]
        self.waiting: dict[int, Asked] = {}
        # The newest identity that a client was told to begin with.
        self.newest: ProducerIdentity | None = None
        # Per outcome, told by where its record stands, the partitions that have been marked since the last crash.
        self.marked: dict[int, set[TopicPartition]] = {}
        if near_the_end:
            self.driver.begin_surely()
            value = self.driver.last_value()
            value.producer_epoch = HIGHEST_CLIENT_EPOCH - 3
            stored = self.driver.log[-1]
            version = 1 if transaction_version else 0
            self.driver.log[-1] = stored._replace(value=version.to_bytes(2, "big") + value.encode(version))
            self.driver.crash()

    # ── clients ──

    def send(self, asked: Asked, request: Message) -> None:
        if any(other.client == asked.client for other in self.waiting.values()):
            return
        if asked.kind == "end":
            # With any answer, and without one, the transaction may have ended.
            self.clients[asked.client].added = frozenset()
        token = self.driver.send(request, asked.version)
        self.waiting[token] = asked
        self.hear()

    @rule(client=CLIENTS, goes_on=st.booleans())
    def begin(self, client: int, goes_on: bool) -> None:
        expected = self.clients[client].identity if goes_on else None
        self.send(Asked(client, "begin", expected, INIT_VERSION), init_request(expected))

    @precondition(lambda self: self.newest is not None)
    @rule(client=CLIENTS, partition=PARTITIONS)
    def add(self, client: int, partition: int) -> None:
        identity = self.clients[client].identity
        if identity is not None:
            added = ("t", partition)
            version = ADD_VERSION if self.driver.transaction_version else OLD_ADD_VERSION
            self.send(Asked(client, "add", identity, version, added), add_request(identity, (added,)))

    @precondition(lambda self: self.newest is not None)
    @rule(client=CLIENTS, commits=st.booleans(), is_late=RARELY)
    def end(self, client: int, commits: bool, is_late: bool) -> None:
        identity = self.clients[client].identity
        if identity is not None:
            added = self.clients[client].added if not is_late else frozenset()
            if is_late:
                identity = ProducerIdentity(identity.id, max(identity.epoch - 1, 0))
            version = END_VERSION if self.driver.transaction_version else OLD_END_VERSION
            self.send(
                Asked(client, "end", identity, version, commits=commits, added=added), end_request(identity, commits)
            )

    # ── the world ──

    @rule(holds_back=RARELY)
    def hold_back_commits(self, holds_back: bool) -> None:
        self.driver.holds_back = holds_back
        if not holds_back:
            self.driver.commit()
            self.hear()

    @precondition(lambda self: self.driver.committed < len(self.driver.log))
    @rule()
    def commit_one(self) -> None:
        self.driver.commit(self.driver.committed + 1)
        self.hear()

    @precondition(lambda self: self.driver.committed < len(self.driver.log))
    @rule()
    def time_out_commits(self) -> None:
        self.driver.time_out_commits()
        self.hear()

    @rule(refuses=RARELY)
    def refuse_appends(self, refuses: bool) -> None:
        self.driver.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS if refuses else None

    @precondition(lambda self: self.is_open())
    @rule()
    def let_time_pass(self) -> None:
        self.driver.advance_ms(TIMEOUT_MS + 1)
        self.hear()

    @precondition(lambda self: self.driver.markers)
    @rule(count=st.integers(0, 3))
    def write_some_markers(self, count: int) -> None:
        wanted = self.driver.markers[0]
        index = self.outcome_of(wanted)
        done = self.marked.setdefault(index, set())
        fresh = tuple(partition for partition in wanted.partitions if partition not in done)[:count]
        done.update(fresh)
        size = len(self.driver.log)
        token = self.driver.send(marked(wanted, fresh))
        assert len(self.driver.log) == size or done == set(wanted.partitions), "complete without all markers"
        if done >= set(wanted.partitions) and not isinstance(self.driver.replies.get(token), Refusal):
            self.driver.markers.pop(0)
        self.hear()

    @rule(really=RARELY, loses_uncommitted=st.booleans())
    def crash(self, really: bool, loses_uncommitted: bool) -> None:
        if not really:
            return
        self.driver.crash(loses_uncommitted)
        self.waiting.clear()
        self.marked.clear()

    def is_open(self) -> bool:
        transaction = self.driver.shard.transaction(NAME)
        return transaction is not None and transaction.state is State.ONGOING

    # ── what clients are told ──

    def hear(self) -> None:
        for token in [token for token in self.waiting if token in self.driver.replies]:
            asked, reply = self.waiting.pop(token), self.driver.replies[token]
            client = self.clients[asked.client]
            if isinstance(reply, InitProducerIdResponse):
                self.hear_begun(asked, client, ProducerIdentity(reply.producer_id, reply.producer_epoch))
            elif isinstance(reply, AddPartitionsToTxnResponse):
                self.check_not_a_zombie(asked)
                assert asked.partition is not None
                client.added |= {asked.partition}
                added_to = [t for t in self.story(committed=True) if t.producer == asked.identity and t.partitions]
                assert client.added <= added_to[-1].partitions
            elif isinstance(reply, EndTxnResponse):
                self.hear_ended(asked, client, ProducerIdentity(reply.producer_id, reply.producer_epoch))

    def hear_begun(self, asked: Asked, client: Client, identity: ProducerIdentity) -> None:
        assert identity.epoch <= HIGHEST_CLIENT_EPOCH
        if asked.identity is None:
            assert self.newest is None or identity > self.newest
            for other in self.clients:
                assert other.identity is None or identity > other.identity
        self.newest = identity if self.newest is None else max(self.newest, identity)
        client.identity, client.added = identity, frozenset()

    def hear_ended(self, asked: Asked, client: Client, identity: ProducerIdentity) -> None:
        self.check_not_a_zombie(asked)
        assert asked.identity is not None
        has_own_epoch = asked.version == END_VERSION
        ended_as = ProducerIdentity(asked.identity.id, asked.identity.epoch + has_own_epoch)
        outcomes = [
            transaction
            for transaction in self.story(committed=True)
            if transaction.state in PREPARED and transaction.producer == ended_as
        ]
        if has_own_epoch:
            assert len(outcomes) == 1, "two outcomes of one transaction"
        assert outcomes[-1].state is (State.PREPARE_COMMIT if asked.commits else State.PREPARE_ABORT)
        assert asked.added <= outcomes[-1].partitions
        if has_own_epoch:
            assert identity.epoch <= HIGHEST_CLIENT_EPOCH
            client.identity = identity
        client.added = frozenset()

    def check_not_a_zombie(self, asked: Asked) -> None:
        assert asked.identity is not None
        assert self.newest is not None
        assert asked.identity >= self.newest

    def teardown(self) -> None:
        """End all faults, and check that every transaction with an outcome is completed."""
        self.driver.refuses_with = None
        self.driver.holds_back = False
        self.driver.commit()
        while self.driver.markers:
            self.driver.write_markers()
        assert self.driver.shard.transaction(NAME) is None or self.driver.transaction().state not in PREPARED

    # ── what always holds ──

    def story(self, committed: bool = False) -> list[Transaction]:
        log = self.driver.log[: self.driver.committed] if committed else self.driver.log
        return [read(stored) for stored in log]

    def outcome_of(self, wanted: WriteMarkers) -> int:
        """Return the position in the log of the outcome that these markers are for: the last one."""
        told = self.story()
        return max(index for index, transaction in enumerate(told) if transaction.state in PREPARED)

    @invariant()
    def the_log_tells_one_legal_story(self) -> None:
        told = self.story()
        for before, after in pairwise(told):
            assert before.state in MAY_FOLLOW[after.state], (before, after)
            assert after.producer >= before.producer, (before, after)
            if after.state in PREPARED:
                assert after.partitions == before.partitions
            if after.state is State.ONGOING:
                assert after.partitions > before.partitions

    @invariant()
    def markers_are_asked_for_only_when_their_outcome_is_committed(self) -> None:
        for wanted in self.driver.markers:
            index = self.outcome_of(wanted)
            outcome = self.story()[index]
            assert index < self.driver.committed
            assert wanted.producer == outcome.producer
            assert wanted.commits == (outcome.state is State.PREPARE_COMMIT)
            assert set(wanted.partitions) == outcome.partitions

    @invariant()
    def the_shard_knows_what_the_log_says(self) -> None:
        told = self.story()
        known = self.driver.shard.transaction(NAME)
        if not told:
            assert known is None
            return
        assert known is not None
        last = told[-1]
        assert (known.producer, known.state, known.partitions) == (last.producer, last.state, last.partitions)

    @invariant()
    def no_two_clients_have_the_same_identity(self) -> None:
        first, second = (client.identity for client in self.clients)
        assert first is None or first != second


TransactionCoordinatorMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestTransactionCoordinator = TransactionCoordinatorMachine.TestCase
