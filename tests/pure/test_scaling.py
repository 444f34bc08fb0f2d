"""Autoscaling: the wanted number of workers, with a clock that is moved by hand."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.supervisor.host_gauge import PLENTY, room
from ringbatch.engine.supervisor.scaling import (
    AGAIN_NS,
    Decision,
    Headroom,
    Measurements,
    Rules,
    Scaler,
    bounded,
)
from ringbatch.shm.scalings import Cause

S = 1_000_000_000
MS = 1_000_000
TICK_NS = S // 4
RULES = Rules(
    fewest=1, most=8, target_ns=0, timeout_ns=60 * S, up_after_ns=2 * S, down_after_ns=60 * S
)
CYCLE_NS = 50 * MS
CAP = 8


class Played:
    """A model and its scaler.

    Attributes:
        scaler: under test.
        now_ns: the time.
        running: workers.
        ready: of these, or None for all.
        start_ns: time to start a worker.
    """

    def __init__(self, rules: Rules = RULES, running: int = 1) -> None:
        self.scaler = Scaler(rules)
        self.now_ns = 0
        self.running = running
        self.ready: int | None = None
        self.start_ns = S
        self._rows = self._run_ns = 0.0

    def look(self, load: float = 0.0, wait_ms: float = 0.0, **more: Any) -> Decision | None:
        """A quarter of a second passes.

        Args:
            load: arriving work, in workers whose batches are full.
            wait_ms: predicted.
            more: of the reading.
        """
        self.now_ns += TICK_NS
        self._rows += load * TICK_NS * CAP / CYCLE_NS
        self._run_ns += min(load, self.running) * TICK_NS
        reading = Measurements(
            now_ns=self.now_ns,
            wait_ns=int(wait_ms * MS),
            cycle_ns=CYCLE_NS,
            full_ns=CYCLE_NS,
            batch_rows=CAP,
            rows=int(self._rows),
            run_ns=int(self._run_ns),
            running=self.running,
            ready=self.running if self.ready is None else self.ready,
            start_ns=self.start_ns,
        )
        return self.scaler.step(reading._replace(**more))

    def for_s(self, seconds: float, load: float = 0.0, wait_ms: float = 0.0) -> list[Decision]:
        """Let so much time pass, carry out the decisions, and return them."""
        found = []
        for _ in range(int(seconds * S / TICK_NS)):
            decision = self.look(load, wait_ms)
            if decision is not None:
                found.append(decision)
                self.carry_out(decision)
        return found

    def count_anew(self) -> None:
        """Reset the counters, as a new collector does."""
        self._rows = self._run_ns = 0.0

    def carry_out(self, decision: Decision) -> None:
        """Set the number of workers to the decision's."""
        self.running = decision.workers
        self.scaler.carried_out(decision, self.now_ns)


def test_a_wait_above_the_target_has_workers_started_after_a_while_and_no_sooner() -> None:
    played = Played()
    assert played.for_s(2.0, load=4.0, wait_ms=300) == []
    assert played.for_s(0.5, load=4.0, wait_ms=300) == [Decision(6, Cause.LATE)]


def test_a_wait_at_the_target_has_none_started() -> None:
    assert Played().for_s(30, load=0.9, wait_ms=150) == []
    assert Played(replace(RULES, target_ns=400 * MS)).for_s(30, load=4.0, wait_ms=400) == []


def test_the_while_begins_anew_where_the_wait_was_short_once() -> None:
    played = Played()
    for _ in range(10):
        assert played.for_s(1.75, load=4.0, wait_ms=300) == []
        assert played.for_s(0.25, load=4.0, wait_ms=100) == []


@pytest.mark.parametrize(
    ("rules", "target_ms"),
    [
        (RULES, 150),
        (replace(RULES, target_ns=20 * MS), 20),
        (replace(RULES, timeout_ns=200 * MS), 50),
    ],
)
def test_the_target_follows_the_times_of_batches(rules: Rules, target_ms: int) -> None:
    assert rules.target(CYCLE_NS) == target_ms * MS


def test_a_wait_that_stays_though_the_load_is_small_asks_for_one_more() -> None:
    assert Played(running=3).for_s(2.5, load=0.5, wait_ms=300) == [Decision(4, Cause.LATE)]


def test_no_more_are_started_than_the_range_allows() -> None:
    played = Played(replace(RULES, most=3))
    assert played.for_s(2.5, load=7.0, wait_ms=900) == [Decision(3, Cause.LATE)]
    assert played.for_s(60, load=7.0, wait_ms=9000) == []


