"""The restart rule: the table, and what holds for any history."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.mutation import Mutant

from ringbatch.engine.process import respawn
from ringbatch.engine.process.respawn import (
    BUDGET,
    CURED_NS,
    FIRST,
    LOADING_BUDGET,
    MOST_AWAITED_NS,
    MOST_DELAY_S,
    MOST_OWN_DELAY_S,
    NO_RENEWALS,
    OWN_STEADY_NS,
    STEADY_NS,
    Record,
    Renewals,
    Restart,
    again,
    awaited_ns,
    case_of,
    next_delay,
)
from ringbatch.shm.counters import RestartCase

S = 1_000_000_000
MINUTE = 60 * S
NOW = 1_000 * S

CRASHED, LOADING, REFUSED = RestartCase.CRASHED, RestartCase.LOADING, RestartCase.REFUSED
ANSWERED, KILLED = RestartCase.ANSWERED, RestartCase.KILLED
KILLED_LOADING = RestartCase.KILLED_LOADING
EXPLAINED, FAILING = RestartCase.EXPLAINED, RestartCase.FAILING
DELAYED = (CRASHED, LOADING, REFUSED)
BUDGETS = {KILLED: BUDGET, ANSWERED: BUDGET, KILLED_LOADING: LOADING_BUDGET}

jitters = st.floats(0, 1, exclude_max=True)
failures = st.integers(0, 10_000)
cases = st.sampled_from(RestartCase)
lives = st.integers(0, 2 * STEADY_NS)
times = st.lists(st.integers(NOW - 2 * MINUTE, NOW), max_size=2 * BUDGET).map(
    lambda found: tuple(sorted(found))
)
records = st.builds(Record, st.integers(0, 20), times)


def recent(count: int, ago_ns: int = S) -> tuple[int, ...]:
    """Return the times of so many restarts, all so long ago."""
    return (NOW - ago_ns,) * count


def then(count: int) -> tuple[int, ...]:
    """Return so many restarts a second ago, and one now."""
    return (*recent(count), NOW)


class Row(NamedTuple):
    """A row of the table: what there was, and what follows with a jitter of 0.5."""

    title: str
    case: RestartCase
    before: Record
    lived_ns: int
    delay_s: float
    after: Record
    own: bool = False


TABLE = [
    Row("explained", EXPLAINED, Record(9, recent(30)), 5, 0.0, FIRST),
    Row("failing", FAILING, Record(9, recent(30)), 5, 0.0, Record(9, recent(30))),
    Row("killed", KILLED, FIRST, 5, 0.0, Record(0, (NOW,))),
    Row("killed after failures", KILLED, Record(7), 5, 0.0, Record(7, (NOW,))),
    Row("the last of the budget", KILLED, Record(0, recent(29)), 5, 0.0, Record(0, then(29))),
    Row("first beyond the budget", KILLED, Record(0, recent(30)), 5, 0.0, Record(1, recent(30))),
    Row("then it waits", KILLED, Record(1, recent(30)), 5, 0.75, Record(2, recent(30))),
    Row("and longer", KILLED, Record(6, recent(30)), 5, 22.5, Record(7, recent(30))),
    Row("a minute later", KILLED, Record(6, recent(30, MINUTE)), 5, 0.0, Record(6, (NOW,))),
    Row(
        "a nanosecond sooner",
        KILLED,
        Record(6, recent(30, MINUTE - 1)),
        5,
        22.5,
        Record(7, recent(30, MINUTE - 1)),
    ),
    Row("killed loading", KILLED_LOADING, FIRST, 0, 0.0, Record(0, (NOW,))),
    Row("loading budget", KILLED_LOADING, Record(0, recent(4)), 0, 0.0, Record(0, then(4))),
    Row("beyond it", KILLED_LOADING, Record(3, recent(5)), 0, 3.0, Record(4, recent(5))),
    Row("answered", ANSWERED, FIRST, 5, 0.0, Record(0, (NOW,))),
    Row("answered ends a row", ANSWERED, Record(7), 5, 0.0, Record(0, (NOW,))),
    Row("answered too often", ANSWERED, Record(3, recent(30)), 5, 3.0, Record(4, recent(30))),
    Row("crashed", CRASHED, FIRST, 5, 0.0, Record(1)),
    Row("crashed again", CRASHED, Record(1), 5, 0.75, Record(2)),
    Row("too short a life", CRASHED, Record(9), STEADY_NS - 1, 22.5, Record(10)),
    Row("a long life", CRASHED, Record(9), STEADY_NS, 0.0, Record(1)),
    Row("fails to load", LOADING, Record(2), 0, 1.5, Record(3)),
    Row("a budget is no use to it", LOADING, Record(2, recent(1)), 0, 1.5, Record(3, recent(1))),
    Row("no process", REFUSED, Record(2), 0, 1.5, Record(3)),
    Row("killed in a long life", KILLED, Record(9), STEADY_NS, 0.0, Record(0, (NOW,))),
    Row("own: killed", KILLED, FIRST, 5, 0.0, Record(0, (NOW,)), own=True),
    Row("own: crashed", CRASHED, Record(9), OWN_STEADY_NS - 1, 2.0, Record(10), own=True),
    Row("own: a long life", CRASHED, Record(9), OWN_STEADY_NS, 0.0, Record(1), own=True),
]


def follows(row: Row) -> Restart:
    return respawn.again(
        row.before, row.case, now_ns=NOW, lived_ns=row.lived_ns, jitter=0.5, own=row.own
    )


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.title)
def test_the_table(row: Row) -> None:
    assert follows(row) == Restart(row.delay_s, row.after)


WRONG = {
    "an explained death counts": ("if case is RestartCase.EXPLAINED:", "if False:"),
    "an explained death forgets nothing": ("Restart(0.0, FIRST)", "Restart(0.0, record)"),
    "a renewal counts": ("if case is RestartCase.FAILING:", "if False:"),
    "a renewal forgets": ("Restart(0.0, record)", "Restart(0.0, FIRST)"),
    "a long life is forgotten": ("0 if steady else record.failures", "record.failures"),
    "own processes must live as long": ("OWN_STEADY_NS if own else STEADY_NS", "STEADY_NS"),
    "workers need live no longer": ("OWN_STEADY_NS if own else STEADY_NS", "OWN_STEADY_NS"),
    "a life that is just long enough is not": ("lived_ns >= (", "lived_ns > ("),
    "the minute does not pass": ("if now_ns - ns < _MINUTE_NS", "if True"),
    "the minute is over at once": ("if now_ns - ns < _MINUTE_NS", "if False"),
    "the minute is too long": ("now_ns - ns < _MINUTE_NS", "now_ns - ns <= _MINUTE_NS"),
    "there is no budget": ("if len(recent) < _BUDGETS.get(case, 0):", "if False:"),
    "the budget is one more": ("len(recent) < _BUDGETS", "len(recent) <= _BUDGETS"),
    "everybody has a budget": ("_BUDGETS.get(case, 0)", "_BUDGETS.get(case, BUDGET)"),
    "all have the same budget": ("_BUDGETS.get(case, 0)", "BUDGET * (case in _BUDGETS)"),
    "an answered death stays in its row": ("if case is RestartCase.ANSWERED:", "if False:"),
    "a killed process has answered": ("if case is RestartCase.ANSWERED:", "if True:"),
    "a start at once is not counted": ("(*recent, now_ns)", "recent"),
    "failures are not counted": ("failures += 1", "pass"),
    "the budget comes back with a failure": ("Record(failures, recent))", "Record(failures))"),
    "own processes wait as long": ("MOST_OWN_DELAY_S if own else MOST_DELAY_S", "MOST_DELAY_S"),
    "workers wait no longer": ("MOST_OWN_DELAY_S if own else MOST_DELAY_S", "MOST_OWN_DELAY_S"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_table_finds_a_wrong_rule(wrong: str) -> None:
    with Mutant(respawn, "again", *WRONG[wrong]).applied():
        assert any(follows(row) != Restart(row.delay_s, row.after) for row in TABLE)


@pytest.mark.parametrize(
    ("killed", "ready", "answered", "failing", "case"),
    [
        (False, True, True, True, FAILING),
        (True, True, True, True, FAILING),
        (True, True, True, False, KILLED),
        (True, True, False, False, KILLED),
        (True, False, False, False, KILLED_LOADING),
        (False, False, False, False, LOADING),
        (False, True, True, False, ANSWERED),
        (False, True, False, False, CRASHED),
    ],
)
def test_the_case_of_an_end(
    killed: bool, ready: bool, answered: bool, failing: bool, case: RestartCase
) -> None:
    assert case_of(killed=killed, ready=ready, answered=answered, failing=failing) is case


@pytest.mark.parametrize(
    ("failures_in_a_row", "least_s", "most_s"),
    [
        (0, 0.0, 0.0),
        (1, 0.0, 0.0),
        (2, 0.5, 1.0),
        (3, 1.0, 2.0),
        (4, 2.0, 4.0),
        (5, 4.0, 8.0),
        (6, 8.0, 16.0),
        (7, 15.0, 30.0),
        (8, 15.0, 30.0),
        (10**9, 15.0, 30.0),
    ],
)
def test_delays_double_up_to_half_a_minute(
    failures_in_a_row: int, least_s: float, most_s: float
) -> None:
    assert next_delay(failures_in_a_row, 0.0) == least_s
    assert next_delay(failures_in_a_row, 1.0) == most_s


@given(failures, jitters)
def test_a_delay_is_never_negative_and_never_above_the_cap(count: int, jitter: float) -> None:
    assert 0 <= next_delay(count, jitter) <= MOST_DELAY_S


@given(failures, jitters)
def test_one_more_failure_never_shortens_the_delay(count: int, jitter: float) -> None:
    assert next_delay(count, jitter) <= next_delay(count + 1, jitter)


@given(failures, jitters)
def test_a_later_restart_waits_at_least_half_of_the_longest(count: int, jitter: float) -> None:
    assert next_delay(count, jitter) >= next_delay(count, 0.999999) / 2


@given(records, cases, lives, jitters)
def test_a_process_of_our_own_waits_less_long(
    record: Record, case: RestartCase, lived_ns: int, jitter: float
) -> None:
    found = again(record, case, now_ns=NOW, lived_ns=lived_ns, jitter=jitter, own=True)
    assert found.delay_s <= MOST_OWN_DELAY_S


@given(st.lists(st.tuples(st.sampled_from(DELAYED), lives, jitters), min_size=1, max_size=30))
def test_without_an_answer_the_row_goes_on_until_a_long_life(
    ends: list[tuple[RestartCase, int, float]],
) -> None:
    record, expected = FIRST, 0
    for case, lived_ns, jitter in ends:
        found = again(record, case, now_ns=NOW, lived_ns=lived_ns, jitter=jitter)
        expected = 1 if lived_ns >= STEADY_NS else expected + 1
        assert found == Restart(next_delay(expected, jitter), Record(expected))
        record = found.record


@given(
    st.lists(
        st.tuples(st.sampled_from(tuple(BUDGETS)), st.integers(0, 3 * S)), min_size=1, max_size=200
    )
)
def test_restarts_at_once_keep_to_their_budget_in_every_minute(
    ends: list[tuple[RestartCase, int]],
) -> None:
    """Beyond it there is at most the first of a row, which waits for nothing either."""
    record, now_ns, at_once = FIRST, NOW, list[int]()
    for case, passed_ns in ends:
        now_ns += passed_ns
        found = again(record, case, now_ns=now_ns, lived_ns=1, jitter=0.0)
        in_a_minute = [ns for ns in at_once if now_ns - ns < MINUTE]
        if len(in_a_minute) < BUDGETS[case]:
            assert found.delay_s == 0.0
            at_once.append(now_ns)
        else:
            assert found.record.failures == record.failures + 1
            assert found.delay_s == next_delay(found.record.failures, 0.0)
        record = found.record


def test_a_model_that_dies_with_every_second_batch_backs_off() -> None:
    """Its worker takes 0.3 s to be ready and 0.1 s to die: at most the budget, and a few."""
    record, now_ns, starts = FIRST, NOW, list[int]()
    while now_ns < NOW + 10 * MINUTE:
        found = again(record, ANSWERED, now_ns=now_ns, lived_ns=S // 10, jitter=0.5)
        record = found.record
        now_ns += int(found.delay_s * S)
        starts.append(now_ns)
        now_ns += 4 * S // 10
    for first in starts:
        in_a_minute = sum(first <= start < first + MINUTE for start in starts)
        assert in_a_minute <= BUDGET + 7
    assert len(starts) > 10 * BUDGET


@pytest.mark.parametrize(
    ("times", "passed_s", "delay_s"),
    [
        pytest.param(0, 0, 0, id="the-first-comes-at-once"),
        pytest.param(1, 0, 60, id="the-next-waits-a-minute"),
        pytest.param(1, 20, 40, id="from-the-start-of-the-last"),
        pytest.param(1, 61, 0, id="and-no-longer"),
        pytest.param(2, 0, 120, id="then-twice-as-long"),
        pytest.param(4, 0, 480, id="and-twice-as-long-again"),
        pytest.param(5, 0, 600, id="up-to-ten-minutes"),
        pytest.param(10**9, 0, 600, id="for-ever"),
    ],
)
def test_when_a_worker_that_fails_every_request_is_started_anew(
    times: int, passed_s: int, delay_s: int
) -> None:
    now_ns = NOW + passed_s * S
    assert Renewals(times, NOW).due_ns(now_ns) - now_ns == delay_s * S


def test_only_a_process_that_answered_for_long_shows_that_a_new_one_is_a_cure() -> None:
    record = Renewals(3, NOW)
    assert record.after(CURED_NS - 1) == record
    assert record.after(CURED_NS) == NO_RENEWALS
    assert record.begun(NOW + 5) == Renewals(4, NOW + 5)


@given(st.integers(0, 100 * S), st.integers(0, 100 * S))
def test_while_requests_wait_no_delay_is_longer_than_a_second(delay_ns: int, ended_ns: int) -> None:
    due_ns = awaited_ns(ended_ns + delay_ns, ended_ns)
    assert due_ns - ended_ns == min(delay_ns, MOST_AWAITED_NS)
