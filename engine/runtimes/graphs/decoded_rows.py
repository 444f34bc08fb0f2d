"""Rows of a text decoder, as functions of a model in steps.

A row that joins has its prompt read, and its first token chosen. Each step gives the token that was
chosen for a row that has just begun. For all others it runs the decoder once, on the tokens of
before, and chooses the next. Keys and values of rows stay together while the same rows run.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ringbatch.engine.models.model import InvalidInput, Model, StepFunctions
from ringbatch.engine.runtimes.graphs.decoder import Array, Cache, Decoder, apart, together
from ringbatch.engine.runtimes.graphs.sampling import Sampler
from ringbatch.shm.tensor import ANY, Tensor
from ringbatch.shm.texts import MAX_TOKENS, PROMPT, SAMPLING, SEED

INPUTS: Final = (
    Tensor(PROMPT, "INT64", [ANY]),
    Tensor(MAX_TOKENS, "INT64", []),
    *(
        Tensor(name, "FP64", [], default=value)
        for name, value in zip(SAMPLING, (1.0, 1.0, 0.0, 0.0), strict=True)
    ),
    Tensor(SEED, "INT64", [], default=-1),
)
OUTPUTS: Final = (Tensor("token", "INT64", [ANY]),)


@dataclass(slots=True, eq=False)
class Row:
    """A text under way.

    Attributes:
        sampler: chooses its tokens.
        length: tokens of which there are keys and values.
        left: tokens that are still wanted, the chosen one included.
        cache: keys and values, unless they stand with those of other rows.
        token: the chosen one.
        is_given: whether a step has given that token.
    """

    sampler: Sampler
    length: int
    left: int
    cache: Cache
    token: int
    is_given: bool = False


def decoding(decoder: Decoder, limit: int, ends: Container[int]) -> Model:
    """Return a decoder as a model in steps; arguments as for `DecodedRows`."""
    rows = DecodedRows(decoder, limit, ends)
    steps = StepFunctions(rows.begin, rows.step, rows.end, repeatable=True)
    return Model(
        INPUTS, OUTPUTS, lambda: None, rows.begin, cost=rows.cost, in_parts=True, steps=steps
    )


class DecodedRows:
    """Rows of one decoder.

    Args:
        decoder: makes scores of tokens.
        limit: the most tokens of a prompt and its answer together.
        ends: tokens that end a text.
    """

    def __init__(self, decoder: Decoder, limit: int, ends: Container[int]) -> None:
        self._decoder = decoder
        self._limit = limit
        self._ends = ends
        self._together: list[Row] = []
        """Rows whose keys and values stand in one cache, in its order."""
        self._cache: Cache = []

    def begin(self, prompts: Array, most: Array, *options: Array) -> list[Row]:
        """Read prompts of one length, and return a row for each.

        Args:
            prompts: INT64 [rows, tokens].
            most: INT64 [rows], the most tokens that are wanted.
            options: those of `Sampler`, [rows] each.

        Raises:
            InvalidInput: a prompt cannot be one of this decoder.
        """
        self._expect_tokens(prompts)
        count, length = prompts.shape
        scores, cache = self._decoder.next_scores(
            np.array(prompts, np.int64), np.zeros(count, np.int64), None
        )
        caches = apart(cache, [length] * count)
        rows = []
        for number, own in enumerate(zip(*(option.tolist() for option in options), strict=True)):
            sampler = Sampler(*own)
            left = min(int(most[number]), self._limit - length)
            token = sampler.next(scores[number])
            rows.append(Row(sampler, length, left, caches[number], token))
        return rows

    def step(self, rows: list[Row]) -> tuple[Array, list[bool]]:
        """Return the next token of each row, and which rows have ended."""
        going = [row for row in rows if row.is_given]
        if going:
            self._put_together(going)
            tokens = np.array([[row.token] for row in going], np.int64)
            lengths = np.array([row.length for row in going], np.int64)
            scores, self._cache = self._decoder.next_scores(tokens, lengths, self._cache)
            for row, own in zip(going, scores, strict=True):
                row.length += 1
                row.token = row.sampler.next(own)
        for row in rows:
            row.left -= 1
            row.is_given = True
        ended = [row.left <= 0 or row.token in self._ends for row in rows]
        return np.array([[row.token] for row in rows], np.int64), ended

    def end(self, row: Row, _reason: str) -> None:
        """Forget a row's keys and values."""
        row.cache = []
        if self._together == [row]:
            self._together, self._cache = [], []

    @staticmethod
    def cost(prompt: Array, most: Any, *_options: Any) -> int:
        """Return the most tokens of which a row comes to hold keys and values."""
        return len(prompt) + max(int(most), 0)

    def _put_together(self, rows: list[Row]) -> None:
        """Have the cache hold these rows, in their order."""
        if rows == self._together:
            return
        caches = apart(self._cache, [row.length for row in self._together])
        for row, cache in zip(self._together, caches, strict=True):
            row.cache = cache
        self._cache = together([row.cache for row in rows])
        for row in rows:
            row.cache = []
        self._together = list(rows)

    def _expect_tokens(self, prompts: Array) -> None:
        length, vocabulary = prompts.shape[1], self._decoder.vocabulary
        if not 0 < length < self._limit:
            raise InvalidInput(
                f"the prompt has {length} tokens; it must have from 1 to {self._limit - 1}, so "
                "that an answer has room behind it"
            )
        least, greatest = int(prompts.min()), int(prompts.max())
        if least < 0 or (vocabulary and greatest >= vocabulary):
            found = least if least < 0 else greatest
            known = f" to {vocabulary - 1}" if vocabulary else ""
            raise InvalidInput(f"the prompt has the token {found}; tokens are from 0{known}")
