"""Limits of accounts: refusals, their durations, and the memory of accounts."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.account_limits import (
    SECOND_NS,
    AccountLimiter,
    Limit,
    LimitTable,
    Refused,
)
from ringbatch.shm.account import NOBODY, PriorityClass, account_word
from ringbatch.shm.account_limits import AccountLimits

ONE, OTHER = 7, 8
NOW = 100 * SECOND_NS


def limiter(
    each: AccountLimits | None = None, own: dict[int, AccountLimits] | None = None
) -> AccountLimiter:
    return AccountLimiter(LimitTable(each or AccountLimits(), own))


def sent(at: AccountLimiter, number: int, now_ns: int = NOW, account: int = ONE) -> list[int]:
    """Send requests; the references of those that are let in."""
    references = [next(REFERENCES) for _ in range(number)]
    return [ref for ref in references if at.admit(ref, account, now_ns) is None]


def ran(at: AccountLimiter, ran_ns: int, now_ns: int = NOW, *shares: tuple[int, float]) -> None:
    """Charge a batch with one request for each account and its cost; by default one account."""
    parts = shares or ((ONE, 1.0),)
    at.charge([account for account, _ in parts], [cost for _, cost in parts], ran_ns, now_ns)


REFERENCES = count(1)


@pytest.mark.parametrize(
    ("limits", "let_in", "refused"),
    [
        (AccountLimits(), 9, None),
        (AccountLimits(in_flight=3), 3, Refused(Limit.IN_FLIGHT, 3, 0)),
        (AccountLimits(requests_per_s=4), 4, Refused(Limit.REQUESTS, 4, SECOND_NS // 4)),
        (AccountLimits(requests_per_s=0.5), 1, Refused(Limit.REQUESTS, 0.5, 2 * SECOND_NS)),
        (AccountLimits(in_flight=3, requests_per_s=4), 3, Refused(Limit.IN_FLIGHT, 3, 0)),
        (AccountLimits(3, 2), 2, Refused(Limit.REQUESTS, 2, SECOND_NS // 2)),
    ],
    ids=str,
)
def test_so_many_at_once_are_let_in(
    limits: AccountLimits, let_in: int, refused: Refused | None
) -> None:
    at = limiter(limits)
    assert len(sent(at, 9)) == let_in
    assert at.admit(0, ONE, NOW) == refused


def test_a_request_that_has_left_is_no_longer_in_flight() -> None:
    at = limiter(AccountLimits(in_flight=2))
    first, second = sent(at, 3)
    at.leave([first])
    assert len(sent(at, 2)) == 1
    at.leave([first, second, 12345])
    assert len(sent(at, 2)) == 1


def test_a_request_that_is_submitted_twice_counts_once() -> None:
    at = limiter(AccountLimits(in_flight=2))
    assert at.admit(5, ONE, NOW) is None
    assert at.admit(5, ONE, NOW) is None
    assert len(sent(at, 2)) == 1


def test_accounts_do_not_share_limits_at_any_class_and_weight() -> None:
    at = limiter(AccountLimits(in_flight=1))
    assert sent(at, 1)
    assert not sent(at, 1, account=account_word(ONE, PriorityClass.BULK, 9))
    assert sent(at, 1, account=OTHER)


def test_nobody_in_particular_has_no_limit() -> None:
    at = limiter(AccountLimits(in_flight=1))
    assert len(sent(at, 9, account=NOBODY)) == 9


def test_an_accounts_own_limits_win_one_by_one() -> None:
    at = limiter(AccountLimits(2, 5), {OTHER: AccountLimits(in_flight=9)})
    assert len(sent(at, 9)) == 2
    assert len(sent(at, 9, account=OTHER)) == 5


def test_a_table_without_limits_is_empty() -> None:
    assert LimitTable(AccountLimits(), {ONE: AccountLimits()}).empty
    assert not LimitTable(AccountLimits(in_flight=1)).empty
    assert not LimitTable(own={ONE: AccountLimits(in_flight=1)}).empty


def test_model_seconds_are_charged_by_share_and_refused_until_the_bucket_is_above_zero() -> None:
    at = limiter(AccountLimits(model_s_per_s=0.5))
    # The bucket holds half a second: 0.25 s are left to the one, and the other lacks a second.
    ran(at, 7 * SECOND_NS // 4, NOW, (ONE, 1), (OTHER, 6))
    assert at.admit(1, ONE, NOW) is None
    assert at.admit(2, OTHER, NOW) == Refused(Limit.MODEL_S, 0.5, 2 * SECOND_NS + 1)
    assert at.admit(2, OTHER, NOW + 2 * SECOND_NS) == Refused(Limit.MODEL_S, 0.5, 1)
    assert at.admit(2, OTHER, NOW + 2 * SECOND_NS + 1) is None


def test_batches_add_up() -> None:
    at = limiter(AccountLimits(model_s_per_s=1))
    ran(at, SECOND_NS)
    ran(at, SECOND_NS, NOW + SECOND_NS // 4)
    refused = at.admit(1, ONE, NOW + SECOND_NS // 4)
    assert refused == Refused(Limit.MODEL_S, 1, 3 * SECOND_NS // 4 + 1)


def test_the_longest_wait_is_in_the_refusal() -> None:
    at = limiter(AccountLimits(requests_per_s=1, model_s_per_s=1))
    sent(at, 1)
    ran(at, 3 * SECOND_NS)
    assert at.admit(0, ONE, NOW) == Refused(Limit.MODEL_S, 1, 2 * SECOND_NS + 1)


def test_other_limits_apply_at_once() -> None:
    at = limiter(AccountLimits(in_flight=2))
    assert len(sent(at, 9)) == 2
    at.table = LimitTable(AccountLimits(in_flight=5))
    assert len(sent(at, 9)) == 3


def test_accounts_at_rest_are_forgotten() -> None:
    at = limiter(AccountLimits(in_flight=3, requests_per_s=10))
    held = sent(at, 1, NOW, account=1)
    for number in range(2, 20_000):
        (ref,) = sent(at, 1, NOW + number * SECOND_NS // 100, account=number)
        at.leave([ref])
        # A bucket is full again after a tenth of a second, in which ten accounts come.
        assert at.accounts <= 25
    assert len(sent(at, 9, NOW + 20_000 * SECOND_NS, account=1)) == 2, "it has one in flight"
    at.leave(held)


RATES = st.floats(min_value=0.01, max_value=1000)
GAPS = st.integers(min_value=0, max_value=3 * SECOND_NS)


@given(RATES, st.lists(GAPS, max_size=60))
def test_no_bucket_lets_through_more_than_burst_and_rate(rate: float, gaps: list[int]) -> None:
    at, now_ns = limiter(AccountLimits(requests_per_s=rate)), NOW
    let_in: list[int] = []
    for gap_ns in gaps:
        now_ns += gap_ns
        let_in += [now_ns for _ in sent(at, 5, now_ns)]
    burst = max(1.0, rate)
    for first, begun_ns in enumerate(let_in):
        for last, ended_ns in enumerate(let_in[first:], 1):
            assert last <= burst + rate * (ended_ns - begun_ns) / SECOND_NS + 1e-6


@given(RATES, st.lists(st.tuples(GAPS, st.integers(0, 5 * SECOND_NS)), max_size=40))
def test_model_seconds_stay_below_burst_and_rate_and_one_batch(
    rate: float, batches: list[tuple[int, int]]
) -> None:
    at, now_ns, used_ns = limiter(AccountLimits(model_s_per_s=rate)), NOW, 0
    for gap_ns, run_ns in batches:
        now_ns += gap_ns
        if sent(at, 1, now_ns):
            assert used_ns <= rate * (SECOND_NS + now_ns - NOW) + 1
            ran(at, run_ns, now_ns)
            used_ns += run_ns


@given(
    st.none() | RATES,
    st.none() | RATES,
    st.lists(st.tuples(GAPS, st.integers(1, 4), st.integers(0, 3 * SECOND_NS)), max_size=30),
)
def test_after_the_wait_a_request_is_let_in_and_not_before(
    requests_per_s: float | None, model_s_per_s: float | None, events: list[tuple[int, int, int]]
) -> None:
    at, now_ns = limiter(AccountLimits(None, requests_per_s, model_s_per_s)), NOW
    for gap_ns, number, run_ns in events:
        now_ns += gap_ns
        sent(at, number, now_ns)
        ran(at, run_ns, now_ns)
        sent(at, 1, now_ns, OTHER)
        refused = at.admit(next(REFERENCES), ONE, now_ns)
        if refused is not None:
            assert at.admit(next(REFERENCES), ONE, now_ns + refused.wait_ns - 1) is not None
            now_ns += refused.wait_ns
            assert at.admit(next(REFERENCES), ONE, now_ns) is None
