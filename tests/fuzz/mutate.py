"""Inputs made from a corpus by seeded accidents: pieces lost, doubled, swapped, replaced."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

MOST_BYTES: Final = 1 << 13
"""Most bytes of an input; a longer one is cut."""


class Mutator:
    """Mutator of inputs.

    Args:
        corpus: first inputs, from which every input is made.
        tokens: pieces that mean something to whoever reads the input.
    """

    def __init__(self, corpus: Sequence[bytes], tokens: Sequence[bytes]) -> None:
        self._corpus = corpus
        self._tokens = tokens

    def make(self, seed: int) -> bytes:
        """The input of that seed, always the same; the first are the corpus as it is."""
        if seed < len(self._corpus):
            return self._corpus[seed]
        chance = random.Random(seed)
        data = bytearray(chance.choice(self._corpus))
        for _ in range(chance.choice([1, 1, 1, 2, 3, 5])):
            self._spoil(data, chance)
        return bytes(data[:MOST_BYTES])

    def _spoil(self, data: bytearray, chance: random.Random) -> None:
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice([0, 0, 1, 1, 2, 4, 16, 64]))
        kind = chance.randrange(7)
        if kind <= 2:
            data[start:end] = chance.choice(self._tokens)
        elif kind == 3:
            data[start:end] = b""
        elif kind == 4:
            data[start:start] = data[start:end] * chance.choice([1, 1, 2, 50])
        elif kind == 5:
            data[start:end] = chance.randbytes(chance.choice([1, 1, 2, 8]))
        else:
            other = chance.choice(self._corpus)
            cut = chance.randrange(len(other) + 1)
            data[start:end] = other[cut : cut + chance.choice([8, 64, 1 << 12])]


def cuts(data: bytes, seed: int) -> list[bytes]:
    """Cut bytes into pieces, as a network may bring them."""
    chance = random.Random(~seed)
    count = chance.choice([0, 0, 1, 2, 5])
    edges = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(count))})
    return [data[a:b] for a, b in pairwise(edges)]
