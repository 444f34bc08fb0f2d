"""Choice between waiting for a local worker and sending the batch to an idle remote one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.local_or_remote import LocalRemoteTimes, hold_until

NS = st.integers(1, 1000)


@pytest.mark.parametrize(
    ("now_ns", "began_ns", "local_ns", "remote_ns", "until_ns"),
    [
        pytest.param(109, [100], 10, 20, 120, id="the one here is about to end"),
        pytest.param(101, [100], 10, 20, 120, id="just soon enough"),
        pytest.param(100, [100], 10, 20, None, id="it would be no sooner"),
        pytest.param(100, [100], 10, 12, None, id="elsewhere is sooner"),
        pytest.param(119, [100], 10, 20, 120, id="it runs longer than others, a little"),
        pytest.param(120, [100], 10, 20, None, id="it runs too long to be waited for"),
        pytest.param(109, [], 10, 20, None, id="none is busy here"),
        pytest.param(109, [100], 0, 20, None, id="no batch time is known here"),
        pytest.param(109, [100], 10, 0, None, id="no batch time is known elsewhere"),
        pytest.param(109, [100], 10, 10, None, id="it takes the same"),
        pytest.param(109, [100], 20, 10, None, id="elsewhere is the quicker one"),
        pytest.param(109, [100, 108], 10, 20, 128, id="another one goes on beyond that"),
        pytest.param(109, [50, 100], 10, 20, 120, id="one hangs, the other does not"),
    ],
)
def test_how_long_it_waits(
    now_ns: int, began_ns: list[int], local_ns: int, remote_ns: int, until_ns: int | None
) -> None:
    assert hold_until(now_ns, began_ns, LocalRemoteTimes(local_ns, remote_ns)) == until_ns


@given(st.integers(0, 3000), st.lists(st.integers(0, 2000), max_size=4), NS, NS)
def test_it_waits_only_for_a_sooner_answer_and_not_for_ever(
    later_ns: int, ran_ns: list[int], local_ns: int, remote_ns: int
) -> None:
    sides, now_ns = LocalRemoteTimes(local_ns, remote_ns), 10_000
    began_ns = [now_ns - ran for ran in ran_ns]
    until_ns = hold_until(now_ns, began_ns, sides)
    if until_ns is None:
        return
    ends_ns = [max(began + local_ns, now_ns) for began in began_ns]
    assert min(ends_ns) + local_ns < now_ns + remote_ns
    assert now_ns < until_ns < now_ns + 2 * (remote_ns - local_ns)
    if later_ns >= 2 * remote_ns:
        assert hold_until(now_ns + later_ns, began_ns, sides) is None


def test_batch_times_are_followed_on_each_side() -> None:
    sides = LocalRemoteTimes()
    sides.ran(800, 0, 800, remote=True)
    assert (sides.local_ns, sides.remote_ns) == (0, 800)
    sides.ran(1600, 800, 2400, remote=True)
    sides.ran(80, 2400, 2480, remote=False)
    assert (sides.local_ns, sides.remote_ns) == (80, 900)


def test_one_stalled_batch_makes_a_side_no_slow_one() -> None:
    sides = LocalRemoteTimes(100, 200)
    sides.ran(10**9, 0, 10**9, remote=True)
    assert hold_until(10**9, [10**9 - 50], sides) is not None
    assert sides.remote_ns < 2 * 200
