"""Shares of a batch's run time by the classes of its requests."""

from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.class_shares import class_shares
from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.engine_slots import Request

members = st.lists(
    st.tuples(st.sampled_from(PriorityClass), st.integers(1, 100), st.floats(1 / 4096, 1.0)),
    min_size=1,
)


def request(priority: PriorityClass, rows: int) -> Request:
    return Request(1, 0, rows, 0, 0, 0, 0, 0, 0, 1, account_word(7, priority))


@given(members, st.booleans(), st.integers(0, 1 << 50))
def test_classes_get_the_run_time_by_the_cost_of_their_requests(
    batch: list[tuple[PriorityClass, int, float]], by_cost: bool, run_ns: int
) -> None:
    requests = [request(priority, rows) for priority, rows, _ in batch]
    costs = [cost for _, _, cost in batch] if by_cost else None
    shares = dict(class_shares(requests, costs, run_ns))
    assert sum(shares.values()) == run_ns
    assert min(shares.values()) >= 0
    weights = [cost if by_cost else rows for _, rows, cost in batch]
    for priority in PriorityClass:
        own = sum(w for (p, _, _), w in zip(batch, weights, strict=True) if p is priority)
        wanted = run_ns * own / sum(weights)
        assert abs(shares[priority] - wanted) <= 2 + 1e-9 * run_ns
        assert own or not shares[priority] or priority is PriorityClass.BULK