def test_a_peak_that_ends_before_a_worker_could_be_ready_starts_none() -> None:
    played = Played()
    played.start_ns = 10 * S
    for tick in range(16):
        assert played.look(load=0.2, wait_ms=4000 - 220 * tick) is None


def test_a_lasting_peak_starts_a_worker() -> None:
    played = Played()
    played.start_ns = 2 * S
    waits = (4000 - 10 * tick for tick in range(16))
    assert any(played.look(load=0.2, wait_ms=wait) for wait in waits)


def test_while_others_are_about_to_be_ready_the_wait_asks_for_none() -> None:
    played = Played(running=3)
    played.ready = 2
    assert played.for_s(30, load=1.0, wait_ms=300) == []


def test_workers_are_let_go_after_a_long_while_in_which_fewer_would_have_sufficed() -> None:
    played = Played(running=8)
    assert played.for_s(60, load=1.0) == []
    assert played.for_s(0.5, load=1.0) == [Decision(2, Cause.IDLE)]


def test_one_instant_of_need_within_the_while_keeps_them() -> None:
    played = Played(running=8)
    for _ in range(4):
        assert played.for_s(48, load=1.0) == []
        assert played.for_s(2, load=5.2) == []


def test_no_worker_goes_while_those_that_stay_are_not_ready() -> None:
    played = Played(running=8)
    played.ready = 7
    assert played.for_s(200, load=1.0) == []


def test_the_fewest_stay() -> None:
    played = Played(replace(RULES, fewest=3), running=8)
    assert played.for_s(300) == [Decision(3, Cause.IDLE)]
    assert Played(running=1).for_s(300) == []


def test_the_last_worker_goes_only_where_no_request_came() -> None:
    rules = replace(RULES, fewest=0)
    played = Played(rules, running=2)
    assert played.for_s(300, load=0.01) == [Decision(1, Cause.IDLE)]
    assert played.for_s(300) == [Decision(0, Cause.UNUSED)]


def test_the_last_worker_stays_while_a_request_waits_or_runs() -> None:
    played = Played(replace(RULES, fewest=0))
    assert played.for_s(300, wait_ms=50) == []


def test_where_counts_begin_anew_a_request_is_not_missed() -> None:
    played = Played(replace(RULES, fewest=0), running=2)
    played.for_s(20, load=1.0)
    played.for_s(100)
    assert played.running == 0
    assert played.look(rows=0, run_ns=0) is None
    assert played.look(rows=1, run_ns=0) == Decision(1, Cause.REQUEST)


