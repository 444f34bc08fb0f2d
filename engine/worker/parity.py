"""Parity: batches that show whether a model answers a sample alike alone and in company. Pure.

Each sample is run alone first. Then it is run in batches of every size, with those that come after
it and with others, and beside neighbours that are long, if lengths are padded. The answers are
compared with those alone.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

Answer = Sequence[Any]
"""Answer for one row: an array for each output, or the one value of JSON."""
_SEED: Final = 1


class ComparedBatch(NamedTuple):
    """Rows that are run together.

    Attributes:
        members: numbers of the samples.
        neighbours: how many rows are added that are no samples.
        words: description of the batch, for people.
    """

    members: tuple[int, ...]
    neighbours: int
    words: str


@dataclass(slots=True)
class Difference:
    """Largest difference found in one output.

    Attributes:
        output: its name.
        absolute: difference of two numbers.
        relative: the same divided by the number that was answered alone.
        excess: the largest difference as a part of what is tolerated; infinity where what was
            answered cannot be compared at all, or must be equal and is not.
        sample: the number of the sample with that, from 1.
        where: the batch.
    """

    output: str
    absolute: float = 0.0
    relative: float = 0.0
    excess: float = 0.0
    sample: int = 0
    where: str = ""

    @property
    def words(self) -> str:
        """Difference in words, for people."""
        if not self.excess:
            return f"output {self.output}: no difference"
        place = f"sample {self.sample} {self.where}"
        if self.excess == np.inf and not self.absolute:
            return f"output {self.output}: another answer for {place}"
        return (
            f"output {self.output}: largest difference {self.absolute:.2g}, relative "
            f"{self.relative:.2g}; {place}"
        )


def batches(
    groups: Sequence[Sequence[int]], sizes: Sequence[int], allowed: Sequence[int], *, long: bool
) -> Iterator[ComparedBatch]:
    """Yield the batches of at least two rows that are run.

    Args:
        groups: numbers of the samples that may share a batch.
        sizes: rows of a batch, ascending.
        allowed: those that the model is run with; none if every number is right.
        long: True if there are long neighbours.
    """
    drawn = random.Random(_SEED)
    for group in groups:
        for size in (size for size in sizes if size > 1):
            for order in (group, drawn.sample(group, len(group))):
                for start in range(0, len(order), size):
                    members = tuple(order[(start + n) % len(order)] for n in range(size))
                    yield ComparedBatch(members, 0, f"in a batch of {size}")
            if size in allowed and size - 1 not in allowed:
                words = f"in a batch of {size - 1}, padded to {size}"
                for start in range(0, len(group), size - 1):
                    members = tuple(group[(start + n) % len(group)] for n in range(size - 1))
                    yield ComparedBatch(members, 0, words)
        if long and max(sizes) > 1:
            for member in group:
                yield ComparedBatch((member,), 1, "beside a long neighbour")


def compared(
    count: int,
    outputs: Sequence[str],
    tried: Iterator[ComparedBatch],
    run: Callable[[ComparedBatch], Sequence[Answer]],
    tolerance: float,
) -> list[Difference]:
    """Run all batches, and return the largest difference of each output.

    Args:
        count: of samples.
        outputs: their names.
        tried: the batches.
        run: the answers for the members of a batch, in order.
        tolerance: of a number, times its size if that is above 1.
    """
    alone = [run(ComparedBatch((number,), 0, "alone"))[0] for number in range(count)]
    found = [Difference(name) for name in outputs]
    for batch in tried:
        for member, answer in zip(batch.members, run(batch), strict=True):
            for worst, expected, got in zip(found, alone[member], answer, strict=True):
                _note(worst, difference(expected, got, tolerance), member, batch)
    return found


def _note(
    worst: Difference, found: tuple[float, float, float], sample: int, batch: ComparedBatch
) -> None:
    absolute, relative, excess = found
    worst.absolute = max(worst.absolute, absolute)
    worst.relative = max(worst.relative, relative)
    if excess > worst.excess:
        worst.excess, worst.sample, worst.where = excess, sample + 1, batch.words


def difference(alone: Any, together: Any, tolerance: float) -> tuple[float, float, float]:
    """Return the largest difference, relative difference and share of the tolerance of one output.

    They are for one row. NaN is equal to NaN; whole numbers, texts and booleans must be equal.
    """
    if not isinstance(alone, (np.ndarray, np.generic)):
        return _of_json(alone, together, tolerance)
    a, b = np.asarray(alone), np.asarray(together)
    if a.shape != b.shape:
        return 0.0, 0.0, np.inf
    if a.dtype.kind == "f":
        return _of_floats(a.astype(np.float64), b.astype(np.float64), tolerance)
    if np.array_equal(a, b):
        return 0.0, 0.0, 0.0
    if a.dtype.kind not in "iu":
        return 0.0, 0.0, np.inf
    absolute, relative, _ = _of_floats(a.astype(np.float64), b.astype(np.float64), tolerance)
    return absolute, relative, np.inf


def _of_floats(a: Any, b: Any, tolerance: float) -> tuple[float, float, float]:
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(same, 0.0, np.abs(a - b))
        apart = np.where(np.isnan(apart), np.inf, apart)
        relative = np.where(same, 0.0, np.where(apart == np.inf, np.inf, apart / np.abs(a)))
        part = np.where(same, 0.0, apart / (tolerance * np.maximum(1.0, np.abs(a))))
        part = np.where(np.isnan(part), np.inf, part)
    if not a.size:
        return 0.0, 0.0, 0.0
    return float(apart.max()), float(relative.max()), float(part.max())


def _of_json(a: Any, b: Any, tolerance: float) -> tuple[float, float, float]:
    numbers = (int, float)
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        pairs = [(a[key], b[key]) for key in a]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = list(zip(a, b, strict=True))
    elif float in (type(a), type(b)) and type(a) in numbers and type(b) in numbers:
        return _of_floats(np.array([float(a)]), np.array([float(b)]), tolerance)
    else:
        return 0.0, 0.0, 0.0 if type(a) is type(b) and a == b else np.inf
    parts = [_of_json(x, y, tolerance) for x, y in pairs] or [(0.0, 0.0, 0.0)]
    absolute, relative, excess = zip(*parts, strict=True)
    return max(absolute), max(relative), max(excess)
