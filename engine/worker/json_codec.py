"""Batches of models without a signature: JSON text in the slots, values to the model."""

import json
from collections.abc import Collection, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, Final

import numpy as np
import orjson

from ringbatch.engine.worker.outputs import WrongCount, WrongResult
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.errors import type_in_words
from ringbatch.shm.host.json_text import decoder_with, why_unwritable
from ringbatch.shm.uniform_batch import UniformBatch

_EMPTY: Final = (b'[""]', b"[[]]")
"""A row that is an empty text or list: only these are joined."""
_FINITE: Final = decoder_with(orjson.loads)
"""Decoder of numbers as frontends pass them: these refuse numbers that would be infinity."""
_DOUBLE_BYTES: Final = 8


class JsonCodec:
    """Codec of a model that takes and returns lists of JSON values.

    It takes and returns one value if the model has no batch dimension.

    Args:
        memory: that holds the requests.
        batched: whether the model has a batch dimension.
        asks: whether it takes a `Request` for each row too.
        function: its function that returns the list, for messages.
    """

    uniform = False

    def __init__(
        self,
        memory: memoryview,
        batched: bool = True,
        asks: bool = False,
        function: str = "predict",
    ) -> None:
        self._memory = memory
        self._batched = batched
        self._asks = asks
        self._function = function

    def read(self, requests: list[Request]) -> tuple[list[Request], list[Request], Any]:
        """See `Codec.read`."""
        instances: list[Any] = []
        words: list[Any] = []
        readable, unreadable = [], []
        for request in requests:
            values = self._values(request)
            if values is None:
                unreadable.append(request)
                continue
            context = [values.pop(0)] if self._asks else []
            instances += values
            words += context * request.rows
            readable.append(request)
        return readable, unreadable, (instances, words) if self._asks else (instances,)

    def _values(self, request: Request) -> list[Any] | None:
        """Return a request's instances, behind its context if the model asks for that.

        It is None if the request differs from its header.
        """
        start = request.request_offset
        try:
            text = bytes(self._memory[start : start + request.request_bytes])
            values = _FINITE.decode(text.decode())
        except (ValueError, RecursionError):
            return None
        wanted = request.rows + self._asks
        return values if isinstance(values, list) and len(values) == wanted else None

    def read_uniform(self, uniform: UniformBatch) -> Any | None:
        """Return None: JSON values are read one by one."""
        return None

    def squeeze_batch(self, arguments: Any) -> Any:
        """See `Codec.squeeze_batch`."""
        ((instance, *_),) = arguments
        return (instance,)

    def synthetic_arguments(self, values: Any) -> Any:
        """See `Codec.synthetic_arguments`; copies, as a model may change its arguments."""
        return ([deepcopy(value) for value in values],)

    def pad_rows(self, arguments: Any, count: int) -> Any:
        """See `Codec.pad_rows`."""
        (instances,) = arguments
        # Objects of their own: a model may change what it is given, once for each row.
        return (instances + [deepcopy(instances[-1]) for _ in range(count)],)

    def check(self, returned: object, rows: list[int], spare: int = 0) -> Any:
        """See `Codec.check`."""
        if not self._batched:
            returned = [returned]
        if isinstance(returned, np.ndarray):
            try:
                returned = _plain(returned)
            except TypeError as error:
                raise _unwritable(error) from None
        if not isinstance(returned, (list, tuple)):
            raise WrongResult(f"{self._function} returned {type_in_words(returned)}, not a list")
        count = sum(rows) + spare
        if len(returned) != count:
            found = f"{len(returned)} predictions for {count} instances"
            raise WrongCount(f"{self._function} returned {found}")
        texts, start = [], 0
        for own in rows:
            stop = start + own
            texts.append(json_text(returned[start:stop]))
            start = stop
        return texts

    def first_invalid(self, results: Any) -> WrongResult | None:
        """See `Codec.first_invalid`."""
        return next((text for text in results if isinstance(text, WrongResult)), None)

    def per_row_results(self, results: Any, rows: int) -> list[list[Any]]:
        """See `Codec.per_row_results`."""
        return [json.loads(text) for text in results]

    def row(self, results: Any, number: int) -> Any:
        """See `Codec.row`; each request has one row."""
        return results[number : number + 1]

    def empty_rows(self, results: Any) -> Collection[int]:
        """See `Codec.empty_rows`; each request has one row."""
        return [number for number, text in enumerate(results) if text in _EMPTY]

    def kept(self, results: Any) -> Any:
        """See `Codec.kept`: text does not change."""
        return results

    def joined(self, parts: Sequence[Any]) -> Any:
        """See `Codec.joined`."""
        return joined_texts(parts)

    def write(self, results: Any, requests: list[Request]) -> Sequence[int | WrongResult]:
        """See `Codec.write`."""
        return [
            text if isinstance(text, WrongResult) else self._write_one(text, request)
            for text, request in zip(results, requests, strict=True)
        ]

    def parts(self, results: Any, requests: list[Request]) -> Sequence[bytes | WrongResult]:
        """See `Codec.parts`."""
        texts: list[bytes | WrongResult] = results
        return texts

    def _write_one(self, text: bytes, request: Request) -> int:
        if len(text) <= request.result_capacity:
            self._memory[request.result_offset : request.result_offset + len(text)] = text
        return len(text)

    def write_uniform(self, results: Any, uniform: UniformBatch) -> int:
        """Fail: `read_uniform` returns nothing to write."""
        raise AssertionError("results of JSON are written one by one")


def joined_texts(
    parts: Sequence[Sequence[bytes | WrongResult]],
) -> list[bytes | WrongResult]:
    """Return parts of answers, at least one, as one answer for each request.

    Texts and lists are joined end to end; of all else the last part is the answer.

    Args:
        parts: each has, for each request, the JSON text of a list with its rows.
    """
    return [_joined_text(own) for own in zip(*parts, strict=True)]


def _joined_text(texts: Sequence[bytes | WrongResult]) -> bytes | WrongResult:
    wrong = next((text for text in texts if isinstance(text, WrongResult)), None)
    if wrong is not None:
        return wrong
    lists = [json.loads(text) for text in texts if isinstance(text, bytes)]
    return json_text([_joined_value(own) for own in zip(*lists, strict=True)])


def _joined_value(values: Sequence[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, list) for value in values):
        return [*chain.from_iterable(values)]
    return values[-1]


def json_text(values: Any) -> bytes | WrongResult:
    """Return predictions as JSON text, or why that is not possible."""
    try:
        try:
            return _dumped(values, ascii_only=False)
        except UnicodeEncodeError:
            # Half of a surrogate pair: JSON has it as an escape, UTF-8 does not have it at all.
            return _dumped(values, ascii_only=True)
    except (TypeError, ValueError, RecursionError) as error:
        return _unwritable(error)


def _unwritable(error: Exception) -> WrongResult:
    return WrongResult(f"a prediction cannot be written as JSON: {why_unwritable(error)}")


def _dumped(values: Any, *, ascii_only: bool) -> bytes:
    return json.dumps(
        values,
        ensure_ascii=ascii_only,
        allow_nan=False,
        separators=(",", ":"),
        default=_plain,
    ).encode()


def _plain(value: object) -> Any:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"{type(value).__name__} is no JSON value")
    kind = value.dtype.kind
    if kind in "mMc":
        # Of times, numpy gives whole numbers for some units and Python's dates for others.
        raise TypeError(f"numpy's {value.dtype} is no JSON value")
    if kind == "f" and value.dtype.itemsize > _DOUBLE_BYTES:
        # Its tolist() gives numpy's own scalars.
        value = value.astype(np.float64)
    return value.tolist()
