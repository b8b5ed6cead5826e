from __future__ import annotations

from pessoa.coordinator.shard import Output
from pessoa.coordinator.timers import Action, Timers


class Bell:
    def __init__(self) -> None:
        self.rung: list[str] = []

    def ring(self, name: str) -> Action:
        def action(now_ms: int) -> Output:
            self.rung.append(f"{name}@{now_ms}")
            return Output()

        return action


def run(timers: Timers, now_ms: int) -> None:
    while (action := timers.pop_due(now_ms)) is not None:
        action(now_ms)


def test_timers_fire_in_the_order_of_their_deadlines() -> None:
    timers, bell = Timers(), Bell()
    timers.schedule("b", 20, bell.ring("b"))
    timers.schedule("a", 10, bell.ring("a"))
    timers.schedule("c", 30, bell.ring("c"))
    run(timers, 25)
    assert bell.rung == ["a@25", "b@25"]
    assert timers.next_deadline_ms() == 30


def test_a_timer_that_is_rescheduled_later_fires_once_at_the_later_time() -> None:
    timers, bell = Timers(), Bell()
    timers.schedule("session", 10, bell.ring("old"))
    timers.schedule("session", 50, bell.ring("new"))
    run(timers, 49)
    assert bell.rung == []
    assert timers.next_deadline_ms() == 50
    run(timers, 50)
    assert bell.rung == ["new@50"]
    assert timers.next_deadline_ms() is None


def test_a_timer_can_be_set_earlier() -> None:
    timers, bell = Timers(), Bell()
    timers.schedule("session", 50, bell.ring("old"))
    timers.schedule("session", 10, bell.ring("new"))
    run(timers, 100)
    assert bell.rung == ["new@100"]


def test_a_cancelled_timer_does_not_fire_even_if_it_is_scheduled_again_for_the_same_time() -> None:
    timers, bell = Timers(), Bell()
    timers.schedule("session", 10, bell.ring("old"))
    timers.cancel("session")
    assert timers.next_deadline_ms() is None
    timers.schedule("session", 10, bell.ring("new"))
    run(timers, 10)
    assert bell.rung == ["new@10"]


def test_a_thousand_reschedules_of_a_timer_leave_one_entry() -> None:
    timers, bell = Timers(), Bell()
    for now_ms in range(1000):
        timers.schedule("session", now_ms + 45_000, bell.ring("session"))
    assert len(timers._heap) == 1
    assert timers.deadline_ms("session") == 45_999


def test_all_deadlines_move_when_the_clock_jumps() -> None:
    timers, bell = Timers(), Bell()
    timers.schedule("a", 10, bell.ring("a"))
    timers.schedule("b", 20, bell.ring("b"))
    timers.schedule("a", 30, bell.ring("a"))
    timers.shift(1000)
    run(timers, 1019)
    assert bell.rung == []
    run(timers, 1030)
    assert bell.rung == ["b@1030", "a@1030"]


def test_a_deadline_that_is_set_after_a_shift_is_not_moved_by_that_shift() -> None:
    timers, bell = Timers(), Bell()
    timers.schedule("early", 10, bell.ring("early"))
    timers.shift(1000)
    timers.schedule("late", 1020, bell.ring("late"))
    timers.shift(-500)
    timers.schedule("early", 515, bell.ring("early"))
    assert timers.deadline_ms("early") == 515
    assert timers.deadline_ms("late") == 520
    run(timers, 514)
    assert bell.rung == []
    run(timers, 520)
    assert bell.rung == ["early@520", "late@520"]
