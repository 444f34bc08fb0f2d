"""Looking for lives that go wrong, and for the simplest that still does."""

import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Final

from simulation.installed import installed
from simulation.life import Life
from simulation.profiles import Profile

COMMAND: Final = "python tests/simulation/run.py"
_TRIES: Final = 200
"""Seeds that are tried with a simpler profile."""
_GARBAGE_AFTER: Final = 200
"""Lives between two garbage collections."""
_ENDLESS: Final = ("no end:", "nothing happens any more", "everybody sleeps for ever")
"""Openings of the failures of a `Life` that does not come to rest."""
_LOGGERS: Final = ("ringbatch.worker", "ringbatch.frontend")


@dataclass
class Found:
    """Counts of the lives that were run."""

    lives: int = 0
    ends: Counter[int] = field(default_factory=Counter)
    """Answers by their status."""
    seen: Counter[str] = field(default_factory=Counter)
    """Misfortunes by their kind."""

    def with_more(self, more: "Found") -> "Found":
        """Return the sums of both."""
        return Found(self.lives + more.lives, self.ends + more.ends, self.seen + more.seen)

    def __str__(self) -> str:
        ends = ", ".join(f"{count:,} x {status}" for status, count in sorted(self.ends.items()))
        seen = ", ".join(f"{count:,} x {kind}" for kind, count in sorted(self.seen.items()))
        return f"{self.lives:,} lives; answers: {ends}; what happened: {seen}"


class Wrong(AssertionError):
    """A life in which something did not hold; the text says how to see it again.

    Attributes:
        seed: of that life.
        kind: ``hangs`` where it came to no end, ``violations`` where anything else did not hold,
            ``crashes`` where something was raised that is no assertion.
        before: the lives before it.
    """

    def __init__(self, seed: int, complaint: str, before: Found) -> None:
        super().__init__(f"seed {seed}: {complaint}\nto see it: {COMMAND} --from {seed} --seeds 1")
        self.seed = seed
        self.before = before
        crashed = not complaint.startswith("AssertionError")
        endless = any(text in complaint for text in _ENDLESS)
        self.kind = "crashes" if crashed else "hangs" if endless else "violations"


@contextmanager
def quiet() -> Iterator[None]:
    """The engine's clock is the machine's, what fails on purpose is not logged, and garbage is
    collected only between lives."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        gc.disable()
        with installed():
            yield
    finally:
        gc.enable()
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def failure(life: Life) -> str:
    """Return the reason why a life goes wrong; empty if it does not."""
    try:
        life.run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def live(seeds: Iterable[int]) -> Found:
    """Play a life for each seed, and return what was found.

    Raises:
        Wrong: for the first in which something does not hold.
    """
    found = Found()
    for number, seed in enumerate(seeds):
        if number % _GARBAGE_AFTER == 0:
            gc.collect()
        life = Life(seed)
        if complaint := failure(life):
            raise Wrong(seed, complaint, found)
        found.lives += 1
        found.ends += life.ends
        found.seen += life.seen
    return found


def first_wrong(seeds: Iterable[int], profile: Profile | None = None) -> int | None:
    """Return the first seed whose life goes wrong; with a profile, only lives of that count."""
    for number, seed in enumerate(seeds):
        if number % _GARBAGE_AFTER == 0:
            gc.collect()
        if failure(Life(seed, profile)):
            return seed
    return None


def simplest(seed: int) -> tuple[int, Profile]:
    """A seed and a profile with as little in it as goes wrong as well."""
    profile = Life(seed).profile
    shrunk = True
    while shrunk:
        shrunk = False
        for simpler in profile.simpler():
            tried = (seed, *range(_TRIES))
            failing = next((s for s in tried if failure(Life(s, simpler))), None)
            if failing is not None:
                seed, profile, shrunk = failing, simpler, True
                break
    return seed, profile


def story(seed: int, profile: Profile | None = None) -> str:
    """Return the events of one life, and its failure in the end."""
    life = Life(seed, profile, trace=True)
    complaint = failure(life)
    usual = Profile()
    drawn = {f.name: getattr(life.profile, f.name) for f in fields(Profile)}
    shown = [f"{name}={value}" for name, value in drawn.items() if value != getattr(usual, name)]
    return "\n".join(
        [f"seed {seed}, Profile({', '.join(shown)})", *life.story, complaint or "all is well"]
    )
