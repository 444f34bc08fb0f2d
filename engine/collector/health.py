"""Health of a model: its number of workers, crash loops, and batches that never finish.

The last two stand in the model's words as instants, so that they begin and end by themselves.
A reader of the model's readiness compares them with the clock.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ringbatch.engine.process.respawn import STEADY_NS
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.readiness import ModelState, publish

LOOP: Final = 3
"""Deaths of a worker in a row, none of them after a long life, that make a crash loop."""
PATIENCE_NS: Final = 2_000_000_000
"""Time without a finished batch that is always allowed while all workers have one."""
_USUAL: Final = 10
"""Time without a finished batch that is allowed, in times of an average batch."""
_NEVER: Final = (1 << 64) - 1


class ModelHealth:
    """Health of a model: whether workers can serve it, and whether they die in a loop.

    Attributes:
        state: of the model, by its workers, as it is published.

    Args:
        words: the segment as a memoryview of format ``Q``.
        first: where the model's words start.
        workers: the numbers of those that hold it.
        now_ns: the time. A crash loop that an earlier collector saw goes on if it had not ended
            by then.
    """

    def __init__(
        self, words: memoryview, first: int, workers: Iterable[int], now_ns: int = 0
    ) -> None:
        self._words = words
        self._first = first
        self.state = ModelState(words[first + ModelWords.STATE])
        self._deaths_word = first + ModelWords.DEATHS
        self._unsteady_word = first + ModelWords.UNSTEADY_NS
        self._stuck_word = first + ModelWords.STUCK_NS
        unsteady = words[self._unsteady_word] > now_ns
        self._deaths = dict.fromkeys(workers, words[self._deaths_word] if unsteady else 0)
        self._ready_ns: dict[int, int] = {}
        self._ready_word = first + ModelWords.READY
        self._awaited_word = first + ModelWords.AWAITED

    def as_worst(self, steps: Sequence["ModelHealth"]) -> None:
        """Publish for a chain the worst state among the models of its steps."""
        # Every step of the collector comes here; lists of all states would take five times as long.
        words = self._words
        deaths = unsteady_ns = stuck_ns = 0
        for step in steps:
            if (found := words[step._deaths_word]) > deaths:
                deaths = found
            if (found := words[step._unsteady_word]) > unsteady_ns:
                unsteady_ns = found
            if (found := words[step._stuck_word]) and (not stuck_ns or found < stuck_ns):
                stuck_ns = found
        if words[self._deaths_word] != deaths:
            words[self._deaths_word] = deaths
        if words[self._unsteady_word] != unsteady_ns:
            words[self._unsteady_word] = unsteady_ns
        if words[self._stuck_word] != stuck_ns:
            words[self._stuck_word] = stuck_ns

    def set_workers(self, workers: Iterable[int]) -> None:
        """Set the numbers of the workers that hold the model from now on."""
        self._deaths = {number: self._deaths.get(number, 0) for number in workers}

    def publish_worker_count(self, workers: int) -> None:
        """Publish how many workers hold the model now."""
        self._words[self._ready_word] = workers
        if workers:
            self._words[self._awaited_word] = 0

    def publish_awaited(self, *, awaited: bool) -> None:
        """Publish whether requests wait for a worker; the model has none."""
        self._words[self._awaited_word] = awaited

    def publish_state(self, state: ModelState) -> None:
        """Publish the state of the model, by its workers."""
        if state is not self.state:
            self.state = state
            publish(self._words, self._first, state)

    def worker_ready(self, number: int, now_ns: int) -> None:
        """Note that a worker takes batches from now on."""
        self._ready_ns[number] = now_ns
        self.disarm_stuck()
        if self._in_a_row(now_ns) >= LOOP:
            self._words[self._unsteady_word] = now_ns + STEADY_NS

    def worker_died(self, number: int, now_ns: int) -> None:
        """Note that a worker has ended."""
        if number not in self._deaths:
            return
        ready_ns = self._ready_ns.pop(number, now_ns)
        steady = now_ns - ready_ns >= STEADY_NS
        self._count(number, 1 if steady else self._deaths[number] + 1, now_ns)

    def explained(self, number: int, now_ns: int) -> None:
        """Note that a worker's death has a known cause, which will not be tried again."""
        self._count(number, 0, now_ns)

    def _count(self, number: int, deaths: int, now_ns: int) -> None:
        self._deaths[number] = deaths
        self._words[self._deaths_word] = least = self._in_a_row(now_ns)
        self._words[self._unsteady_word] = _NEVER if least >= LOOP else 0

    def arm_stuck(self, now_ns: int, cycle_ns: int, limit_ns: int) -> None:
        """Arm the limit after which the model counts as stuck: all workers have a batch.

        Args:
            now_ns: the time.
            cycle_ns: recent time of a batch.
            limit_ns: after which a worker is taken for hung.
        """
        patience_ns = min(max(PATIENCE_NS, _USUAL * cycle_ns), limit_ns)
        self._words[self._stuck_word] = now_ns + patience_ns

    def disarm_stuck(self) -> None:
        """Disarm the limit, as a worker has no batch."""
        self._words[self._stuck_word] = 0

    def _in_a_row(self, now_ns: int) -> int:
        """Return the least number of deaths in a row among the workers."""
        return min(
            (
                0 if now_ns - self._ready_ns.get(number, now_ns) >= STEADY_NS else deaths
                for number, deaths in self._deaths.items()
            ),
            default=0,
        )
