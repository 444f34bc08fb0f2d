"""Output of the demo as text: pictures, bars, percentiles and the line of progress.

Values in, lines out; only `Progress` writes, and its stream and clock are passed in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, TextIO

import numpy as np
from numpy.typing import NDArray

SIDE: Final = 8
PIXEL_MAX: Final = 16

BAR_WIDTH: Final = 40
GAP: Final = "   "
REDRAW_NS: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class Ink:
    """The characters that a terminal can show.

    Attributes:
        shades: from paper to full ink.
        bar: what bars are made of.
        rest: the part of a progress bar that is still to come.
    """

    shades: str
    bar: str
    rest: str


BLOCKS: Final = Ink(" ░▒▓█", "█", "░")
ASCII: Final = Ink(" .+#@", "#", ".")


@dataclass(frozen=True, slots=True)
class Sample:
    """Picture with its answer and its true digit.

    Attributes:
        image: [64], 0 to 16.
        answer: the digit with the highest probability.
        confidence: probability of the answer.
        truth: the digit that it is.
    """

    image: NDArray[np.uint8]
    answer: int
    confidence: float
    truth: int


def ink_for(encoding: str | None) -> Ink:
    """Return block characters if the encoding has them, else ASCII."""
    try:
        (BLOCKS.shades + BLOCKS.rest).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def drawn(image: NDArray[np.uint8], ink: Ink) -> list[str]:
    """Return eight lines of sixteen characters, as a character is about twice as high as wide."""
    darkest = len(ink.shades) - 1
    levels = np.rint(image.reshape(SIDE, SIDE) / PIXEL_MAX * darkest).astype(int)
    return ["".join(ink.shades[level] * 2 for level in row) for row in levels]


def gallery(samples: Sequence[Sample], ink: Ink) -> list[str]:
    """Return the pictures side by side, the answers below them."""
    width = 2 * SIDE
    pictures = [[*drawn(sample.image, ink), "", *_caption(sample)] for sample in samples]
    return [
        GAP.join(line.ljust(width) for line in lines).rstrip()
        for lines in zip(*pictures, strict=True)
    ]


def _caption(sample: Sample) -> list[str]:
    verdict = "right" if sample.answer == sample.truth else "WRONG"
    return [
        f"answer {sample.answer} {sample.confidence:>7.1%}",
        f"truth  {sample.truth}   {verdict}",
    ]


def chosen(answers: Sequence[int], truths: Sequence[int], count: int) -> list[int]:
    """Return the places of answers to show: different digits, and last the first mistake, if any.

    Args:
        answers: the digits that were answered.
        truths: the digits that they are, in the same order.
        count: how many to show at most, at least one.
    """
    pairs = zip(answers, truths, strict=True)
    mistakes = [place for place, (answer, truth) in enumerate(pairs) if answer != truth][:1]
    first_of = {truth: place for place, truth in reversed(list(enumerate(truths)))}
    others = [place for _, place in sorted(first_of.items()) if place not in mistakes]
    return others[: count - len(mistakes)] + mistakes


def percentile(values: Sequence[int], share: float) -> int:
    """Return the smallest of the values that at least this share of them does not exceed.

    That is the nearest rank: always one of the values, never an interpolation.

    Args:
        values: at least one, in ascending order.
        share: from 0 to 1.
    """
    # The rounding takes back what floats add: 0.07 * 100 is a little more than 7.
    return values[max(0, ceil(round(share * len(values), 9)) - 1)]


def latencies(values_ns: Sequence[int]) -> str:
    """Return a line of percentiles in milliseconds.

    The values are in any order, at least one.
    """
    values = sorted(values_ns)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return "   ".join(
        f"{name} {percentile(values, share) / 1e6:.2f} ms" for name, share in shares.items()
    )


def bars(counts: Mapping[str, int], ink: Ink) -> list[str]:
    """Return a line for each count that is not 0: its label, a bar, the count.

    The longest bar is `BAR_WIDTH` characters; none is shorter than one.
    """
    shown = {label: count for label, count in counts.items() if count}
    if not shown:
        return []
    longest = max(shown.values())
    label_width = max(map(len, shown))
    count_width = len(f"{longest:,}")
    return [
        f"{label:>{label_width}}  {count:>{count_width},}  "
        + ink.bar * max(1, round(BAR_WIDTH * count / longest))
        for label, count in shown.items()
    ]


def reasons(counts: Mapping[str, int]) -> str:
    """Return text such as ``idle 512, full 12``: the most frequent first, without zeros."""
    shown = sorted((item for item in counts.items() if item[1]), key=lambda item: -item[1])
    return ", ".join(f"{reason} {count:,}" for reason, count in shown)


def progress_line(done: int, total: int, elapsed_ns: int, ink: Ink) -> str:
    """Return a progress bar of constant width, for a terminal that overwrites its line."""
    filled = BAR_WIDTH * done // total
    bar = ink.bar * filled + ink.rest * (BAR_WIDTH - filled)
    count = f"{done:,}".rjust(len(f"{total:,}"))
    rate = done / (elapsed_ns / 1e9) if elapsed_ns > 0 else 0.0
    return f"{bar} {count} of {total:,} answers  {rate:>9,.0f}/s"


class Progress:
    """Counts answers and shows how far they are.

    On a terminal it is one line, drawn over ten times a second; elsewhere a line for each quarter.

    Args:
        total: how many answers there will be, at least one.
        stream: where to write.
        ink: what `stream` can show.
        clock_ns: monotonic nanoseconds.
    """

    def __init__(self, total: int, stream: TextIO, ink: Ink, clock_ns: Callable[[], int]) -> None:
        self._total = total
        self._stream = stream
        self._ink = ink
        self._clock_ns = clock_ns
        self._on_terminal = stream.isatty()
        self._started_at_ns = clock_ns()
        self._redraw_at_ns = self._started_at_ns
        self._done = 0

    def step(self) -> None:
        """Count an answer, and show the progress."""
        self._done += 1
        if self._on_terminal:
            self._redraw()
        elif self._done * 4 // self._total > (self._done - 1) * 4 // self._total:
            self._stream.write(f"{self._done:,} of {self._total:,} answers\n")
            self._stream.flush()

    def finish(self) -> None:
        """End the line on a terminal, in any state."""
        if self._on_terminal:
            self._draw(self._clock_ns(), "\n")

    def _redraw(self) -> None:
        now_ns = self._clock_ns()
        if now_ns >= self._redraw_at_ns:
            self._redraw_at_ns = now_ns + REDRAW_NS
            self._draw(now_ns, "")

    def _draw(self, now_ns: int, end: str) -> None:
        elapsed_ns = now_ns - self._started_at_ns
        line = progress_line(self._done, self._total, elapsed_ns, self._ink)
        self._stream.write(f"\r{line}{end}")
        self._stream.flush()
