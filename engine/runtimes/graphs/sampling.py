"""Choice of the next token from a decoder's scores. Pure."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating]


class Sampler:
    """Chooses the tokens of one text.

    Args:
        temperature: divides the scores; 0 for the best token always.
        top_p: tokens are chosen among the fewest whose probabilities sum up to that.
        presence_penalty: is taken from the score of each token that the text has.
        frequency_penalty: the same, for each time that it has it.
        seed: of the random numbers; negative for one of its own.
        emitted: tokens that the text already has. It goes on as if this had chosen them.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        top_p: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        seed: int = -1,
        emitted: Sequence[int] = (),
    ) -> None:
        self._temperature = temperature
        self._top_p = top_p
        self._presence = presence_penalty
        self._frequency = frequency_penalty
        source = np.random.PCG64(seed if seed >= 0 else None)
        # Each token but the likeliest takes one number.
        source.advance(len(emitted) if temperature else 0)
        self._random = np.random.Generator(source)
        self._counts = Counter(emitted)

    def next(self, scores: Scores) -> int:
        """Return the next token, which belongs to the text from now on.

        Args:
            scores: of each token of the vocabulary.
        """
        own = scores.astype(np.float64)
        if self._presence or self._frequency:
            for token, count in self._counts.items():
                own[token] -= self._presence + self._frequency * count
        if self._temperature:
            token = chosen(own / self._temperature, self._top_p, self._random.random())
        else:
            token = int(own.argmax())
        self._counts[token] += 1
        return token


def chosen(scores: Scores, top_p: float, draw: float) -> int:
    """Return the token that a random number stands for.

    Args:
        scores: of each token; their exponentials are in the ratio of the probabilities.
        top_p: as of `Sampler`; the likeliest token is always among those.
        draw: from 0, which is the likeliest token if `top_p` is below 1, up to but not 1.
    """
    shares = np.exp(scores - scores.max())
    if top_p >= 1:
        return _at(shares, draw)
    order = np.argsort(-shares, kind="stable")
    likeliest = shares[order]
    before = np.cumsum(likeliest) - likeliest
    count = max(int(np.searchsorted(before, top_p * likeliest.sum())), 1)
    return int(order[_at(likeliest[:count], draw)])


def _at(shares: Scores, draw: float) -> int:
    ends = np.cumsum(shares)
    return min(int(np.searchsorted(ends, draw * ends[-1], side="right")), len(ends) - 1)
