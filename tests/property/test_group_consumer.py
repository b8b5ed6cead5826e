"""Consumer groups under random events: members that join, lag, lose responses, change subscriptions, crash; topics that
get partitions, are deleted and created again; failover of the coordinator.

Every member is a correct client: it uses a partition from the response that assigns it until the response that revokes
it, and stops using all partitions when it is fenced. What must hold after every step:

- no partition is used by two live members;
- a new coordinator that replays the log, compacted or not, has the same state as the old one.

And after the last event, every partition of every subscribed topic is used by a member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random

import pytest
from hypothesis import settings

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.consumer_group import ConsumerState
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from pessoa.wire.errors import ErrorCode, Refusal
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.consumer_client import GROUP, Member, listed
from tests.unit.coordinator.images import image

NAMES = tuple("abcd")
SUBSCRIPTIONS = (("orders",), ("payments",), ("orders", "payments"), ())
SESSION_MS = 45_000


class Client(Member):
    """A member that uses `owned` and was assigned `told`: it revokes late, and uses new partitions only after that."""

    heard_ms = 0
    is_in = False
    # An answer was lost: it says all next time, as clients do, to hear all again.
    has_lost_track = False
    told: Mapping[Uuid, frozenset[int]]

    def try_join(self) -> None:
        self.fenced()
        self.say(True, {**self.everything(), "topic_partitions": [], "member_epoch": 0})

    def everything(self) -> dict[str, object]:
        names = list(self.topics or ())
        return {"rebalance_timeout_ms": self.rebalance_ms, "subscribed_topic_names": names}

    def report(self, reports: bool = True, hears: bool = True) -> None:
        changes = self.everything() if self.has_lost_track else {}
        if reports or self.has_lost_track:
            changes["topic_partitions"] = listed(self.owned)
        self.say(hears, changes)

    def say(self, hears: bool, changes: Mapping[str, object]) -> None:
        reply = self.bench.replies[self.bench.send(self.request(**changes), 1)]
        if isinstance(reply, Refusal):
            assert reply.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH), reply
            self.fenced()
            return
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        self.heard_ms = self.bench.now_ms
        self.is_in = True
        self.has_lost_track = not hears
        if hears:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.told = {each.topic_id: frozenset(each.partitions) for each in reply.assignment.topic_partitions}
            if not self.must_give_up:
                self.owned = dict(self.told)

    @property
    def must_give_up(self) -> bool:
        return any(indexes - self.told.get(topic_id, frozenset()) for topic_id, indexes in self.owned.items())

    def give_up(self) -> None:
        """Stop using revoked partitions; new ones are used after the next response."""
        self.owned = {
            topic_id: kept
            for topic_id, indexes in self.owned.items()
            if (kept := indexes & self.told.get(topic_id, frozenset()))
        }

    def fenced(self) -> None:
        self.owned, self.told, self.epoch, self.is_in, self.has_lost_track = {}, {}, 0, False, False

    def places(self) -> Iterator[tuple[Uuid, int]]:
        return ((topic_id, index) for topic_id, indexes in self.owned.items() for index in indexes)


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bench = Bench(metadata=image(orders=3, payments=2))
        self.clients: dict[str, Client] = {}
        self.sizes = {"orders": 3, "payments": 2}
        self.incarnation = 0
        self.steps: dict[Callable[[], None], int] = {
            self.join: 4,
            self.beat: 30,
            self.resubscribe: 2,
            self.leave: 1,
            self.crash: 1,
            self.change_topic: 1,
            self.pass_time: 12,
            self.move_the_coordinator: 1,
        }

    def run(self, count: int) -> None:
        for number, step in enumerate(self.random.choices(list(self.steps), list(self.steps.values()), k=count)):
            step()
            self.check_use()
            if number % 10 == 9:
                self.check_reload()
        self.calm_down()

    def some_client(self) -> Client | None:
        return self.random.choice(list(self.clients.values())) if self.clients else None

    # ── what may happen ──

    def join(self) -> None:
        name = self.random.choice(NAMES)
        topics = self.random.choice(SUBSCRIPTIONS)
        client = self.clients.get(name)
        if client is None:
            assignor = self.random.choice((None, None, "range"))
            client = self.clients[name] = Client(self.bench, name, *topics, assignor=assignor)
        client.topics = topics
        client.try_join()

    def beat(self) -> None:
        client = self.some_client()
        if client is None:
            return
        if not client.is_in:
            client.try_join()
            return
        if client.must_give_up and self.random.random() < 0.5:
            client.give_up()
        client.report(reports=self.random.random() < 0.7, hears=self.random.random() < 0.9)

    def resubscribe(self) -> None:
        client = self.some_client()
        if client is not None and client.is_in:
            client.topics = self.random.choice(SUBSCRIPTIONS)
            client.say(True, {**client.everything(), "topic_partitions": listed(client.owned)})

    def leave(self) -> None:
        client = self.some_client()
        if client is not None:
            del self.clients[client.id]
            if client.is_in:
                self.bench.send(client.request(member_epoch=-1), 1)

    def crash(self) -> None:
        client = self.some_client()
        if client is not None:
            del self.clients[client.id]

    def change_topic(self) -> None:
        topic = self.random.choice(("orders", "payments"))
        what = self.random.choice(("grow", "recreate", "delete"))
        if what == "delete":
            self.sizes.pop(topic, None)
        elif what == "recreate":
            self.incarnation += 1
            self.sizes[topic] = 2
        else:
            self.sizes[topic] = min(self.sizes.get(topic, 0) + 1, 5)
        self.bench.publish(image(self.incarnation, **self.sizes))

    def pass_time(self) -> None:
        """Advance the clock. Live members send heartbeats before their session expires, and revoke partitions in
        time."""
        self.bench.pass_time(self.random.choice((500, 1_000, 4_000)))
        for client in self.clients.values():
            if client.is_in and self.bench.now_ms - client.heard_ms > SESSION_MS // 2:
                client.give_up()
                client.report()

    def move_the_coordinator(self) -> None:
        self.bench.reload()

    # ── what must hold ──

    def check_use(self) -> None:
        users: dict[tuple[Uuid, int], str] = {}
        for client in self.clients.values():
            for place in client.places():
                other = users.setdefault(place, client.id)
                assert other == client.id, f"{place} is used by {other} and {client.id}"

    def check_reload(self) -> None:
        """Check a coordinator that replays the whole log, and one that replays a log that was compacted up to a random
        offset."""
        before = self.bench.shard.registry.groups.get(GROUP)
        clean_end = self.random.randint(0, self.bench.end_offset)
        for shard in (
            self.bench.replayed(),
            self.bench.replayed_compacted(clean_end, keeps_tombstones=True),
            self.bench.replayed_compacted(clean_end, keeps_tombstones=False),
        ):
            after = shard.registry.groups.get(GROUP)
            assert (before is None) == (after is None)
            for name in vars(before) if before is not None else ():
                if not name.startswith("refresh"):
                    assert getattr(before, name) == getattr(after, name), name

    def calm_down(self) -> None:
        """Send only heartbeats until all partitions are used."""
        for _ in range(2 * SESSION_MS // 4_000):
            self.bench.pass_time(4_000)
            for client in self.clients.values():
                if client.is_in:
                    client.give_up()
                    client.report()
                else:
                    client.try_join()
                self.check_use()
        group = self.bench.shard.registry.groups.get(GROUP)
        if group is None or not self.clients:
            return
        assert group.state is ConsumerState.STABLE, group
        subscribed = {topic for client in self.clients.values() for topic in client.topics or ()}
        assert {place for client in self.clients.values() for place in client.places()} == {
            (topic.id, index)
            for topic in self.bench.image.topics.by_id.values()
            if topic.name in subscribed
            for index in topic.partitions
        }


@pytest.mark.parametrize("seed", range(settings().max_examples))
def test_no_partition_has_two_owners_and_all_have_one_in_the_end(seed: int) -> None:
    Simulation(seed).run(80)
