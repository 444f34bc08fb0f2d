"""Closing of a batch: the table of cases, one nanosecond at a time, and rules for all cases."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.batching import Pending, Policy, Wait, decide, fitting, taking
from ringbatch.shm.slot import Reason

MAX = 8
LATENCY = 1_000
ACCEPTED = 50_000
DUE = ACCEPTED + LATENCY
FAR = 10**12

FIXED = Policy(MAX, LATENCY, eager=False)
EAGER = Policy(MAX, LATENCY, eager=True)


def pending(
    requests: int = 1,
    rows: int | None = None,
    oldest_ns: int = ACCEPTED,
    deadline_ns: int = FAR,
    others: bool = False,
    retry: bool = False,
) -> Pending:
    rows = requests if rows is None else rows
    return Pending(requests, rows, oldest_ns, deadline_ns, others, retry=retry)


BUSY = {"idle_workers": 0}
AHEAD = {"idle_workers": 0, "takes_next": True}
NEXT = ACCEPTED + 300
ENDING = {"idle_workers": 0, "next_ns": NEXT}


CASES = {
    "fixed-waits-for-company-from-the-start": (FIXED, pending(), ACCEPTED, {}, Wait(DUE)),
    "fixed-still-waits-one-nanosecond-before": (FIXED, pending(), DUE - 1, {}, Wait(DUE)),
    "fixed-closes-at-the-very-latency": (FIXED, pending(), DUE, {}, Reason.LATENCY),
    "fixed-closes-after-the-latency": (FIXED, pending(), DUE + 1, {}, Reason.LATENCY),
    "latency-counts-from-oldest": (FIXED, pending(oldest_ns=ACCEPTED - 1), DUE - 1, {},
        Reason.LATENCY),
    "latecomer-does-not-extend": (FIXED, pending(requests=7), DUE - 1, {}, Wait(DUE)),
    "zero-latency-closes-at-once": (replace(FIXED, max_latency_ns=0), pending(), ACCEPTED, {},
        Reason.LATENCY),
    "one-row-below-the-cap-is-not-full": (FIXED, pending(rows=MAX - 1), ACCEPTED, {}, Wait(DUE)),
    "full-at-the-very-cap": (FIXED, pending(rows=MAX), ACCEPTED, {}, Reason.FULL),
    "full-beyond-the-cap": (FIXED, pending(rows=MAX + 1), ACCEPTED, {}, Reason.FULL),
    "rows-count-not-requests": (FIXED, pending(requests=1, rows=MAX), ACCEPTED, {},
        Reason.FULL),
    "full-is-the-reason-even-when-late": (FIXED, pending(rows=MAX), DUE, {}, Reason.FULL),
    "deadline-waits-one-nanosecond-before": (FIXED, pending(deadline_ns=ACCEPTED + 500),
        ACCEPTED + 399, {"service_ns": 100}, Wait(ACCEPTED + 400)),
    "deadline-closes-a-service-time-ahead": (FIXED, pending(deadline_ns=ACCEPTED + 500),
        ACCEPTED + 400, {"service_ns": 100}, Reason.DEADLINE),
    "a-worker-that-is-about-to-end-is-waited-for": (EAGER, pending(), NEXT - 1, ENDING, Wait(NEXT)),
    "a-worker-that-is-about-to-end-takes-any": (EAGER, pending(), NEXT, ENDING, Reason.IDLE),
    "a-full-one-grows-no-more-and-waits-so": (EAGER, pending(rows=MAX), NEXT - 1, ENDING,
        Wait(NEXT)),
    "a-full-one-goes-before-if-nobody-is-free-sooner": (EAGER, pending(rows=MAX), NEXT - 1,
        {**AHEAD, **ENDING}, Reason.FULL),
    "fixed-waits-for-its-latency-then-too": (FIXED, pending(), NEXT, ENDING, Wait(DUE)),
    "fixed-closes-at-its-latency-then-too": (FIXED, pending(), DUE, ENDING, Reason.LATENCY),
    "a-retry-waits-for-an-idle-worker": (EAGER, pending(retry=True), NEXT, ENDING,
        Wait(None)),
    "an-engine-that-drains-waits-for-that-instant-too": (FIXED, pending(), NEXT - 1,
        {**ENDING, "draining": True}, Wait(NEXT)),
    "deadline-already-missed-still-closes": (FIXED, pending(deadline_ns=ACCEPTED - 5),
        ACCEPTED, {}, Reason.DEADLINE),
    "nearly-all-runs-count-while-there-is-time-for-them": (
        FIXED, pending(deadline_ns=ACCEPTED + 500), ACCEPTED,
        {"service_ns": 500, "usual_ns": 100}, Reason.DEADLINE),
    "the-average-counts-if-the-longest-runs-are-late-anyway": (
        FIXED, pending(deadline_ns=ACCEPTED + 500), ACCEPTED,
        {"service_ns": 501, "usual_ns": 100}, Wait(ACCEPTED + 400)),
    "an-average-above-nearly-all-runs-does-not-count": (
        FIXED, pending(deadline_ns=ACCEPTED + 500), ACCEPTED,
        {"service_ns": 501, "usual_ns": 600}, Reason.DEADLINE),
    "half-of-the-time-is-for-a-run-of-unknown-length": (
        FIXED, pending(deadline_ns=ACCEPTED + 500), ACCEPTED, {"usual_ns": 100},
        Wait(ACCEPTED + 250)),
    "latency-comes-before-a-later-deadline": (FIXED, pending(deadline_ns=DUE + 101), ACCEPTED,
        {"service_ns": 100}, Wait(DUE)),
    "drain-waits-for-nobody": (FIXED, pending(), ACCEPTED, {"draining": True},
        Reason.DRAIN),
    "full-is-the-reason-even-when-draining": (FIXED, pending(rows=MAX), ACCEPTED,
        {"draining": True}, Reason.FULL),
    "eager-closes-a-lone-request-at-once": (EAGER, pending(), ACCEPTED, {}, Reason.IDLE),
    "eager-is-full-at-the-cap": (EAGER, pending(rows=MAX), ACCEPTED, {}, Reason.FULL),
    "eager-names-the-shapes-that-kept-it-small": (EAGER, pending(others=True), ACCEPTED, {},
        Reason.SHAPE),
    "eager-with-other-shapes-is-full-at-the-cap": (EAGER, pending(rows=MAX, others=True),
        ACCEPTED, {}, Reason.FULL),
    "eager-draining-says-drain": (EAGER, pending(), ACCEPTED, {"draining": True},
        Reason.DRAIN),
    "eager-lingers-for-those-about-to-come-back": (EAGER, pending(), ACCEPTED,
        {"linger_until_ns": DUE}, Wait(DUE)),
    "eager-lingers-no-longer": (EAGER, pending(), DUE, {"linger_until_ns": DUE}, Reason.IDLE),
    "eager-does-not-linger-when-full": (EAGER, pending(rows=MAX), ACCEPTED,
        {"linger_until_ns": DUE}, Reason.FULL),
    "eager-does-not-linger-before-other-shapes": (EAGER, pending(others=True), ACCEPTED,
        {"linger_until_ns": DUE}, Reason.SHAPE),
    "eager-does-not-linger-when-draining": (EAGER, pending(), ACCEPTED,
        {"linger_until_ns": DUE, "draining": True}, Reason.DRAIN),
    "eager-lingers-until-a-deadline-is-near": (EAGER, pending(deadline_ns=ACCEPTED + 500),
        ACCEPTED, {"linger_until_ns": DUE, "service_ns": 100}, Wait(ACCEPTED + 400)),
    "retry-does-not-linger": (EAGER, pending(retry=True), ACCEPTED, {"linger_until_ns": DUE},
        Reason.RETRY),
    "fixed-does-not-linger": (FIXED, pending(), DUE, {"linger_until_ns": DUE + 500},
        Reason.LATENCY),
    "full-of-elements-before-it-is-full-of-rows": (FIXED, pending()._replace(full=True), ACCEPTED,
        {}, Reason.FULL),
    "eager-is-full-of-elements-too": (EAGER, pending()._replace(full=True), ACCEPTED, {},
        Reason.FULL),
    "full-of-elements-without-a-worker": (FIXED, pending()._replace(full=True), ACCEPTED,
        {"idle_workers": 0}, Wait(None)),
    "fixed-does-not-care-for-other-shapes": (FIXED, pending(others=True), ACCEPTED, {}, Wait(DUE)),
    "no-idle-worker-waits-for-ever": (FIXED, pending(), DUE, {"idle_workers": 0}, Wait(None)),
    "no-idle-worker-even-when-full": (FIXED, pending(rows=MAX), DUE, {"idle_workers": 0},
        Wait(None)),
    "no-idle-worker-even-when-draining": (EAGER, pending(), DUE,
        {"idle_workers": 0, "draining": True}, Wait(None)),
    "full-goes-ahead-to-a-busy-worker": (EAGER, pending(rows=MAX), ACCEPTED, AHEAD, Reason.FULL),
    "fixed-goes-ahead-when-full-too": (FIXED, pending(rows=MAX + 1), ACCEPTED, AHEAD, Reason.FULL),
    "one-row-below-the-cap-does-not-go-ahead": (EAGER, pending(rows=MAX - 1), DUE, AHEAD,
        Wait(None)),
    "full-of-elements-does-not-go-ahead": (EAGER, pending()._replace(full=True), DUE, AHEAD,
        Wait(None)),
    "retried-at-once-eager": (EAGER, pending(retry=True), ACCEPTED, {}, Reason.RETRY),
    "retried-at-once-fixed": (FIXED, pending(retry=True), ACCEPTED, {}, Reason.RETRY),
    "retry-is-the-reason-even-when-full": (FIXED, pending(rows=MAX, retry=True), DUE, {},
        Reason.RETRY),
    "retry-is-the-reason-even-when-draining": (FIXED, pending(retry=True), DUE,
        {"draining": True}, Reason.RETRY),
    "retry-waits-for-an-idle-worker": (FIXED, pending(retry=True), DUE, BUSY, Wait(None)),
    "retry-does-not-go-ahead": (FIXED, pending(rows=MAX, retry=True), DUE, AHEAD, Wait(None)),
}  # fmt: skip


@pytest.mark.parametrize(("policy", "waiting", "now_ns", "more", "decision"), CASES.values(),
                         ids=CASES.keys())  # fmt: skip
def test_decision(
    policy: Policy, waiting: Pending, now_ns: int, more: dict[str, int], decision: Reason | Wait
) -> None:
    arguments = {"idle_workers": 1} | more
    found = decide(waiting, now_ns, policy, **arguments)  # type: ignore[arg-type]
    assert type(found) is type(decision)
    assert found == decision


instants = st.integers(0, 10**6)
policies = st.builds(
    Policy, max_batch_size=st.integers(1, 64), max_latency_ns=instants, eager=st.booleans()
)
waiting_queues = st.builds(
    Pending,
    requests=st.integers(1, 64),
    rows=st.integers(1, 100),
    oldest_ns=instants,
    deadline_ns=instants,
    others=st.booleans(),
    full=st.booleans(),
    retry=st.booleans(),
)
workers = st.integers(1, 4)
service_times = st.integers(0, 10**5)


@given(waiting_queues, instants, policies, workers, service_times, instants)
def test_asked_again_at_the_instant_it_named_it_closes(
    waiting: Pending, now_ns: int, policy: Policy, idle: int, service_ns: int, linger_ns: int
) -> None:
    decision = decide(
        waiting, now_ns, policy, idle, service_ns=service_ns, linger_until_ns=linger_ns
    )
    if isinstance(decision, Wait):
        assert decision.until_ns is not None
        assert decision.until_ns > now_ns, "it would be asked again at once, and spin"
        again = decide(
            waiting,
            decision.until_ns,
            policy,
            idle,
            service_ns=service_ns,
            linger_until_ns=linger_ns,
        )
        assert isinstance(again, Reason)


@given(waiting_queues, instants, policies, workers, service_times, instants)
def test_until_the_instant_it_named_it_goes_on_waiting(
    waiting: Pending, now_ns: int, policy: Policy, idle: int, service_ns: int, linger_ns: int
) -> None:
    decision = decide(
        waiting, now_ns, policy, idle, service_ns=service_ns, linger_until_ns=linger_ns
    )
    if isinstance(decision, Wait):
        assert decision.until_ns is not None
        just_before = decide(
            waiting,
            decision.until_ns - 1,
            policy,
            idle,
            service_ns=service_ns,
            linger_until_ns=linger_ns,
        )
        assert just_before == decision


@given(waiting_queues, instants, policies, workers, service_times, st.booleans())
def test_eager_does_not_wait_while_a_worker_is_idle_and_nobody_is_about_to_come_back(
    waiting: Pending, now_ns: int, policy: Policy, idle: int, service_ns: int, draining: bool
) -> None:
    decision = decide(
        waiting,
        now_ns,
        replace(policy, eager=True),
        idle_workers=idle,
        service_ns=service_ns,
        draining=draining,
    )
    assert isinstance(decision, Reason)


@given(waiting_queues, policies, workers, st.integers(0, 10**6))
def test_with_a_worker_idle_nothing_waits_longer_than_the_latency(
    waiting: Pending, policy: Policy, idle: int, beyond_ns: int
) -> None:
    at_ns = waiting.oldest_ns + policy.max_latency_ns + beyond_ns
    assert isinstance(decide(waiting, at_ns, policy, idle_workers=idle), Reason)


@given(waiting_queues, instants, policies, st.booleans(), service_times, st.booleans())
def test_without_an_idle_worker_only_the_oldest_closes_where_full_and_no_instant_is_named(
    waiting: Pending,
    now_ns: int,
    policy: Policy,
    takes_next: bool,
    service_ns: int,
    draining: bool,
) -> None:
    decision = decide(
        waiting,
        now_ns,
        policy,
        idle_workers=0,
        takes_next=takes_next,
        service_ns=service_ns,
        draining=draining,
    )
    full = waiting.rows >= policy.max_batch_size
    if takes_next and full and not waiting.retry:
        assert decision is Reason.FULL
    else:
        assert decision == Wait(None)


@given(waiting_queues, instants, policies, st.booleans(), service_times, st.integers(0, 10**6))
def test_a_busy_worker_counts_as_idle_from_the_instant_on_but_for_retries(
    waiting: Pending,
    now_ns: int,
    policy: Policy,
    draining: bool,
    service_ns: int,
    next_ns: int,
) -> None:
    decided = partial(decide, waiting, now_ns, policy, service_ns=service_ns, draining=draining)
    decision = decided(idle_workers=0, next_ns=next_ns)
    if waiting.retry:
        assert decision == Wait(None)
    elif now_ns < next_ns:
        assert decision == Wait(next_ns)
    else:
        assert decision == decided(idle_workers=1)


@given(waiting_queues, instants, policies, workers, st.booleans())
def test_retry_is_the_reason_for_retried_requests_and_for_nothing_else(
    waiting: Pending, now_ns: int, policy: Policy, idle: int, draining: bool
) -> None:
    decision = decide(waiting, now_ns, policy, idle_workers=idle, draining=draining)
    assert (decision is Reason.RETRY) is waiting.retry


@given(waiting_queues, instants, policies, st.integers(0, 4), st.integers(0, 10**6))
def test_only_the_distance_between_instants_matters(
    waiting: Pending, now_ns: int, policy: Policy, idle: int, later_ns: int
) -> None:
    shifted = waiting._replace(
        oldest_ns=waiting.oldest_ns + later_ns,
        deadline_ns=waiting.deadline_ns + later_ns,
    )
    here = decide(waiting, now_ns, policy, idle_workers=idle)
    there = decide(shifted, now_ns + later_ns, policy, idle_workers=idle)
    if isinstance(here, Wait) and here.until_ns is not None:
        here = Wait(here.until_ns + later_ns)
    assert here == there


@pytest.mark.parametrize(
    ("rows", "costs_ns", "taken"),
    [
        (3, (), 3),
        (5, (), 5),
        (5, (10, 20, 80), 4),
        (8, (10, 20, 80), 8),
        (50, (10, 20, 80), 8),
        (50, (), 8),
    ],
)
def test_a_batch_takes_as_many_rows_as_pay(
    rows: int, costs_ns: tuple[int, ...], taken: int
) -> None:
    assert taking(rows, replace(EAGER, sizes=(1, 4, 8), costs_ns=costs_ns)) == taken


FITTING = {
    "all-fit": ([1, 2, 3], 8, 3),
    "all-fit-exactly": ([1, 2, 5], 8, 3),
    "excess-stays-behind": ([4, 4, 1], 8, 2),
    "no-later-small-one-overtakes": ([4, 5, 1], 8, 1),
    "a-single-one-over-the-cap-goes-alone": ([9, 1], 8, 1),
    "nothing-fits-nothing": ([], 8, 0),
}


@pytest.mark.parametrize(("rows", "cap", "count"), FITTING.values(), ids=FITTING.keys())
def test_fitting(rows: list[int], cap: int, count: int) -> None:
    assert fitting(rows, cap) == count


@given(st.lists(st.integers(1, 70), min_size=1), st.integers(1, 64))
def test_a_batch_exceeds_the_cap_only_where_a_single_request_does(
    rows: list[int], cap: int
) -> None:
    count = fitting(rows, cap)
    assert 1 <= count <= len(rows)
    if sum(rows[:count]) > cap:
        assert count == 1


@given(st.lists(st.integers(1, 70), min_size=1), st.integers(1, 64))
def test_as_many_as_fit_are_taken(rows: list[int], cap: int) -> None:
    count = fitting(rows, cap)
    if count < len(rows):
        assert sum(rows[: count + 1]) > cap


@given(st.lists(st.integers(1, 9), min_size=1), st.integers(1, 8))
def test_no_more_rows_are_looked_at_than_needed(rows: list[int], cap: int) -> None:
    looked_at = 0

    def watched() -> Iterable[int]:
        nonlocal looked_at
        for own in rows:
            looked_at += 1
            yield own

    assert looked_at <= fitting(watched(), cap) + 1
