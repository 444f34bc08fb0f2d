"""Groups that wait for another run, against plain lists."""

from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.queues import Again
from ringbatch.shm.holder import Request


def request(ref: int, deadline_ns: int) -> Request:
    return Request(ref, 0, 1, 0, 0, 0, 0, 0, 0, deadline_ns)


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), max_size=6),
    st.lists(st.integers(0, 20), max_size=4),
)
def test_groups_leave_in_order_and_their_requests_when_they_expire(
    deadlines: list[list[int]], instants: list[int]
) -> None:
    groups = [
        [request(10 * at + n, deadline_ns) for n, deadline_ns in enumerate(group)]
        for at, group in enumerate(deadlines)
    ]
    again = Again()
    again.add(groups)
    for now_ns in sorted(instants):
        left = [r for group in groups for r in group]
        assert again.earliest_ns == min((r.deadline_ns for r in left), default=None)
        assert again.expire(now_ns) == [r for r in left if r.deadline_ns <= now_ns]
        groups = [[r for r in group if r.deadline_ns > now_ns] for group in groups]
        groups = [group for group in groups if group]
    while groups:
        assert again
        assert again.take() == groups.pop(0)
    assert not again
