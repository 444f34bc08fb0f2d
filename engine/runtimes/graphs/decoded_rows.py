"""Rows of a text decoder, as functions of a model in steps.

A step runs the decoder once for all rows whose prompts are read, on their last tokens, and chooses
the next ones. Before that it reads prompts, `PIECE` tokens at most: several short ones together, or
a piece of a long one. So no step waits for a long prompt, and a row has no part before its own is
read. Keys and values of rows stay together while the same rows run.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
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
    Tensor("emitted", "INT64", [ANY], default=[]),
)
OUTPUTS: Final = (Tensor("token", "INT64", [ANY]),)
RESUMES: Final = (("token", "emitted"),)
"""The input with the tokens so far, if an answer goes on elsewhere."""
PIECE: Final = 256
"""Tokens of prompts that a step reads: on a CPU they take as long as some steps do."""


@dataclass(slots=True, eq=False)
class Row:
    """A text under way.

    Attributes:
        sampler: chooses its tokens.
        unread: INT64, tokens that are not read, of the prompt and of what was emitted elsewhere.
        left: tokens of the answer that are still wanted.
        length: tokens of which there are keys and values.
        cache: these, unless they stand with those of other rows.
        token: the last one of the answer; -1 before the first.
    """

    sampler: Sampler
    unread: Array
    left: int
    length: int = 0
    cache: Cache = field(default_factory=list)
    token: int = -1


def read_together(unread: Sequence[int], begun: bool, most: int) -> tuple[int, int]:
    """Return how many of the rows that wait to be read are read next, and how far.

    Args:
        unread: how many tokens of each are not read, the row that came first in front.
        begun: whether the first of them has been read in part.
        most: tokens that may be read, those included that stand before shorter prompts.

    Returns:
        The number of rows, the first ones, and of the tokens of each at most; several rows are read
        to their ends.
    """
    if begun or unread[0] > most:
        return 1, min(unread[0], most)
    count, longest = 1, unread[0]
    for length in unread[1:]:
        if (count + 1) * max(longest, length) > most:
            break
        count, longest = count + 1, max(longest, length)
    return count, longest


def decoding(decoder: Decoder, limit: int, ends: Container[int]) -> Model:
    """Return a decoder as a model in steps; arguments as for `DecodedRows`."""
    rows = DecodedRows(decoder, limit, ends)
    steps = StepFunctions(rows.begin, rows.step, rows.end, repeatable=True, resumes=RESUMES)
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

    def begin(self, prompts: Array, most: Array, *others: Array) -> list[Row | None]:
        """Return a row for each of several texts of one length; None if nothing is missing.

        Args:
            prompts: INT64 [rows, tokens].
            most: INT64 [rows], the most tokens that are wanted.
            others: the options of `Sampler`, [rows] each, the last one [rows, tokens].

        Raises:
            InvalidInput: a prompt cannot be one of this decoder.
        """
        emitted = others[-1]
        texts = np.concatenate([prompts, emitted], axis=1)
        if emitted.shape[1] and texts.shape[1] >= self._limit:
            return [None] * len(texts)
        self._expect_tokens(texts)
        room = self._limit - texts.shape[1]
        columns = zip(*(other.tolist() for other in others), strict=True)
        return [
            None
            if own[-1] and own[-1][-1] in self._ends
            else Row(Sampler(*own), text, min(int(wanted), room))
            for text, wanted, own in zip(texts, most, columns, strict=True)
        ]

    def step(self, rows: list[Row]) -> tuple[list[list[int]], list[bool]]:
        """Return the next token of each row, if its prompt is read, and which rows have ended."""
        # Those that are read in part come first.
        waiting = sorted((row for row in rows if len(row.unread)), key=lambda row: not row.length)
        going = [row for row in rows if not len(row.unread)]
        # All runs before the first change of a row: a step that raises has changed none.
        read = self._read(waiting) if waiting else None
        if going:
            self._put_together(going)
            tokens = np.array([[row.token] for row in going], np.int64)
            lengths = np.array([row.length for row in going], np.int64)
            scores, self._cache = self._decoder.next_scores(tokens, lengths, self._cache)
            for row, own in zip(going, scores, strict=True):
                row.length += 1
                self._choose(row, own)
        if read is not None:
            going += self._have_read(waiting, *read)
        given = {*going}
        parts = [[row.token] if row in given else [] for row in rows]
        ended = [row.left <= 0 or row.token in self._ends for row in rows]
        return parts, ended

    def _read(self, waiting: list[Row]) -> tuple[list[int], Array, Cache]:
        """Read the next prompts, or a piece; return how many tokens of each, and the results."""
        first = waiting[0]
        count, most = read_together([len(row.unread) for row in waiting], bool(first.length), PIECE)
        pieces = [row.unread[:most] for row in waiting[:count]]
        sizes = [len(piece) for piece in pieces]
        tokens = np.zeros((count, max(sizes)), np.int64)
        for row, piece in enumerate(pieces):
            tokens[row, tokens.shape[1] - len(piece) :] = piece
        lengths = np.array([first.length + size - max(sizes) for size in sizes], np.int64)
        cache = together([first.cache]) if first.length else None
        return sizes, *self._decoder.next_scores(tokens, lengths, cache)

    def _have_read(
        self, waiting: list[Row], sizes: list[int], scores: Array, cache: Cache
    ) -> list[Row]:
        """Note what was read; return the rows whose prompts are read, with their first tokens."""
        rows = waiting[: len(sizes)]
        for row, size in zip(rows, sizes, strict=True):
            row.unread = row.unread[size:]
            row.length += size
        caches = apart(cache, [row.length for row in rows])
        for row, own, score in zip(rows, caches, scores, strict=True):
            row.cache = own
            if not len(row.unread):
                self._choose(row, score)
        return [row for row in rows if not len(row.unread)]

    @staticmethod
    def _choose(row: Row, scores: Array) -> None:
        row.token = row.sampler.next(scores)
        row.left -= 1

    def end(self, row: Row, _reason: str) -> None:
        """Forget a row's keys and values."""
        row.cache = []
        if self._together == [row]:
            self._together, self._cache = [], []

    @staticmethod
    def cost(prompt: Array, most: Any, *others: Any) -> int:
        """Return the most tokens of which a row comes to hold keys and values."""
        return len(prompt) + len(others[-1]) + max(int(most), 0)

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
