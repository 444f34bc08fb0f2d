"""Texts of a request, and rows of tokens as they stand in slots. Pure.

A part holds rows of one bucket of lengths alone, and no more of them than a batch may have tokens.
So no list of texts makes a batch that takes longer than any other.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.codec.bytes_tensor import elements
from ringbatch.frontend.codec.payload import LazyBytes, Part, SlotPart, framed
from ringbatch.frontend.codec.rendering import Results
from ringbatch.frontend.codec.tensor_to_json import NOT_FINITE
from ringbatch.shm.errors import InvalidRequest, ModelFailed
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.texts import FILLER, IDS

Text = str | tuple[str, str]
"""A text, or a query and a text."""
Ids = NDArray[np.int32]

_FRAME: Final = Frame((IDS,))
_NO_EDGE: Final = 1 << 62
_OF_EACH: Final = 16
"""The fixed cost of a text, in characters that would take as long."""


class GivenTexts(LazyBytes):
    """Texts in the place of a payload, for protocols that read no tensors.

    Attributes:
        texts: of the request; none if it has `ids`.
        ids: of the request, if its client has made tokens itself.
        truncate: as of `ringbatch.shm.texts.Tokens`; None if the model's setting holds.
        document_tokens: the most tokens that the second text of a pair may have; 0 for as many as
            the model takes.
        counts: the tokens of each text, once they are known.
    """

    __slots__ = ("counts", "document_tokens", "ids", "texts", "truncate")

    def __init__(
        self,
        texts: Sequence[Text],
        ids: Sequence[Sequence[int]] = (),
        truncate: bool | None = None,
        document_tokens: int = 0,
    ) -> None:
        self.texts = texts
        self.ids = ids
        self.truncate = truncate
        self.document_tokens = document_tokens
        self.counts: list[int] = []

    def __len__(self) -> int:
        """Rows."""
        return len(self.texts) or len(self.ids)

    @property
    def size(self) -> int:
        """The cost of all texts: their characters or tokens, and `_OF_EACH` for each text or list.

        Even an empty text takes time.
        """
        each = _OF_EACH * len(self)
        if self.ids:
            return each + sum(map(len, self.ids))
        return each + sum(
            len(t) if isinstance(t, str) else len(t[0]) + len(t[1]) for t in self.texts
        )


class TokenizedTexts(GivenTexts):
    """Texts that another process has turned into tokens.

    Attributes:
        parts, row_order: as in `ringbatch.frontend.texts.tokenizing.Tokenized`.
    """

    __slots__ = ("parts", "row_order")

    def __init__(
        self, counts: list[int], parts: tuple[Part, ...], row_order: list[int] | None
    ) -> None:
        super().__init__(())
        self.counts = counts
        self.parts = parts
        self.row_order = row_order

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.counts)


def given(parts: Sequence[SlotPart], frame: Frame) -> GivenTexts:
    """Return the texts of a request.

    Args:
        parts: as a protocol has read them.
        frame: of the model's inputs, as clients send them.

    Raises:
        InvalidRequest: an element is no UTF-8.
    """
    first = parts[0][1]
    if isinstance(first, GivenTexts):
        return first
    texts: list[Text] = []
    for rows, payload, _ in parts:
        data = bytes(payload)
        placement = frame.place(rows, *frame.read_prefix(data))
        columns = [
            [
                _decoded(data[start:end], len(texts) + number, tensor.name)
                for number, (start, end) in enumerate(
                    elements(data, placed.offset, placed.size, rows)
                )
            ]
            for tensor, placed in zip(frame.tensors, placement.parts, strict=True)
        ]
        if len(columns) == 1:
            texts += columns[0]
        else:
            texts += list(zip(columns[0], columns[1], strict=True))
    return GivenTexts(texts)


def _decoded(data: bytes, number: int, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f'input "{name}" of instance {number} is no UTF-8: byte {error.start} is '
            f"0x{data[error.start]:02x}"
        ) from None


class Shape:
    """Rules that make rows of tokens into parts of one model's requests.

    Args:
        spec: the model.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._cap = spec.cap
        self._edges = spec.length_buckets
        self._budget = spec.max_batch_elements

    def in_order(self, rows: Sequence[Ids]) -> list[Part]:
        """Return parts of neighbouring rows."""
        return [_part(rows[start:end]) for start, end in self._runs([len(row) for row in rows])]

    def by_length(self, rows: Sequence[Ids]) -> tuple[list[Part], list[int]]:
        """Return as few parts as possible, and for each of their rows its place in the request."""
        row_order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        return self.in_order([rows[index] for index in row_order]), row_order

    def _runs(self, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Start and end of what makes one part each."""
        # A part may grow by any later row, so its size depends on the longest of these.
        longest = [*accumulate(reversed(lengths), max)]
        start, edge, most = 0, 0, 0
        for index, length in enumerate(lengths):
            own = self._edge(length)
            if index and own == edge and index - start < most:
                continue
            if index:
                yield start, index
            start, edge, most = index, own, self._most(own, longest[-index - 1])
        yield start, len(lengths)

    def _edge(self, length: int) -> int:
        for edge in self._edges:
            if edge >= length:
                return edge
        return _NO_EDGE

    def _most(self, edge: int, longest: int) -> int:
        """Return the most rows of a part, if no remaining row is longer than `longest`."""
        if not self._budget:
            return self._cap
        size = edge if edge < _NO_EDGE else longest
        return min(self._cap, max(self._budget // size, 1))


def _part(rows: Sequence[Ids]) -> Part:
    if len(rows) == 1:
        longest, data = len(rows[0]), rows[0].tobytes()
    else:
        longest = max(map(len, rows))
        joined = np.full((len(rows), longest), FILLER, np.int32)
        for index, row in enumerate(rows):
            joined[index, : len(row)] = row
        data = joined.tobytes()
    return Part(len(rows), framed(_FRAME, len(rows), (longest,), [data]), _FRAME.key_bytes)


def expect_finite(numbers: NDArray[np.float32]) -> None:
    """Return if JSON can carry them.

    Raises:
        ModelFailed: it cannot, as over V1.
    """
    if not np.isfinite(numbers).all():
        raise ModelFailed(NOT_FINITE)


def reordered(results: Results, row_order: Sequence[int]) -> tuple[int, memoryview]:
    """Return the results of all parts as one, with rows in the request's order.

    Args:
        results: the rows and the result of each part; every row has as many bytes.
        row_order: for each row, its place in the request.
    """
    data = b"".join(result for _, result in results)
    found = np.frombuffer(data, np.uint8).reshape(len(row_order), -1)
    ordered: NDArray[Any] = np.empty_like(found)
    ordered[np.asarray(row_order)] = found
    return len(row_order), ordered.reshape(-1).data
