"""The chaos harness's own books: what breaks the law is seen."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chaos.keyed import Deed, device_source, keyed, source
from chaos.ledger import GRACE_S, Ledger
from chaos.watch import YOUNG_S, Held, Watch, role_of, settled, slope_per_s
from hypothesis import given
from hypothesis import strategies as st

KEY = 0x123456789
numbers = st.integers(0, (1 << 20) - 1)


def model() -> Callable[[np.ndarray], np.ndarray]:
    names: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    exec(source(KEY, 0.0), names)
    return names["predict"]


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=20))
def test_the_model_and_the_client_know_the_same_answers(rows: list[tuple[int, int, int]]) -> None:
    predict = model()
    requests = [(*row, int(Deed.NONE)) for row in rows]
    assert predict(np.array(requests)).tolist() == [keyed(request, KEY) for request in requests]


def test_the_model_on_a_device_knows_them_too() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    names: dict[str, Any] = {}
    exec(device_source(KEY, 0.0), names)
    names["load"]("cpu")
    requests = [(number, 7 * number, number * number, 0) for number in range(1000)]
    found = names["predict"](torch.tensor(requests)).tolist()
    assert found == [keyed(request, KEY) for request in requests]


@given(st.tuples(numbers, numbers, numbers), st.tuples(numbers, numbers, numbers))
def test_another_request_has_another_answer(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    if one != other:
        assert keyed((*one, 0), KEY) != keyed((*other, 0), KEY)


def test_books_that_come_out_say_nothing() -> None:
    ledger = Ledger()
    ledger.sent = 3
    ledger.answered(0.0, 1.0)
    ledger.refused["503 busy"] += 1
    ledger.broken += 1
    assert ledger.balance() == []


def test_a_request_that_is_neither_answered_nor_refused_is_missed() -> None:
    ledger = Ledger()
    ledger.sent = 2
    ledger.answered(0.0, 1.0)
    assert ledger.balance() == ["2 were sent and 1 accounted for"]


@pytest.mark.parametrize(
    ("late_s", "excused_s", "too_late"),
    [(0.05, 0.0, False), (GRACE_S + 0.01, 0.0, True), (0.5, 0.45, False), (0.5, 0.1, True)],
)
def test_an_answer_long_after_its_deadline_is_too_late_but_for_our_own_delay(
    late_s: float, excused_s: float, too_late: bool
) -> None:
    ledger = Ledger()
    ledger.overdue(late_s, excused_s, "request 1")
    assert (ledger.late, bool(ledger.balance())) == (too_late, too_late)
    assert ledger.latest_s == pytest.approx(late_s - excused_s)


def test_a_stall_is_the_longest_time_without_a_right_answer() -> None:
    ledger = Ledger()
    ledger.resume(10.0)
    for now in (10.5, 13.0, 13.1):
        ledger.answered(9.0, now)
    assert ledger.stall_s == pytest.approx(2.5)
    assert ledger.slowest_s == pytest.approx(4.1)


def test_of_many_failures_the_first_are_listed_and_the_rest_counted() -> None:
    ledger = Ledger()
    for number in range(60):
        ledger.fail(f"failure {number}")
    assert ledger.balance()[0] == "failure 0"
    assert ledger.balance()[-1] == "and 10 more"


@given(st.floats(-100, 100), st.floats(-100, 100), st.integers(3, 50))
def test_a_straight_line_has_its_slope(slope: float, start: float, count: int) -> None:
    points = [(float(t), start + slope * t) for t in range(count)]
    assert slope_per_s(points) == pytest.approx(slope, abs=1e-6)


def test_a_young_process_is_left_out_and_roles_have_no_numbers() -> None:
    samples = [(t, Held(1, 2, 3)) for t in (0.0, YOUNG_S - 1, YOUNG_S, YOUNG_S + 5)]
    assert settled(samples) == samples[2:]
    assert settled([]) == []
    titles = ["worker keyed/3", "grpc frontend 1", "frontend 0", "frontends", "collector"]
    roles = ["worker", "grpc frontend", "frontend", "frontends", "collector"]
    assert [role_of(f"ringbatch: {title}") for title in titles] == roles
    assert list(Watch().report()) == []


def test_the_clients_own_delays_are_not_the_servers_stall() -> None:
    ledger = Ledger(own_delay_s={10.0: 0.5, 12.0: 0.0}.__getitem__)
    ledger.resume(10.0)
    for now in (12.0, 13.75):
        ledger.answered(9.0, now)
    assert ledger.stall_s == pytest.approx(2.0)
    assert ledger.servers_stall_s == pytest.approx(1.75)
