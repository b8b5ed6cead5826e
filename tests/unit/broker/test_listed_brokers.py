"""Which brokers Metadata names: a broker that is fenced for a short time is still listed."""

from __future__ import annotations

from dataclasses import replace

from pessoa.base.ids import Uuid
from pessoa.broker.listed_brokers import ListedBrokers
from pessoa.metadata.cluster_image import BrokerImage, ClusterDelta, ClusterImage

SESSION_MS = 9_000
OWN_ID, OTHER_ID = 1, 2
SERVING = BrokerImage(
    id=OTHER_ID,
    epoch=7,
    incarnation_id=Uuid(b"i" * 16),
    listeners={},
    supported_features={},
    rack=None,
    fenced=False,
    in_controlled_shutdown=False,
    directories=(),
    cordoned_directories=None,
)
FENCED = replace(SERVING, fenced=True)
LEAVING = replace(SERVING, in_controlled_shutdown=True)


class Watched:
    """The list of brokers on one broker, while another broker's registration changes."""

    def __init__(self) -> None:
        self.listed = ListedBrokers(OWN_ID, SESSION_MS, 0)
        self._known: BrokerImage | None = None

    def becomes(self, broker: BrokerImage | None, now_ms: int) -> None:
        delta = ClusterDelta(ClusterImage({} if self._known is None else {OTHER_ID: self._known}, {}))
        delta.changed_brokers[OTHER_ID] = broker
        self.listed.follow(delta, now_ms)
        self._known = broker

    def names_it(self, now_ms: int) -> bool:
        assert self._known is not None
        return self.listed.is_listed(OTHER_ID, is_fenced=self._known.fenced, now_ms=now_ms)


def test_a_fenced_broker_is_listed_for_one_more_session_timeout() -> None:
    watched = Watched()
    watched.becomes(SERVING, 0)
    watched.becomes(FENCED, 100_000)
    assert watched.names_it(100_000)
    assert watched.names_it(100_000 + SESSION_MS - 1)
    assert not watched.names_it(100_000 + SESSION_MS)


def test_a_fenced_broker_that_is_unfenced_within_a_session_timeout_never_leaves_the_metadata_response() -> None:
    watched = Watched()
    watched.becomes(SERVING, 0)
    watched.becomes(FENCED, 100_000)
    watched.becomes(replace(FENCED, epoch=8), 101_000)
    assert watched.names_it(101_000)
    watched.becomes(replace(SERVING, epoch=8), 102_000)
    assert watched.names_it(1_000_000)


def test_a_broker_that_is_fenced_in_a_controlled_shutdown_is_left_out_at_once() -> None:
    watched = Watched()
    watched.becomes(SERVING, 0)
    watched.becomes(LEAVING, 100_000)
    assert watched.names_it(100_000)
    watched.becomes(replace(LEAVING, fenced=True), 100_001)
    assert not watched.names_it(100_001)


def test_a_broker_that_was_never_unfenced_or_is_unregistered_is_not_listed() -> None:
    watched = Watched()
    watched.becomes(FENCED, 0)
    assert not watched.names_it(0)
    watched.becomes(SERVING, 1)
    watched.becomes(FENCED, 2)
    watched.becomes(None, 3)
    watched.becomes(FENCED, 4)
    assert not watched.names_it(4)


def test_a_starting_broker_lists_itself_while_it_is_fenced() -> None:
    listed = ListedBrokers(OWN_ID, SESSION_MS, 50_000)
    assert listed.is_listed(OWN_ID, is_fenced=True, now_ms=50_000)
    assert not listed.is_listed(OWN_ID, is_fenced=True, now_ms=50_000 + SESSION_MS)
    assert not listed.is_listed(OTHER_ID, is_fenced=True, now_ms=50_000)
