"""Groups that wait for another run, against plain lists."""

from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.batching import Pending
from ringbatch.engine.collector.retries import RetryQueue
from ringbatch.shm.engine_slots import Request


def request(ref: int, deadline_ns: int) -> Request:
    return Request(ref, 0, 1, 0, 0, 0, 0, 0, 0, deadline_ns)


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), max_size=6),
    st.lists(st.integers(0, 20), max_size=4),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_groups_leave_in_order_and_their_requests_when_they_expire(
    deadlines: list[list[int]], instants: list[int], removed: list[int]
) -> None:
    groups = [
        [request(10 * at + n, deadline_ns) for n, deadline_ns in enumerate(group)]
        for at, group in enumerate(deadlines)
    ]
    retries = RetryQueue()
    retries.add(groups)
    for ref in removed:
        found = next((r for group in groups for r in group if r.ref == ref), None)
        assert retries.remove(ref) is found
        groups = [[r for r in group if r is not found] for group in groups]
        groups = [group for group in groups if group]
    for now_ns in sorted(instants):
        left = [r for group in groups for r in group]
        assert retries.earliest_ns == min((r.deadline_ns for r in left), default=None)
        expired = [r for r in left if r.deadline_ns <= now_ns]
        assert retries.expire(now_ns) == sorted(expired, key=lambda r: (r.deadline_ns, r.ref))
        groups = [[r for r in group if r.deadline_ns > now_ns] for group in groups]
        groups = [group for group in groups if group]
    while groups:
        assert retries
        assert retries.take() == groups.pop(0)
    assert not retries


def test_the_decision_sees_the_first_group() -> None:
    retries = RetryQueue()
    retries.add([[request(1, 30), request(2, 20)], [request(3, 5)]])
    assert retries.pending() == Pending(2, 2, 0, 20, retry=True)
    retries.take()
    assert retries.pending() == Pending(1, 1, 0, 5, retry=True)
