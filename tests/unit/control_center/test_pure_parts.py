"""The control centre's pure parts: masking, offset resets, health, alerts, history, lineage, permissions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from pessoa.base.json_value import JsonValue
from pessoa.control_center.accounts import COOKIE, Accounts, Person, demand
from pessoa.control_center.alerts import AlertBook, BadRule, Facts, check_rule, evaluate
from pessoa.control_center.api.endpoints import message_query
from pessoa.control_center.csv_text import csv_table
from pessoa.control_center.health_report import Level, PartitionState, report
from pessoa.control_center.limits import BadLimit, parse_limits
from pessoa.control_center.lineage_graph import Flow, lay_out
from pessoa.control_center.masking import HIDDEN, BadMask, masked, parse_masks, paths_for
from pessoa.control_center.message_decoding import Decoder
from pessoa.control_center.message_reading import MessageQuery, Range, may_show, plan_ranges, search_words
from pessoa.control_center.offset_reset import BadReset, Ends, plan_reset, why_not
from pessoa.control_center.replica_plan import BadReplication, plan_replicas
from pessoa.control_center.request_guard import RequestGuard, policy
from pessoa.control_center.sample_history import RateMeter, SampleHistory
from pessoa.control_center.stored_state import AlertRule, StateFile
from pessoa.control_center.texts import Text, chosen_language
from pessoa.web.problems import HttpProblem

ENDS = {("t", 0): Ends(10, 100), ("t", 1): Ends(0, 0)}


# Masking.


def test_masked_fields_are_hidden_in_lists_and_objects_and_the_rest_stays() -> None:
    paths = paths_for(parse_masks("ord*: value.card.number, value.items.price; *: headers.auth"), "orders")
    value: JsonValue = {"card": {"number": "4000", "holder": "b"}, "items": [{"price": 3, "n": 1}]}
    assert masked(value, "value", paths) == {
        "card": {"number": HIDDEN, "holder": "b"},
        "items": [{"price": HIDDEN, "n": 1}],
    }
    assert masked({"auth": "s", "x": "y"}, "headers", paths) == {"auth": HIDDEN, "x": "y"}
    assert masked(value, "value", paths_for(parse_masks("other: value.card"), "orders")) == value


def test_a_mask_for_any_depth_hides_the_field_at_every_level() -> None:
    paths = paths_for(parse_masks("*: **.password"), "t")
    assert masked({"a": [{"password": "x"}], "password": 1}, "value", paths) == {
        "a": [{"password": HIDDEN}],
        "password": HIDDEN,
    }


@pytest.mark.parametrize("text", ["orders value.x", ": value.x", "orders: card.number", "orders: value..x"])
def test_an_invalid_masking_rule_is_refused(text: str) -> None:
    with pytest.raises(BadMask):
        parse_masks(text)


# Resets.


@pytest.mark.parametrize(
    ("way", "amount", "target"),
    [("earliest", None, 10), ("latest", None, 100), ("shift", -5, 45), ("shift", 500, 100), ("exact", 3, 10)],
)
def test_an_offset_reset_stays_within_the_offsets_of_the_partition(way: str, amount: int | None, target: int) -> None:
    first, empty = plan_reset(way, amount, {("t", 0): 50}, ENDS)
    assert (first.target, first.current, first.lag_after) == (target, 50, 100 - target)
    assert empty.target == 0


def test_an_offset_reset_by_time_uses_the_log_end_if_no_record_is_later() -> None:
    rows = plan_reset("time", 1, {}, ENDS, {("t", 0): 20, ("t", 1): -1})
    assert [row.target for row in rows] == [20, 0]


def test_an_offset_reset_without_its_number_or_of_a_group_with_members_is_refused() -> None:
    with pytest.raises(BadReset):
        plan_reset("shift", None, {}, ENDS)
    with pytest.raises(BadReset):
        plan_reset("sideways", 1, {}, ENDS)
    assert why_not("Stable", "consumer") is not None
    assert why_not("Empty", "classic") is None
    assert why_not("Empty", "share") is None
    assert "stop its members first" in (why_not("Stable", "share") or "")


# Replicas.


def test_added_replicas_go_to_the_brokers_with_fewest_replicas_and_leaders_stay() -> None:
    assert plan_replicas({0: [1], 1: [2], 2: [3]}, [1, 2, 3], 2) == {0: [1, 2], 1: [2, 1], 2: [3, 1]}
    assert plan_replicas({0: [1, 2, 3], 1: [2]}, [1, 2, 3], 1) == {0: [1]}
    with pytest.raises(BadReplication):
        plan_replicas({0: [1]}, [1, 2], 3)
    with pytest.raises(BadReplication):
        plan_replicas({0: [1]}, [1, 2], 0)


# Health.


def test_health_names_the_missing_broker_and_the_partitions_without_a_leader() -> None:
    whole = PartitionState("t", 0, 1, [1, 2], [1, 2])
    behind = PartitionState("t", 1, 1, [1, 2], [1])
    offline = PartitionState("t", 2, -1, [2], [])
    t = Text()
    assert report([1, 2], {}, 1, [whole], t).level is Level.GOOD
    found = report([1], {2: 0}, 1, [whole, behind], t)
    assert found.level is Level.WARNING
    assert str(found).startswith("1 partition has lost a replica: broker 2 is away since")
    worst = report([1], {}, 1, [behind, offline], t)
    assert worst.level is Level.BAD
    assert "t-2 has no leader" in str(worst)
    assert "fallen behind" in str(report([1, 2], {}, 1, [behind], t))


# Alerts.


def test_an_alert_fires_once_and_ends_once() -> None:
    rule = AlertRule("slow", "lag", 10)
    book = AlertBook()
    facts = Facts({"g": 11, "quick": 1}, 0, 0, {})
    assert [one.state for one in book.note(evaluate([rule], facts), 1)] == ["firing"]
    assert book.note(evaluate([rule], facts), 2) == []
    assert book.firing["slow", "g"][0] == 1
    assert [one.state for one in book.note(evaluate([rule], facts._replace(lags={"g": 10})), 3)] == ["resolved"]
    assert not book.firing


def test_every_kind_of_alert_checks_its_own_metric() -> None:
    facts = Facts({}, 2, 1, {1: 95.0})
    kinds = ("lag", "under-replicated", "offline", "disk")
    rules = [AlertRule(kind, kind, 90 if kind == "disk" else 0) for kind in kinds]
    assert [one.rule for one in evaluate(rules, facts)] == ["under-replicated", "offline", "disk"]
    assert evaluate([AlertRule("off", "offline", is_on=False)], facts) == []


@pytest.mark.parametrize(
    "rule",
    [
        AlertRule("", "lag"),
        AlertRule("a", "weather"),
        AlertRule("a", "lag", -1),
        AlertRule("a", "lag", webhook="file:/x"),
    ],
)
def test_an_invalid_alert_rule_is_refused(rule: AlertRule) -> None:
    with pytest.raises(BadRule):
        check_rule(rule)


# History.


def test_history_keeps_the_newest_samples_and_names() -> None:
    history = SampleHistory(points=3, names=2)
    for number in range(5):
        history.add("a", number, number * 2)
    assert [(one.at_ms, one.value) for one in history.of("a")] == [(2, 4), (3, 6), (4, 8)]
    history.add("b", 1, 1)
    history.add("c", 1, 1)
    assert history.of("a") == []
    assert history.last("c") == 1


def test_a_rate_is_computed_from_two_readings_and_restarts_when_the_counter_has_decreased() -> None:
    meter = RateMeter()
    assert meter.read("x", 0, 10) is None
    assert meter.read("x", 2000, 30) == 10
    assert meter.read("x", 2100, 30) == 10
    assert meter.read("x", 4000, 0) is None


# Messages.


def test_the_newest_messages_are_read_from_the_end_unless_a_filter_is_set() -> None:
    ends = {0: Ends(0, 100), 1: Ends(5, 8), 2: Ends(4, 4)}
    assert plan_ranges(MessageQuery("t", limit=10), ends, {}) == {0: Range(90, 100), 1: Range(5, 8)}
    assert plan_ranges(MessageQuery("t", limit=10, search="x"), ends, {}) == {0: Range(0, 100), 1: Range(5, 8)}
    by_offset = MessageQuery("t", "offset", 7, partitions=(1,))
    assert plan_ranges(by_offset, ends, {}) == {1: Range(7, 8)}
    assert plan_ranges(MessageQuery("t", "time", 9), ends, {0: 50, 1: -1}) == {0: Range(50, 100)}
    assert set(plan_ranges(MessageQuery("t", "live"), ends, {})) == {0, 1, 2}


def test_the_format_of_bytes_is_detected_or_the_requested_one_is_used() -> None:
    decoder = Decoder(None)
    assert decoder.decode(b'{"a": 1}')[:2] == ("json", {"a": 1})
    assert decoder.decode("olá".encode())[:2] == ("text", "olá")
    assert decoder.decode(b"\x00\xff")[:2] == ("hex", "00 ff")
    assert decoder.decode(None)[:2] == ("null", None)
    assert decoder.decode(b"\x00\x00\x00\x07", "int").value == 7
    assert decoder.decode(b"\x81\xa1a\x01", "msgpack").value == {"a": 1}
    assert decoder.decode(b"\xc1", "msgpack").format == "hex"
    assert decoder.decode(b"{broken", "json").trouble == "This is not JSON."
    assert decoder.decode(b"[" * 100_000).format == "text"
    assert len(str(decoder.decode(b"\xff" * 1_000_000).value)) < 200_000


# Who may.


def test_a_page_of_another_origin_can_neither_post_nor_open_a_websocket_nor_rebind_dns() -> None:
    async def nothing(*_: object) -> None: ...

    guard = RequestGuard(nothing, ["kafka.example"])
    mine = "localhost:9021"
    assert guard.refusal("http", "POST", mine, "http://localhost:9021") is None
    assert guard.refusal("http", "POST", mine, None) is None
    assert guard.refusal("http", "GET", mine, "http://evil.example") is None
    assert guard.refusal("http", "POST", mine, "http://evil.example") is not None
    assert guard.refusal("http", "POST", mine, "http://localhost:8000") is not None
    assert guard.refusal("http", "POST", mine, "null") is not None
    assert guard.refusal("websocket", "GET", mine, "http://evil.example") is not None
    assert guard.refusal("http", "GET", "evil.example:9021", None) is not None
    assert guard.refusal("http", "GET", "KAFKA.example", None) is None
    assert guard.refusal("http", "GET", None, None) is not None


def test_a_role_includes_those_below_it() -> None:
    demand(Person("a", "admin"), "editor")
    with pytest.raises(HttpProblem, match="needs the role admin"):
        demand(Person("e", "editor"), "admin")


def test_without_logins_every_user_is_anonymous_with_the_default_role() -> None:
    assert Accounts(None, {}, "reader", 60).by_cookie(None) == Person("anonymous", "reader")


def test_querying_the_remaining_time_of_a_session_does_not_prolong_it() -> None:
    accounts = Accounts(None, {}, "reader", 60, has_proxy=True)
    token = accounts.begin_session("ada")
    first = accounts.seconds_left(token)
    assert 0 < accounts.seconds_left(token) <= first <= 60
    accounts.log_out(token)
    assert accounts.seconds_left(token) == 0
    assert accounts.seconds_left(None) == 0


def test_reading_a_session_does_not_prolong_it_and_using_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    accounts = Accounts(None, {}, "reader", 60, has_proxy=True)
    token = accounts.begin_session("ada")
    now_s[0] += 50
    assert accounts.of_session(token) == Person("ada", "reader")
    assert accounts.seconds_left(token) == 10
    assert accounts.by_cookie(token) == Person("ada", "reader")
    assert accounts.seconds_left(token) == 60
    now_s[0] += 61
    assert accounts.of_session(token) is None


def test_a_session_loses_a_role_that_was_taken_from_its_user_and_gains_none() -> None:
    roles: dict[str, str] = {"ada": "admin"}
    accounts = Accounts(None, {}, "reader", 60, role_of=roles.get, has_proxy=True)
    token = accounts.begin_session("ada")
    roles["ada"] = "editor"
    assert accounts.of_session(token) == Person("ada", "editor")
    assert accounts.by_cookie(token) == Person("ada", "editor")
    roles["ada"] = "admin"
    assert accounts.by_cookie(token) == Person("ada", "editor")


def test_a_page_prolongs_its_session_when_the_user_acts_and_not_when_it_redraws() -> None:
    pytest.importorskip("nicegui")
    from pessoa.control_center.pages.frame import Visit

    used: list[str | None] = []

    class Counted(Accounts):
        def by_cookie(self, token: str | None) -> Person | None:
            used.append(token)
            return super().by_cookie(token)

    center: Any = SimpleNamespace(accounts=Counted(None, {}, "reader", 60, has_proxy=True))
    token = center.accounts.begin_session("ada")
    visit = Visit(center, Request({"type": "http", "headers": [(b"cookie", f"{COOKIE}={token}".encode())]}))
    assert visit.has_session()
    assert visit.person == Person("ada", "reader")
    assert used == []
    asyncio.run(visit.act(lambda: None))
    assert used == [token]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-5", -5),
        ("", 1),
        ("²", 1),
        ("--5", 1),
        ("٣", 1),
        ("-", 1),
        ("9" * 16, 1),
        ("1\n", 1),
        ("9" * 5000, 1),
    ],
)
def test_a_page_parameter_that_is_no_number_is_replaced_by_the_default(text: str, number: int) -> None:
    pytest.importorskip("nicegui")
    from pessoa.control_center.pages.frame import Visit

    center: Any = None
    query = urlencode({"page": text}).encode()
    visit = Visit(center, Request({"type": "http", "headers": [], "query_string": query}))
    assert visit.number("page", 1) == number


@pytest.mark.parametrize("text", ["²", "9" * 5000, "-1", "x"])
def test_an_api_request_with_a_malformed_partition_number_is_refused(text: str) -> None:
    scope = {"type": "http", "headers": [], "query_string": urlencode({"partition": text}).encode(),
             "path_params": {"topic": "t"}}  # fmt: skip
    center: Any = SimpleNamespace(hidden_paths=lambda *_: (), decoder=Decoder(None))
    with pytest.raises(HttpProblem, match="partition must be a number"):
        message_query(center, Person("ada", "reader"), Request(scope))


def test_the_content_security_policy_allows_connections_to_the_pages_own_host_only() -> None:
    sources = policy("localhost:9021").partition("connect-src ")[2].partition(";")[0]
    assert sources == "'self' ws://localhost:9021 wss://localhost:9021"
    assert "ws://[::1]:9021 " in policy("[::1]:9021")
    for odd in (None, "a; script-src *", "a b", "a\r\nb"):
        assert policy(odd).partition("connect-src ")[2].partition(";")[0] == "'self'"


# Favourites.


def test_a_favourite_must_be_an_existing_topic(tmp_path: Path) -> None:
    pytest.importorskip("nicegui")
    from pessoa.control_center.pages.topics_page import toggle_favourite

    there = {"orders"}

    async def topic_info(name: str) -> None:
        if name not in there:
            raise HttpProblem(404, f"There is no topic {name}.")

    center: Any = SimpleNamespace(state=StateFile(tmp_path), watch=SimpleNamespace(topic_info=topic_info))
    asyncio.run(toggle_favourite(center, "ada", "orders"))
    assert center.state.favourites_of("ada") == {"orders"}
    with pytest.raises(HttpProblem):
        asyncio.run(toggle_favourite(center, "ada", "x" * 1_000_000))
    there.clear()
    asyncio.run(toggle_favourite(center, "ada", "orders"))
    assert center.state.favourites_of("ada") == frozenset()
    with pytest.raises(HttpProblem):
        center.state.set_favourite("ada", "x" * 250, True)


# Words and pictures.


def test_the_language_is_taken_from_the_cookie_or_the_browser() -> None:
    assert chosen_language("pt", "en") == "pt"
    assert chosen_language(None, "fr-FR,pt-BR;q=0.8,en;q=0.7") == "pt"
    assert chosen_language("xx", None) == "en"


def test_the_lineage_layout_places_topics_and_their_readers_and_writers_in_alternating_columns() -> None:
    graph = lay_out([
        Flow("connector", "source", writes=("a",)),
        Flow("query", "q", reads=("a",), writes=("b",)),
        Flow("group", "g", reads=("b",)),
    ])  # fmt: skip
    columns = {node.name: node.column for node in graph.nodes}
    assert columns["source"] < columns["a"] < columns["q"] < columns["b"] < columns["g"]
    assert len(graph.edges) == 4


def test_the_lineage_of_a_cycle_ends_and_a_large_lineage_is_truncated() -> None:
    assert len(lay_out([Flow("query", "q", ("a",), ("a",))]).nodes) == 2
    assert lay_out([Flow("group", str(number), ("t",)) for number in range(500)]).is_cut


def test_resource_limits_name_what_a_user_may_access_and_do_not_restrict_other_resource_types() -> None:
    limits = parse_limits("edu: topic orders*, topic pay-*, group billing; *: topic public-*")
    edu, ruy, ada = Person("edu", "editor"), Person("ruy", "reader"), Person("ada", "admin")
    assert limits.allow(edu, "topic", "orders-eu")
    assert limits.allow(edu, "topic", "pay-1")
    assert not limits.allow(edu, "topic", "public-1")
    assert not limits.allow(edu, "group", "billing2")
    assert limits.allow(edu, "connector", "anything")
    assert limits.allow(ruy, "topic", "public-1")
    assert not limits.allow(ruy, "topic", "orders")
    assert limits.allow(ada, "topic", "orders")
    assert not limits.allow_all(edu, "topic")
    assert limits.allow_all(edu, "connector")
    assert parse_limits("edu: topic *").allow_all(edu, "topic")
    assert parse_limits("").allow_all(edu, "topic")
    with pytest.raises(HttpProblem, match="edu may not use the topic clicks"):
        limits.demand(edu, "topic", "clicks")


@pytest.mark.parametrize("text", ["edu", ": topic x", "edu: topics x", "edu: topic"])
def test_invalid_resource_limits_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(BadLimit, match="write"):
        parse_limits(text)


@given(
    st.dictionaries(st.text("abXY 01_-", min_size=1), st.integers() | st.text('abXY:," 01é') | st.floats(-1e6, 1e6)),
    st.data(),
    st.booleans(),
)
def test_the_byte_prefilter_of_a_search_never_skips_a_matching_message(
    value: dict[str, object], data: st.DataObject, is_spaced: bool
) -> None:
    raw = msgspec.json.encode(value)
    raw = msgspec.json.format(raw, indent=2) if is_spaced else raw
    shown = msgspec.json.encode(msgspec.json.decode(raw)).decode()
    start = data.draw(st.integers(0, len(shown)))
    text = shown[start : data.draw(st.integers(start, len(shown)))]
    if text.isascii() and "\\" not in text and text:
        assert may_show(raw, search_words(text.swapcase()))


def test_the_byte_prefilter_of_a_search_skips_messages_that_lack_one_of_its_words() -> None:
    assert not may_show(b'{"id": 12, "city": "Porto"}', search_words('"id": 13'))
    assert not may_show(b"plain text", search_words("other"))
    assert may_show(b'{"id": 1e2}', search_words('"id": 100'))
    assert may_show(b"\x82\xa2id", search_words("7"))


def test_exported_cells_that_a_spreadsheet_would_execute_are_quoted_and_numbers_are_not() -> None:
    found = csv_table(("a", "b"), [("=1+1", -5), ("plain", None), ("@x", 1.5)])
    assert found.decode().splitlines() == ["a,b", "'=1+1,-5", "plain,", "'@x,1.5"]