def test_where_counts_begin_anew_the_load_is_measured_anew() -> None:
    played = Played(replace(RULES, up_after_ns=S // 2))
    played.for_s(20, load=1.0)
    played.count_anew()
    assert played.for_s(0.75, load=4.0, wait_ms=300) == [Decision(6, Cause.LATE)]


def test_a_request_that_finds_no_worker_has_one_started_at_once() -> None:
    played = Played(replace(RULES, fewest=0), running=2)
    played.for_s(70)
    assert played.running == 0
    assert played.for_s(100) == []
    assert played.for_s(0.25, load=0.1) == [Decision(1, Cause.REQUEST)]


def test_workers_that_were_needed_again_soon_are_kept_for_longer_the_next_time() -> None:
    played = Played(running=2)
    whiles = []
    for _ in range(6):
        began_ns = played.now_ns
        while played.running == 2:
            played.for_s(0.25, load=0.1)
        whiles.append((played.now_ns - began_ns) // S)
        while played.running == 1:
            played.for_s(0.25, load=1.2, wait_ms=300)
    assert whiles == [60, 120, 240, 480, 960, 960]


def test_after_a_quiet_time_they_are_kept_no_longer_than_at_first() -> None:
    played = Played(running=2)
    assert played.for_s(61, load=0.1) == [Decision(1, Cause.IDLE)]
    assert played.for_s(2.5, load=1.2, wait_ms=300) == [Decision(2, Cause.LATE)]
    assert played.for_s(121, load=0.1) == [Decision(1, Cause.IDLE)]
    played.for_s(300, load=0.1)
    assert played.for_s(2.5, load=1.2, wait_ms=300) == [Decision(2, Cause.LATE)]
    assert played.for_s(59, load=0.1) == []
    assert played.for_s(4, load=0.1) == [Decision(1, Cause.IDLE)]


def test_a_refused_start_is_tried_again_later_and_ever_later() -> None:
    played = Played()
    pauses = []
    for _ in range(6):
        began_ns = played.now_ns
        while played.look(load=4.0, wait_ms=300) is None:
            pass
        pauses.append((played.now_ns - began_ns) / AGAIN_NS)
        played.scaler.refused(played.now_ns)
        assert played.scaler.holds(played.now_ns)
    assert [round(pause) for pause in pauses[1:]] == [1, 2, 4, 8, 16]


def test_a_wish_for_the_first_worker_that_fails_is_not_forgotten() -> None:
    """Requests are refused until there is one, so none comes that asks again."""
    played = Played(replace(RULES, fewest=0), running=0)
    assert played.look() is None
    wish = Decision(1, Cause.REQUEST)
    assert played.look(load=1.0) == wish
    # Its worker is being started, is counted as one that runs, and is not ready in the end.
    played.running, played.ready = 1, 0
    assert played.for_s(3) == []
    played.running, played.ready = 0, None
    played.scaler.refused(played.now_ns)
    again_ns = played.scaler.again_ns
    assert again_ns == played.now_ns + AGAIN_NS
    while (decision := played.look()) is None:
        assert played.now_ns < again_ns
    assert decision == wish
    played.running = 1
    played.scaler.carried_out(decision, played.now_ns)
    played.for_s(1)
    played.running = 0
    assert played.for_s(60) == [], "nobody has asked since"


def test_counts_that_begin_anew_are_no_load() -> None:
    played = Played(running=3)
    played.for_s(10, load=2.0)
    assert played.look(rows=0, run_ns=0) is None
    assert played.for_s(10, load=2.0) == []


@given(st.lists(st.tuples(st.floats(0, 12), st.floats(0, 2000)), max_size=100), st.integers(0, 3))
def test_the_range_holds_at_any_load(load: list[tuple[float, float]], fewest: int) -> None:
    played = Played(replace(RULES, fewest=fewest, down_after_ns=3 * S), running=max(fewest, 1))
    for rows, wait_ms in load:
        before = played.running
        for decision in played.for_s(0.5, load=rows, wait_ms=wait_ms):
            assert fewest <= decision.workers <= RULES.most
            assert decision.workers != before
            assert (decision.workers > before) == (decision.cause.direction == "up")
            before = decision.workers


HERE, FAR = Headroom(2, Cause.MEMORY), Headroom(1, Cause.CPUS)
FULL = Headroom(0, Cause.MEMORY)


@pytest.mark.parametrize(
    ("rooms", "decided"),
    [
        ([Headroom(3, Cause.MEMORY)] * 3, Decision(5, Cause.LATE)),
        ([Headroom(2, Cause.MEMORY)] * 3, Decision(4, Cause.LATE)),
        ([Headroom(0, Cause.MEMORY)] * 3, Decision(2, Cause.MEMORY)),
        ([Headroom(0, Cause.CPUS)] * 3, Decision(2, Cause.CPUS)),
        ([HERE, HERE, FAR], Decision(5, Cause.LATE)),
        ([HERE, FAR, FAR], Decision(4, Cause.LATE)),
        ([FAR, HERE, HERE], Decision(5, Cause.LATE)),
        ([HERE, FULL, HERE], Decision(3, Cause.LATE)),
        ([FULL, HERE, HERE], Decision(2, Cause.MEMORY)),
    ],
)
def test_no_more_are_started_than_there_is_room_for(
    rooms: list[Headroom], decided: Decision
) -> None:
    assert bounded(Decision(5, Cause.LATE), 2, rooms) == decided


@pytest.mark.parametrize(
    ("free", "own", "used", "each", "found"),
    [
        (1000, 300, 0.0, 0.0, Headroom(3, Cause.MEMORY)),
        (1000, 1000, 0.0, 0.0, Headroom(0, Cause.MEMORY)),
        (None, 300, 1.0, 1.0, Headroom(3, Cause.CPUS)),
        (1 << 40, 300, 3.9, 1.0, Headroom(0, Cause.CPUS)),
        (1 << 40, 300, 5.0, 1.0, Headroom(0, Cause.CPUS)),
        (1 << 40, 300, 0.2, 0.05, Headroom(76, Cause.CPUS)),
        (None, 0, 0.0, 0.0, Headroom(PLENTY, Cause.MEMORY)),
    ],
)
def test_how_many_more_a_host_has_room_for(
    free: int | None, own: int, used: float, each: float, found: Headroom
) -> None:
    assert room(free, own, cpus=4.0, used=used, each=each) == found
