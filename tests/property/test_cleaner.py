"""Compaction, compared with a simple model: a list of everything that was ever appended.

Random histories of appends (plain, idempotent, transactional), commits, aborts, rolls, waiting, restarts and passes
with large and tiny offset maps. After every pass the log must be one that compaction may leave:

- a read_committed reader builds the same table as from the whole history;
- no record is present that was not appended, offsets rise, and everything above the clean part is present;
- the clean part has every key once, and no aborted record;
- a tombstone stays for at least `delete.retention.ms`;
- producers can continue with their sequences, also if producer state is rebuilt from the log alone;
- passes converge: once markers and tombstones have delete horizons, one more pass changes no byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pessoa.log.compaction.log_to_clean import CleanerSettings
from pessoa.log.compaction.offset_map import BYTES_PER_KEY
from pessoa.log.partition_log import PartitionLog, ReadUpTo
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.records.compression import Codec
from pessoa.records.record import Record
from tests.support.cleaning import CONFIG, DIRECTORY, NOW_MS, append, clean, consumed, end_transaction, open_log

TINY = CleanerSettings(dedupe_buffer_size=3 * BYTES_PER_KEY, io_buffer_load_factor=1.0)
KEYS = [b"a", b"b", b"c", b"a key that is longer than fifteen bytes", b""]

pairs = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 9).map(lambda number: b"%d" % number)),
    min_size=1,
    max_size=4,
)
appends = st.tuples(
    st.just("append"),
    pairs,
    # No producer; an idempotent one; a transactional one.
    st.sampled_from([None, 1, 2, 11, 12]),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
)
ends = st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from([11, 12]))
others = st.tuples(st.sampled_from(["roll", "roll", "wait", "clean", "clean a little", "restart"]))
histories = st.lists(st.one_of(appends, appends, ends, others), max_size=40)


@dataclass
class History:
    """The model: a list of all appended records; those of a transaction are in `open` until it ends."""

    committed: list[Record] = field(default_factory=list)
    aborted: list[Record] = field(default_factory=list)
    open: dict[int, list[Record]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    # Where the last pass came to, and when it was.
    clean_end: int = 0
    now_ms: int = NOW_MS
    appended_ms: dict[int, int] = field(default_factory=dict)

    @property
    def table(self) -> dict[bytes | None, bytes | None]:
        return table_of(sorted(self.committed))


def table_of(found: list[Record]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in {one.key: one.value for one in found}.items() if value is not None}


class Played:
    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.log = open_log(self.disk)
        self.history = History()

    def append(self, made: list[tuple[bytes, bytes | None]], who: int | None, codec: Codec) -> None:
        history = self.history
        is_transactional = who is not None and who > 10
        sequence = history.sequences.get(who, 0) if who is not None else -1
        base_offset = append(
            self.log,
            made,
            producer=(who, 0, sequence) if who is not None else None,
            transactional=is_transactional,
            codec=codec,
            now_ms=history.now_ms,
        )
        found = [
            Record(base_offset + number, history.now_ms + number, key, value)
            for number, (key, value) in enumerate(made)
        ]
        history.appended_ms.update((one.offset, history.now_ms) for one in found)
        if who is not None:
            history.sequences[who] = sequence + len(made)
        if who is not None and is_transactional:
            history.open.setdefault(who, []).extend(found)
        else:
            history.committed += found

    def end(self, who: int, *, commit: bool) -> None:
        if who in self.history.open:
            end_transaction(self.log, who, 0, commit=commit, now_ms=self.history.now_ms)
            (self.history.committed if commit else self.history.aborted).extend(self.history.open.pop(who))

    def clean(self, settings: CleanerSettings | None = None) -> None:
        history = self.history
        history.clean_end = clean(
            self.disk, self.log, history.clean_end, now_ms=history.now_ms, settings=settings
        ).end_offset
        self.check()

    def restart(self) -> None:
        """Reopen the log without producer snapshots, so that producer state is rebuilt from the log."""
        before = producers_of(self.log)
        self.log.close()
        for name in self.disk.list(DIRECTORY):
            if name.endswith(".snapshot"):
                self.disk.remove(f"{DIRECTORY}/{name}")
        self.log = open_log(self.disk, high_watermark=self.log.high_watermark)
        assert producers_of(self.log) == before

    def check(self) -> None:
        history, log = self.history, self.log
        everything = set(history.committed) | set(history.aborted) | {r for some in history.open.values() for r in some}
        stable = log.last_stable_offset
        for up_to in (ReadUpTo.HIGH_WATERMARK, ReadUpTo.LAST_STABLE_OFFSET):
            found = consumed(log, up_to)
            assert set(found) <= everything
            assert [one.offset for one in found] == sorted({one.offset for one in found})
            is_committed_only = up_to is ReadUpTo.LAST_STABLE_OFFSET
            # Aborted records go from every segment that a pass writes, also behind what its map covers.
            whole = everything - set(history.aborted)
            if is_committed_only:
                whole = {one for one in history.committed if one.offset < stable}
            assert {one for one in whole if one.offset >= history.clean_end} <= set(found)
            in_clean_part = [one.key for one in found if one.offset < history.clean_end]
            assert len(in_clean_part) == len(set(in_clean_part))
            assert not {one for one in found if one.offset < history.clean_end} & set(history.aborted)
            if is_committed_only:
                assert not set(found) & set(history.aborted)
                assert table_of(found) == table_of(sorted(whole))
                self.check_tombstones(sorted(whole), found)

    def check_tombstones(self, whole: list[Record], found: list[Record]) -> None:
        for record in {one.key: one for one in whole}.values():
            age_ms = self.history.now_ms - self.history.appended_ms[record.offset]
            if record.value is None and age_ms < CONFIG.delete_retention_ms:
                assert record in found


def producers_of(log: PartitionLog) -> dict[int, tuple[int, int, int | None]]:
    return {
        entry.producer_id: (entry.epoch, entry.last_sequence, entry.current_txn_first_offset)
        for entry in log.producers.entries()
    }


def play(steps: list[tuple[object, ...]]) -> Played:
    played = Played()
    for step in steps:
        match step:
            case ("append", made, who, codec):
                played.append(made, who, codec)  # type: ignore[arg-type]
            case ("commit" | "abort" as how, int(who)):
                played.end(who, commit=how == "commit")
            case ("roll",):
                played.log.roll(played.history.now_ms)
            case ("wait",):
                played.history.now_ms += CONFIG.delete_retention_ms // 2
            case ("clean",):
                played.clean()
            case ("clean a little",):
                played.clean(TINY)
            case ("restart",):
                played.restart()
    return played


@given(histories)
def test_a_compacted_log_has_the_latest_value_of_every_key(steps: list[tuple[object, ...]]) -> None:
    played = play(steps)
    played.check()
    # And once more with everything decided and replicated.
    for who in (11, 12):
        played.end(who, commit=True)
    played.log.roll(played.history.now_ms)
    played.clean()
    played.restart()
    assert table_of(consumed(played.log, ReadUpTo.LAST_STABLE_OFFSET)) == played.history.table


@given(histories)
def test_repeated_cleaning_passes_reach_a_fixed_point(steps: list[tuple[object, ...]]) -> None:
    played = play(steps)
    played.log.roll(played.history.now_ms)
    # The first takes records out, the second marks what their going has left.
    played.clean()
    played.clean()
    rested = played.disk.contents()
    played.clean()
    assert played.disk.contents() == rested
