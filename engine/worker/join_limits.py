"""Limits of the rows of a model in steps that join: what all may cost, and how many begin at once.

Rows begin in the order in which they came. So one that costs much holds back those behind it, and
never waits for ever: every row that leaves brings it nearer to its turn.
"""

from collections.abc import Callable, Iterable, Sequence
from math import fsum, isfinite
from typing import Any, Final

from ringbatch.engine.worker.outputs import WrongResult

_SHARE: Final = 8
"""The average cost goes an eighth of the way to that of each row that comes."""
_MANY: Final = 1 << 20
"""More rows than there are places."""


class JoinLimits:
    """Limits of one worker.

    Attributes:
        mean_cost: of the rows that came, the last ones above all; 0 before the first.

    Args:
        cost: the model's; None if there is no limit of costs.
        asks: whether the last argument of `begin` is the request context, which `cost` does not
            take.
        most_cost: of all live rows; 0 for no limit.
        most_joining: rows that begin between two steps; 0 for no limit.
    """

    def __init__(
        self,
        cost: Callable[..., Any] | None = None,
        *,
        asks: bool = False,
        most_cost: float = 0.0,
        most_joining: int = 0,
    ) -> None:
        self._cost = cost
        self._asks = asks
        self.most_cost = most_cost
        self._most_joining = most_joining
        self.mean_cost = 0.0

    def cost(self, arguments: Sequence[Any]) -> float:
        """Return what a row costs.

        Args:
            arguments: of `begin`, for this row alone.

        Raises:
            WrongResult: the model returned no cost.
        """
        assert self._cost is not None, "a limit of costs needs a function for them"
        own = arguments[:-1] if self._asks else arguments
        cost = checked_cost(self._cost(*[column[0] for column in own]))
        self.mean_cost += (cost - self.mean_cost) / (_SHARE if self.mean_cost else 1)
        return cost

    def beginning(self, costs: Iterable[float], live_cost: float) -> int:
        """Return how many of the waiting rows begin now, see `beginning`."""
        return beginning(costs, live_cost, self.most_cost, self._most_joining)

    def most_rows(self, live: Sequence[float], waiting: Sequence[float]) -> int:
        """Return how many rows the worker can hold, see `most_rows`."""
        return most_rows(live, waiting, self.most_cost, self.mean_cost)


def beginning(costs: Iterable[float], live_cost: float, most_cost: float, most_joining: int) -> int:
    """Return how many of the rows that wait begin before the next step, the first ones.

    Args:
        costs: of these rows, the one that came first in front; none above `most_cost`.
        live_cost: of all live rows.
        most_cost: of all live rows; 0 for no limit.
        most_joining: rows that begin between two steps; 0 for no limit.
    """
    count = 0
    for cost in costs:
        live_cost += cost
        if (most_cost and live_cost > most_cost) or (most_joining and count == most_joining):
            break
        count += 1
    return count


def most_rows(
    live: Sequence[float], waiting: Sequence[float], most_cost: float, mean_cost: float
) -> int:
    """Return how many rows a worker can hold: those that it has, and as many usual ones as fit.

    One more is always worth a try while there is room, as it may cost less than is usual. But once
    a row waits for room, no other can begin before it, and no other is to wait here: another worker
    may have room for it sooner.

    Args:
        live: the costs of the live rows.
        waiting: of those that have not begun.
        most_cost: of all live rows; 0 for no limit.
        mean_cost: of a row.

    Returns:
        At least 1; 0 if costs set no limit.
    """
    if not most_cost or not mean_cost:
        return 0
    held, room = len(live) + len(waiting), most_cost - fsum([*live, *waiting])
    return held + max(int(min(room / mean_cost, _MANY)), 1) if room > 0 else max(held, 1)


def checked_cost(cost: Any) -> float:
    """Return what a model's `cost` has returned.

    Raises:
        WrongResult: it is no number from 0 up.
    """
    try:
        number = float(cost)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not isfinite(number) or number < 0:
        raise WrongResult(f"cost returned {cost!r}, but it must be a number from 0 up")
    return number
