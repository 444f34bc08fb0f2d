"""Scaling decision: the number of workers of a model, by its load. Pure.

Workers are started once the predicted wait was above its target for a while, and at once for a
model without any. Their number follows the load: instances that arrive, in full batches, need so
much of the workers' time. A wait that stays although these workers should suffice asks for one
more. No worker is started for a wait that ends before it could be ready.

Workers are let go if fewer would have sufficed at every instant of a longer period, so that load
that returns within it finds them. If a wait soon shows that they were needed, the next period is
twice as long.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from ringbatch.shm.scalings import Cause

FILLED: Final = 0.7
"""Target utilization: the share of workers' time, or of full batches, that the load takes."""
TARGET_BATCHES: Final = 3
"""Default target of the wait, in batches: the running one, the one that takes the request, and one
between them. Workers that are just busy predict two."""
TARGET_SHARE: Final = 4
"""The default target is at most the timeout of requests divided by this."""
AFTER_DOWN: Final = 4
"""Divisor of the period: the least wait after workers were let go, before others are."""
LEAST_WINDOW_NS: Final = 1_000_000_000
"""Shortest window over which a load is measured."""
WINDOW_BATCHES: Final = 4
"""Shortest window in times of a batch, as batches are counted when they end."""
AGAIN_NS: Final = 10_000_000_000
"""Delay before another try of a start that was refused, or has failed once."""
MOST_TIMES: Final = 16
"""Largest factor of both delays: before workers are let go, and between failures."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Scaling settings of one model.

    Attributes:
        fewest: workers.
        most: workers.
        target_ns: of the predicted wait; 0 to derive it from the time of batches.
        timeout_ns: of requests.
        up_after_ns: how long the wait is above its target before workers are started.
        down_after_ns: how long fewer would have sufficed before workers are let go.
    """

    fewest: int
    most: int
    target_ns: int
    timeout_ns: int
    up_after_ns: int
    down_after_ns: int

    def target(self, cycle_ns: int) -> int:
        """Return the wait above which there are too few workers.

        Args:
            cycle_ns: the recent time of a batch.
        """
        return self.target_ns or min(TARGET_BATCHES * cycle_ns, self.timeout_ns // TARGET_SHARE)


class Measurements(NamedTuple):
    """Measurements of a model at one instant.

    Attributes:
        now_ns: when.
        wait_ns: predicted for a request that comes now; 0 if nothing delays it.
        cycle_ns: the recent time of a batch; 0 while unknown.
        full_ns: of a full batch, as far as known.
        batch_rows: instances in one.
        rows: arrived instances, a counter.
        run_ns: run time of batches, a counter.
        running: workers that the model has, spares not among them.
        ready: those of the running workers that take batches.
        start_ns: the recent time to start one; 0 while unknown.
    """

    now_ns: int
    wait_ns: int
    cycle_ns: int
    full_ns: int
    batch_rows: int
    rows: int
    run_ns: int
    running: int
    ready: int
    start_ns: int


class Decision(NamedTuple):
    """New number of workers, and its cause."""

    workers: int
    cause: Cause


class Headroom(NamedTuple):
    """Number of further workers that there is room for, and the scarcest resource."""

    workers: int
    cause: Cause


class Scaler:
    """Scaling decisions of one model.

    Attributes:
        rules: may change at any time.
        again_ns: when a refused decision may be tried again.

    Args:
        rules: of the model.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._looks: deque[Measurements] = deque()
        self._needed: deque[tuple[int, int]] = deque()
        """Instants and sufficient workers, descending; the first is the most of the period."""
        self._watched_ns: int | None = None
        self._late_ns: int | None = None
        self._down_ns: int | None = None
        self._seen_rows = 0
        self._times = 1
        self._failures = 0
        self.again_ns = 0

    def step(self, reading: Measurements) -> Decision | None:
        """Return the change to make now, if any.

        Args:
            reading: later than the one before.
        """
        self._look(reading)
        return self._up(reading) or self._down(reading)

    def carried_out(self, decision: Decision, now_ns: int) -> None:
        """Note that a decision was carried out."""
        if decision.cause.direction == "down":
            self._down_ns = now_ns
            self._watched_ns = now_ns - self._while_ns + self._while_ns // AFTER_DOWN
            return
        self._failures = 0
        self._late_ns = None
        self._watched_ns = now_ns
        self._needed.clear()
        if self._down_ns is not None:
            soon = now_ns - self._down_ns < 2 * self._while_ns
            self._times = min(2 * self._times, MOST_TIMES) if soon else 1
            self._down_ns = None

    def refused(self, now_ns: int) -> None:
        """Note that a decision could not be carried out; it is tried again later."""
        times = min(1 << self._failures, MOST_TIMES)
        self._failures += 1
        self.again_ns = now_ns + times * AGAIN_NS
        # An earlier request counts again: without a worker, further ones are refused at once.
        self._seen_rows = -1

    def holds(self, now_ns: int) -> bool:
        """Return whether a refused decision still waits for its next try."""
        return now_ns < self.again_ns

    def _look(self, now: Measurements) -> None:
        """Record a reading."""
        looks = self._looks
        if looks and (now.rows < looks[-1].rows or now.run_ns < looks[-1].run_ns):
            # The counters were reset.
            looks.clear()
            self._seen_rows = 0
        if self._watched_ns is None:
            self._watched_ns = now.now_ns
        if now.running:
            self._seen_rows = now.rows
        looks.append(now)
        window_ns = max(LEAST_WINDOW_NS, self.rules.up_after_ns, WINDOW_BATCHES * now.cycle_ns)
        while len(looks) > 2 and looks[1].now_ns <= now.now_ns - window_ns:
            looks.popleft()
        late = now.wait_ns > self.rules.target(now.cycle_ns)
        if not late:
            self._late_ns = None
        elif self._late_ns is None:
            self._late_ns = now.now_ns
        self._note(now.now_ns, self._sufficient(now))

    def _note(self, now_ns: int, workers: int) -> None:
        while self._needed and self._needed[-1][1] <= workers:
            self._needed.pop()
        self._needed.append((now_ns, workers))
        while self._needed[0][0] < now_ns - self._while_ns:
            self._needed.popleft()

    @property
    def _while_ns(self) -> int:
        return self.rules.down_after_ns * self._times

    def _loads(self, now: Measurements) -> tuple[float, float]:
        """Return how many workers the load needs, by two measures.

        The first is the workers' busy time; the second is the arriving instances, in full batches.
        """
        first = self._looks[0]
        passed_ns = now.now_ns - first.now_ns
        if not passed_ns:
            return 0.0, 0.0
        busy = (now.run_ns - first.run_ns) / passed_ns
        full = (now.rows - first.rows) * now.full_ns / (now.batch_rows * passed_ns)
        return busy, full

    def _sufficient(self, now: Measurements) -> int:
        """Return how many workers would suffice."""
        busy, full = self._loads(now)
        workers = ceil(min(busy, full) / FILLED if now.full_ns else busy / FILLED)
        if self._late_ns is not None:
            return max(workers, now.running)
        moves = now.wait_ns > 0 or now.rows > self._looks[0].rows or busy > 0
        return max(workers, int(moves))

    def _up(self, now: Measurements) -> Decision | None:
        rules, running = self.rules, now.running
        if running >= rules.most or self.holds(now.now_ns):
            return None
        if not running:
            came = now.rows > self._seen_rows
            return Decision(max(rules.fewest, 1), Cause.REQUEST) if came else None
        if self._late_ns is None or now.now_ns - self._late_ns < rules.up_after_ns:
            return None
        wanted = ceil(self._loads(now)[1] / FILLED)
        if wanted <= running:
            if now.ready < running or self._is_over_soon(now):
                return None
            wanted = running + 1
        return Decision(min(wanted, rules.most), Cause.LATE)

    def _is_over_soon(self, now: Measurements) -> bool:
        """Return whether the wait falls so fast that another worker would come too late.

        It also counts as over if that worker would help for no longer than `up_after_ns`.
        """
        first = self._looks[0]
        fallen_ns = first.wait_ns - now.wait_ns
        above_ns = now.wait_ns - self.rules.target(now.cycle_ns)
        soon_ns = now.start_ns + self.rules.up_after_ns
        return fallen_ns > 0 and above_ns * (now.now_ns - first.now_ns) < fallen_ns * soon_ns

    def _down(self, now: Measurements) -> Decision | None:
        rules = self.rules
        if now.running <= rules.fewest or now.ready < now.running or self._watched_ns is None:
            return None
        if now.now_ns - self._watched_ns < self._while_ns:
            return None
        wanted = max(self._needed[0][1], rules.fewest)
        if wanted >= now.running:
            return None
        return Decision(wanted, Cause.IDLE if wanted else Cause.UNUSED)


def bounded(decision: Decision, running: int, rooms: Sequence[Headroom]) -> Decision:
    """Return the part of a decision that there is room for.

    Without any room, it has the present number of workers, and the scarcest resource as its cause.

    Args:
        decision: to be carried out.
        running: workers now.
        rooms: for each worker to be started, in order, the room for workers like it; equal ones
            are one room, which the workers before it have taken from.
    """
    taken = Counter[Headroom]()
    for workers, room in enumerate(rooms, running):
        if taken[room] >= room.workers:
            return Decision(workers, decision.cause if workers > running else room.cause)
        taken[room] += 1
    return decision
