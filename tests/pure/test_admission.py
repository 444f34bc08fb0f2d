"""Requests that go before a new one by its account's turn, against the order of service."""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.mutation import Mutant

from ringbatch.engine.collector.fair_order import FairOrder
from ringbatch.engine.collector.queues import Queues
from ringbatch.engine.collector.usage import SEVERAL, Usage, without_repeats
from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.errors import Overloaded
from ringbatch.shm.lateness import lateness_ns, overload_text, read_overload

A, B, C = 1, 2, 3
NEW: Final = 1_000_000
LARGEST: Final = 8
INTERACTIVE_B = account_word(B, PriorityClass.INTERACTIVE)
BULK_B = account_word(B, PriorityClass.BULK)


def request(ref: int, account: int, rows: int = 1) -> Request:
    return Request(ref, 0, rows, 0, 0, 0, 0, 0, ref, 1 << 62, account)


def requests(*lines: tuple[int, int], rows: int = 1) -> list[Request]:
    """Return so many requests for each account, one account after the other."""
    words = [account for account, number in lines for _ in range(number)]
    return [request(ref, account, rows) for ref, account in enumerate(words)]


def queues_of(waiting: Sequence[Request]) -> Queues:
    queues = Queues()
    if waiting:
        rows = sum(each.rows for each in waiting)
        queues.extend(b"", waiting, rows, 1 << 62, without_repeats([r.account for r in waiting]))
    return queues


def really_before(queues: Queues, new: Request) -> int:
    """Return the number of instances that are taken before a new request."""
    queues.extend(b"", [new], new.rows, 1 << 62, (new.account,))
    rows = 0
    while True:
        # A batch of one instance takes one request, whatever its rows.
        (taken,) = queues.take(queues.first(0), 1)
        if taken.ref == NEW:
            return rows
        rows += taken.rows


CASES: Final = {
    "nothing waits": ([], A, 0),
    "its own line": (requests((A, 100)), A, 100),
    "beside a flood": (requests((A, 500)), B, 1),
    "a flood beside a polite account": (requests((A, 500), (B, 1)), A, 501),
    "three equal floods": (requests((A, 100), (B, 100), (C, 100)), B, 300),
    "a crowd": (requests(*[(name, 1) for name in range(1, 301)]), 301, 300),
    "one of a crowd": (requests(*[(name, 1) for name in range(1, 301)]), 300, 300),
    "a medium line beside a flood": (requests((A, 1000), (B, 100)), B, 111),
    "interactive beside a flood": (requests((A, 500)), INTERACTIVE_B, 0),
    "bulk beside a flood": (requests((A, 500)), BULK_B, 8),
    "weight 4 beside a flood": (requests((A, 500)), account_word(B, weight=4), 0),
}


@pytest.mark.parametrize(("waiting", "account", "rows"), CASES.values(), ids=CASES)
def test_a_new_request_is_behind_so_many(waiting: list[Request], account: int, rows: int) -> None:
    assert queues_of(waiting).rows_before(request(NEW, account)) == rows


@pytest.mark.parametrize(("waiting", "account", "rows"), CASES.values(), ids=CASES)
def test_no_case_counts_more_than_goes_before(
    waiting: list[Request], account: int, rows: int
) -> None:
    assert really_before(queues_of(waiting), request(NEW, account)) >= rows


accounts = st.integers(1, 5)


@given(st.lists(accounts, max_size=60), st.integers(0, 40), st.integers(1, 6))
def test_of_equal_requests_none_is_counted_that_goes_behind(
    words: list[int], served: int, account: int
) -> None:
    queues = queues_of([request(ref, word) for ref, word in enumerate(words)])
    for _ in range(min(served, len(words))):
        queues.take(queues.first(0), 1)
    new = request(NEW, account)
    found = queues.rows_before(new)
    assert found <= really_before(queues, new)


@given(
    st.lists(st.tuples(accounts, st.integers(1, LARGEST), st.integers(1, 4)), max_size=60),
    st.integers(0, 40),
    st.tuples(st.integers(1, 6), st.integers(1, LARGEST)),
)
def test_each_account_counts_with_one_request_too_much_at_most(
    waiting: list[tuple[int, int, int]], served: int, new: tuple[int, int]
) -> None:
    words = [account_word(account, weight=weight) for account, _, weight in waiting]
    queues = queues_of([request(ref, word, waiting[ref][1]) for ref, word in enumerate(words)])
    for _ in range(min(served, len(words))):
        queues.take(queues.first(0), 1)
    left = {each.account for queue in queues for each in queue}
    own = request(NEW, *new)
    found = queues.rows_before(own)
    assert found <= really_before(queues, own) + LARGEST * len(left)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, LARGEST)), min_size=2, max_size=40),
    st.lists(st.integers(-1, 39), max_size=40),
    st.integers(0, 3),
)
def test_no_more_is_counted_than_waits_and_no_less_than_nothing(
    waiting: list[tuple[int, int]], steps: list[int], account: int
) -> None:
    """Accounts may be behind the clock: theirs was the largest request, and is cancelled."""
    queues = queues_of([request(ref, *each) for ref, each in enumerate(waiting)])
    for step in steps:
        if not queues.rows:
            return
        if step < 0:
            queues.take(queues.first(0), 1)
        else:
            queues.remove(b"", step)
        assert 0 <= queues.least_rows <= queues.rows
        assert 0 <= queues.rows_before(request(NEW, account)) <= queues.rows


