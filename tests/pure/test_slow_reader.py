"""How long a client may let its answer wait."""

from ringbatch.frontend.slow_reader import LEAST_BYTES, WRITE_TIMEOUT_S, SlowReader


def gone_after(*left_bytes: int) -> int | None:
    """The second in which it is given up."""
    reader = SlowReader()
    seconds = (s for s, left in enumerate(left_bytes) if reader.is_gone(left))
    return next(seconds, None)


def test_who_takes_nothing_is_given_up() -> None:
    assert gone_after(*[10 * LEAST_BYTES] * 200) == WRITE_TIMEOUT_S


def test_who_takes_less_than_the_least_is_given_up() -> None:
    assert gone_after(*(10 * LEAST_BYTES - s for s in range(200))) == WRITE_TIMEOUT_S


def test_who_takes_enough_is_waited_for() -> None:
    a_second = LEAST_BYTES // WRITE_TIMEOUT_S + 1
    assert gone_after(*(1000 * LEAST_BYTES - a_second * s for s in range(1000))) is None


def test_who_stops_later_is_given_up_later() -> None:
    begun = [10 * LEAST_BYTES - 2 * LEAST_BYTES * (s > 5) for s in range(WRITE_TIMEOUT_S + 1)]
    found = gone_after(*begun, *[begun[-1]] * 500)
    assert found is not None
    assert WRITE_TIMEOUT_S < found <= 2 * WRITE_TIMEOUT_S + 1
