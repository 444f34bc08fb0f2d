"""The delay before a frontend that has ended is started again."""

import pytest

from ringbatch.frontend.server.start_delay import FIRST_S, MOST_S, STEADY_S, StartDelay

SHORT_S = STEADY_S / 2


@pytest.mark.parametrize(
    ("ends", "expected_s"),
    [
        pytest.param([(SHORT_S, False)], [0], id="an accident"),
        pytest.param(
            [(SHORT_S, False)] * 6, [0, FIRST_S, 2 * FIRST_S, *[MOST_S] * 3], id="none can live"
        ),
        pytest.param([(STEADY_S, False)] * 3, [0, 0, 0], id="each has served"),
        pytest.param([(0.0, True)] * 3, [0, 0, 0], id="killed from outside"),
        pytest.param(
            [(SHORT_S, False), (STEADY_S, False), (SHORT_S, False)], [0, 0, 0], id="one has served"
        ),
        pytest.param(
            [(SHORT_S, False), (STEADY_S, True), (SHORT_S, False)],
            [0, 0, FIRST_S],
            id="a killed one says nothing",
        ),
    ],
)
def test_only_frontends_that_cannot_live_are_delayed(
    ends: list[tuple[float, bool]], expected_s: list[float]
) -> None:
    delay = StartDelay()
    assert [delay.after(lived_s, killed=killed) for lived_s, killed in ends] == expected_s