@given(st.lists(st.integers(1, LARGEST), min_size=1, max_size=30), st.integers(0, 20))
def test_one_account_alone_is_behind_all_that_waits(rows: list[int], served: int) -> None:
    queues = queues_of([request(ref, A, each) for ref, each in enumerate(rows)])
    for _ in range(min(served, len(rows) - 1)):
        queues.take(queues.first(0), 1)
    assert queues.rows_before(request(NEW, A)) == queues.rows


def test_once_one_account_is_left_it_is_that_of_all_that_waits() -> None:
    queues = queues_of(requests((A, 6), (B, 1)))
    assert queues.account == SEVERAL
    queues.take(queues.first(0), 2)
    assert queues.account == A
    assert queues.least_rows == 1


def test_the_least_wait_is_that_of_a_crowd() -> None:
    queues = queues_of(requests(*[(name, 1) for name in range(1, 301)]))
    assert queues.least_rows == 0, "accounts do not take turns yet"
    queues.take(queues.first(0), 4)
    assert queues.least_rows == queues.rows == 296


def test_requests_that_leave_unserved_are_not_waited_for() -> None:
    queues = queues_of(requests((A, 500), (B, 500)))
    assert queues.rows_before(request(NEW, A)) == 1000
    for ref in range(100, 500):
        queues.remove(b"", ref)
    assert queues.rows_before(request(NEW, A)) == 600 * 101 // 500


def test_a_request_that_leaves_unserved_takes_its_own_cost_along() -> None:
    queues = queues_of([request(0, A, LARGEST), request(1, A), request(2, B)])
    assert queues.rows_before(request(NEW, A)) == LARGEST + 2
    queues.remove(b"", 1)
    assert queues.rows_before(request(NEW, A)) == queues.rows == LARGEST + 1


def test_an_account_behind_the_clock_has_nothing_before_it() -> None:
    waiting = [request(0, A, LARGEST), request(1, A)]
    queues = queues_of([*waiting, *(request(ref, B) for ref in range(2, 12))])
    for _ in range(LARGEST - 1):
        queues.take(queues.first(0), 1)
    queues.remove(b"", 0)
    assert [each.account for queue in queues for each in queue] == [A, B, B, B]
    assert queues.rows_before(request(NEW, A)) == 0


@pytest.mark.parametrize(
    ("answer_ns", "left_ns", "late_ns"), [(0, 1, -1), (8, 9, 0), (8, 8, 1), (800, 100, 800)]
)
def test_an_answer_may_take_an_eighth_longer(answer_ns: int, left_ns: int, late_ns: int) -> None:
    assert lateness_ns(answer_ns, left_ns) == late_ns


def test_a_refusal_passes_through_a_slot() -> None:
    found = read_overload(overload_text(Overloaded("so many requests wait", 7)))
    assert (str(found), found.retry_after_s) == ("so many requests wait", 7)


@pytest.mark.parametrize("text", ["", "words", "7", "-7 words"])
def test_any_text_is_a_refusal(text: str) -> None:
    assert read_overload(text).retry_after_s in (1, 7)


WRONG: Final = {
    "a taken request counts as waiting": Mutant(
        FairOrder, "_leave", "self._usage.left(line.account, cost)", "pass"
    ),
    "a new request does not count": Mutant(
        FairOrder, "_append", "usage.came(line.account, cost)", "pass"
    ),
    "the line of the account does not count": Mutant(
        Usage, "share_before", "(account.waiting + cost)", "cost"
    ),
    "the length of other lines does not count": Mutant(
        Usage, "share_before", "waiting * span / whole", "waiting"
    ),
    "a wait behind the clock counts as less than nothing": Mutant(
        Usage, "share_before", "elif span > 0.0", "else"
    ),
    "classes have one weight": Mutant(
        Usage, "share_before", "(until - other.used) * other.weight", "until - other.used"
    ),
    "classes do not wait for each other": Mutant(
        Usage, "share_before", "if other is not priority:", "if False:"
    ),
    "weights do not count": Mutant(Usage, "share_before", "cost / weight_of(word)", "cost"),
}


def test_all_cases_hold() -> None:
    for waiting, account, rows in CASES.values():
        test_a_new_request_is_behind_so_many(waiting, account, rows)
    test_the_least_wait_is_that_of_a_crowd()
    test_requests_that_leave_unserved_are_not_waited_for()
    test_an_account_behind_the_clock_has_nothing_before_it()


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_count_is_found_out(wrong: Mutant) -> None:
    with wrong.applied(), pytest.raises(AssertionError):
        test_all_cases_hold()
