"""Predicted time to the answer of a new request: tables and properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.backlog import (
    NOTHING,
    STANDING_NS,
    Backlog,
    estimate,
    standing,
    together,
)
from ringbatch.engine.collector.usage import SEVERAL
from ringbatch.shm.lateness import lateness_ns, least_bound_ns

CYCLE = 1000


@pytest.mark.parametrize(
    ("rows", "idle", "ready", "answer", "row"),
    [
        (0, 1, 1, 0, 1 / 8),  # a worker waits for it, and not for all that come with it
        (0, 1, 2, 0, 1 / 16),
        (0, 0, 1, 2, 1 / 8),  # the batch that runs, and its own
        (7, 0, 1, 2, 1 / 8),  # there is a place left in the next
        (8, 0, 1, 3, 1 / 8),
        (80, 0, 1, 12, 1 / 8),
        (80, 0, 2, 7, 1 / 16),
        (80, 0, 4, 4, 1 / 32),
        (3, 1, 1, 1, 1 / 8),  # under the policy "fixed"
        (80, 0, 0, 0, 0),  # nobody knows when there will be a worker
    ],
)
def test_batches_before_it_and_its_own(
    rows: int, idle: int, ready: int, answer: float, row: float
) -> None:
    found = estimate(rows, 8, idle=idle, ready=ready, cycle_ns=CYCLE)
    assert (found.answer_ns, found.row_ns) == (answer * CYCLE, int(row * CYCLE))


@pytest.mark.parametrize(
    ("rows", "least_rows", "idle", "ready", "least"),
    [
        (0, 0, 1, 1, 0),
        (7, 0, 0, 1, 2),  # the next batch takes all that waits
        (80, 0, 0, 1, 2),
        (80, 16, 0, 1, 4),
        (80, 80, 0, 1, 12),
        (80, 16, 0, 2, 3),
    ],
)
def test_least_wait_of_an_account_without_waiting_requests(
    rows: int, least_rows: int, idle: int, ready: int, least: int
) -> None:
    found = estimate(rows, 8, idle, ready, CYCLE, least_rows=least_rows, account=7)
    assert (found.least_ns, found.account) == (least * CYCLE, 7)


def test_a_chain_waits_for_the_account_of_all_its_steps() -> None:
    one, other = Backlog(5, 1, 3, 7), Backlog(6, 1, 4, 8)
    assert together([one, one, Backlog(0, 1, 0, 9)]) == (10, 3, 6, 7, 0)
    assert together([one, other]) == (11, 2, 7, SEVERAL, 0)
    assert together([]) == NOTHING


@pytest.mark.parametrize(
    ("since_ns", "rows", "now_ns", "found"),
    [
        (0, 0, 5, (0, False)),
        (0, 3, 5, (5, False)),
        (5, 3, 4 + STANDING_NS, (5, False)),
        (5, 3, 5 + STANDING_NS, (5, True)),
        (5, 0, 5 + STANDING_NS, (0, False)),
    ],
)
def test_a_queue_stands_that_has_not_been_empty_for_long(
    since_ns: int, rows: int, now_ns: int, found: tuple[int, bool]
) -> None:
    assert standing(since_ns, rows, now_ns) == found


@given(st.integers(1, 1000), st.integers(10**6, 10**11))
def test_while_a_batch_runs_a_full_one_is_let_in(cap: int, cycle_ns: int) -> None:
    """The frontend counts what it has sent and the collector has not taken in yet."""
    found, most_ns = estimate(0, cap, 0, 1, cycle_ns), least_bound_ns(cycle_ns)
    let_in = [
        sent
        for sent in range(2 * cap + 1)
        if lateness_ns(found.answer_ns + sent * found.row_ns, most_ns) <= 0
    ]
    assert let_in[:cap] == [*range(cap)]
    assert len(let_in) <= cap + 2


def test_before_the_first_batch_has_ended_it_is_known_that_something_is_in_the_way() -> None:
    assert estimate(0, 1, idle=1, ready=1, cycle_ns=0) == NOTHING
    assert estimate(0, 1, idle=0, ready=1, cycle_ns=0).answer_ns > 0


@given(
    rows=st.integers(0, 10**6),
    more=st.integers(0, 10**4),
    cap=st.integers(1, 1000),
    ready=st.integers(1, 64),
    idle=st.integers(0, 64),
    cycle_ns=st.integers(1, 10**11),
)
def test_more_waiting_never_makes_it_shorter_and_more_workers_never_longer(
    rows: int, more: int, cap: int, ready: int, idle: int, cycle_ns: int
) -> None:
    idle = min(idle, ready)
    found = estimate(rows, cap, idle=idle, ready=ready, cycle_ns=cycle_ns)
    crowded = estimate(rows + more, cap, idle=idle, ready=ready, cycle_ns=cycle_ns)
    assert crowded.answer_ns >= found.answer_ns
    if not idle:
        helped = estimate(rows, cap, idle=0, ready=2 * ready, cycle_ns=cycle_ns)
        assert helped.answer_ns <= found.answer_ns
    # What is yet to be taken adds as much as it would, were it taken: to within one batch.
    if found.answer_ns and not idle:
        expected = crowded.answer_ns - found.answer_ns
        assert abs(found.row_ns * more - expected) <= 2 * cycle_ns + more
