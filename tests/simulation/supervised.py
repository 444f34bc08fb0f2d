"""Looking for lives of the supervisor that go wrong."""

import gc
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from simulation.kernel import Violation
from simulation.supervision import Life

_GARBAGE_AFTER = 50
"""Lives between two garbage collections."""


@dataclass
class Lived:
    """Counts of the lives that were run.

    Attributes:
        lives: number of lives.
        ends: number of ends, by kind; lives that served before count here too.
        seen: number of events, by kind.
        wrong: by seed, why a life went wrong.
    """

    lives: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)

    def add(self, seed: int) -> None:
        """Play another life, and add its counts."""
        life = Life(seed)
        if complaint := failure(life):
            self.wrong[seed] = complaint
        self.lives += 1
        self.ends += life.ends
        self.seen += life.seen

    def __str__(self) -> str:
        ends = ", ".join(f"{count:,} x {end}" for end, count in sorted(self.ends.items()))
        seen = ", ".join(f"{count:,} x {kind}" for kind, count in sorted(self.seen.items()))
        crashes = sum(not why.startswith("Violation") for why in self.wrong.values())
        hangs = sum("neither" in why or "does not" in why for why in self.wrong.values())
        violations = len(self.wrong) - crashes - hangs
        counts = f"{violations} violations, {hangs} hangs, {crashes} crashes"
        return f"in all: {self.lives:,} lives, {counts}; {ends}; what happened: {seen}"


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the log of failures on purpose, and collect garbage only between lives."""
    logger = logging.getLogger("ringbatch.supervisor")
    before, logger.disabled = logger.disabled, True
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logger.disabled = before


def failure(life: Life) -> str:
    """Return the reason why a life goes wrong; empty if it does not."""
    try:
        life.run()
    except (Violation, Exception) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def live(seeds: Iterable[int], until_s: float = float("inf")) -> Lived:
    """Play a life for each seed, until the monotonic clock has come to that second."""
    lived = Lived()
    for number, seed in enumerate(seeds):
        if time.monotonic() >= until_s:
            break
        if number % _GARBAGE_AFTER == 0:
            gc.collect()
        lived.add(seed)
    return lived


def first_wrong(seeds: Iterable[int]) -> int | None:
    """Return the first seed whose life goes wrong."""
    return next((seed for seed in seeds if failure(Life(seed))), None)


def story(seed: int) -> str:
    """Return the events of one life, and its failure in the end."""
    life = Life(seed)
    complaint = failure(life)
    return "\n".join([f"seed {seed}", *life.story, complaint or "all is well"])
