"""Batches of requests whose open dimensions differ: padded on the way in, cut on the way out.

`ringbatch.engine.ipc.shaping` decides the padded sizes, and the request that each part of an output
belongs to. This module applies these decisions to arrays.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.ipc.shaping import Dimensions, Lengths, Unfit
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.finite_outputs import only_finite
from ringbatch.engine.worker.joined_parts import joined_outputs
from ringbatch.engine.worker.outputs import Outputs, WrongResult, array_dtype
from ringbatch.engine.worker.ragged import Column, Ragged
from ringbatch.engine.worker.samples import open_dimensions
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.engine.worker.tensors import Unlike
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.tensor import ANY, Tensor

Array = NDArray[Any]

FREE_BYTES: Final = 1 << 28
"""Bytes that a padded batch may always take, however little its requests hold."""
GROWTH: Final = 64
"""Growth factor of larger batches: requests of several open dimensions can be small, and yet make
a batch that no memory holds. What would grow more is run in halves."""
_LENGTHS: Final = ("INT32", "INT64")


@dataclass(frozen=True, slots=True)
class Padding:
    """Padding of a model's open dimensions.

    Attributes:
        lengths: of its inputs and outputs.
        values: that each input is padded with, in order.
        lengths_at: the index of the input for the true lengths; None if there is none.
        lengths_dtype: of that input.
    """

    lengths: Lengths
    values: tuple[Any, ...]
    lengths_at: int | None = None
    lengths_dtype: str = "<i8"


def padding(
    model: Model, edges: Sequence[int], values: Mapping[str, float], lengths_input: str
) -> tuple[Model, Padding]:
    """Return a model as requests see it, and the padding of its inputs.

    Args:
        model: as its file declares it.
        edges: of the buckets, ascending; none if everything is padded to the longest.
        values: to pad with, by the input's name; by default 0, false or empty.
        lengths_input: the input that takes the true length of each row, the first open dimension of
            its request; it is no part of requests. Empty if there is none.

    Raises:
        Unfit: the model is not made for it; the text says why.
    """
    names = [tensor.name for tensor in model.inputs]
    for name in [*values, *([lengths_input] if lengths_input else [])]:
        if name not in names:
            raise Unfit(f"there is no input {name!r}; there is: {', '.join(names) or 'none'}")
    lengths_at = names.index(lengths_input) if lengths_input else None
    dtype = "<i8"
    if lengths_at is not None:
        tensor = model.inputs[lengths_at]
        if tensor.shape or tensor.datatype.name not in _LENGTHS:
            raise Unfit(
                f"input {lengths_input!r} is {tensor.datatype.name} {list(tensor.shape)}, but one "
                f"that takes lengths must be {' or '.join(_LENGTHS)} []"
            )
        dtype = tensor.datatype.numpy
    inputs = tuple(tensor for tensor in model.inputs if tensor.name != lengths_input)
    lengths = Lengths(inputs, model.outputs, edges)
    fills = tuple(_value(tensor, values.get(tensor.name)) for tensor in inputs)
    return replace(model, inputs=inputs), Padding(lengths, fills, lengths_at, dtype)


def _value(tensor: Tensor, wanted: float | None) -> Any:
    if tensor.datatype.fixed:
        value = array_dtype(tensor).type(0)
        if wanted is None:
            return value
        with np.errstate(all="ignore"):
            value = np.asarray(wanted).astype(array_dtype(tensor))[()]
        if array_dtype(tensor).kind == "f" or value == wanted:
            return value
    elif wanted is None:
        return b""
    raise Unfit(
        f"input {tensor.name!r} is {tensor.datatype.name} and cannot be padded with {wanted:g}"
    )


class _WithoutPadding(Outputs):
    """Outputs whose rows have their own sizes already."""

    __slots__ = ()


class PaddedCodec(TensorCodec):
    """Batches of a model whose open dimensions are padded.

    Args:
        memory: the segment's.
        model: its inputs are those that requests carry.
        padding: of the model.
        finite: whether a request fails whose answer holds NaN or infinity.
    """

    def __init__(
        self, memory: memoryview, model: Model, padding: Padding, *, finite: bool = False
    ) -> None:
        super().__init__(memory, model)
        self._finite = finite
        self._inputs = model.inputs
        self._padding = padding
        self._lengths = padding.lengths
        self._padded: Dimensions = ()
        """The open dimensions of the batch that was read last."""
        self._own: dict[int, Dimensions] = {}
        """Open dimensions of that batch's requests, by their references."""
        self._synthetic: Sequence[Dimensions] = ()
        """Open dimensions of the latest made-up rows."""
        self._counted: list[tuple[Dimensions, int]] = []
        """Open dimensions and number of rows of each request that was read or made up last."""

    def read(self, requests: list[Request]) -> tuple[list[Request], list[Request], Any]:
        """See `Codec.read`."""
        readable, unreadable, rows = self._gatherer.gather_each(requests)
        return readable, unreadable, self._put_together(readable, rows) if readable else []

    def _put_together(self, requests: list[Request], rows: list[list[Array]]) -> list[Array]:
        own, arguments = self._arguments(rows)
        self._own = {r.ref: sizes for r, sizes in zip(requests, own, strict=True)}
        return arguments

    def _arguments(self, rows: list[list[Array]]) -> tuple[list[Dimensions], list[Array]]:
        """Return the open dimensions of each of several arrays for each input, and all padded."""
        own = [open_dimensions(self._inputs, arrays) for arrays in rows]
        self._counted = [(size, len(each[0])) for size, each in zip(own, rows, strict=True)]
        goals = {self._lengths.goal(dimensions) for dimensions in own}
        if len(goals) > 1:
            raise Unlike("the requests are not padded to the same sizes")
        self._padded = padded = self._lengths.met(goals.pop(), own)
        columns: Sequence[tuple[Array, ...]] = list(zip(*rows, strict=True))
        if len(rows) > 1 and self._grows_too_much(columns, padded):
            raise Unlike("together they would take too much memory")
        arrays = [
            _joined(column, shape, value)
            for column, shape, value in zip(
                columns, self._shapes(padded), self._padding.values, strict=True
            )
        ]
        if self._padding.lengths_at is not None:
            lengths = np.repeat([sizes[0] for sizes in own], list(map(len, columns[0])))
            arrays.insert(self._padding.lengths_at, lengths.astype(self._padding.lengths_dtype))
        return own, arrays

    def synthetic_arguments(self, values: Any) -> Any:
        """See `Codec.synthetic_arguments`: an array for each input, for each row."""
        self._synthetic, arguments = self._arguments(values)
        return arguments

    def first_invalid(self, results: Any) -> WrongResult | None:
        """See `Codec.first_invalid`. What comes of padding is nobody's."""
        outputs: Outputs = results
        if isinstance(outputs, _WithoutPadding):
            return super().first_invalid(outputs)
        for fault in outputs.faults:
            for row, own in enumerate(self._synthetic):
                elements = fault.elements[row : row + 1]
                if _cut(elements, self._lengths.sizes(fault.output, own)).any():
                    return fault.error
        return None

    def per_row_results(self, results: Any, rows: int) -> list[list[Any]]:
        """See `Codec.per_row_results`."""
        outputs: Outputs = results
        if isinstance(outputs, _WithoutPadding):
            return super().per_row_results(outputs, rows)
        return [
            [
                copy(_cut(array[row : row + 1], self._lengths.sizes(index, own))[0])
                for index, array in enumerate(outputs.arrays)
            ]
            for row, own in enumerate(self._synthetic)
        ]

    def check(self, returned: object, rows: list[int], spare: int = 0) -> Any:
        """See `Codec.check`. An output must be as long as the padded input is."""
        outputs: Outputs = super().check(returned, rows, spare)
        for index, (tensor, array) in enumerate(zip(self._outputs, outputs.arrays, strict=True)):
            for axis, size in self._lengths.sizes(index, self._padded):
                if isinstance(array, Ragged):
                    raise WrongResult(
                        f"rows of output {tensor.name!r} differ in shape, but are to be cut to the "
                        "lengths of an input; where they have lengths of their own, declare a "
                        f"padding: Tensor({tensor.name!r}, ..., padding=0)"
                    )
                if array.shape[axis] != size:
                    raise WrongResult(
                        f"output {tensor.name!r} has shape {list(array.shape)} for inputs that "
                        f"were padded to {size}, so nobody can say how much of it is padding"
                    )
        return only_finite(outputs, self._outputs) if self._finite else outputs

    def joined(self, parts: Sequence[Any]) -> Any:
        """See `Codec.joined`. Each part loses its padding before."""
        found = joined_outputs([self._without_padding(part) for part in parts], self._outputs)
        return _WithoutPadding(found.arrays, found.faults)

    def _without_padding(self, outputs: Outputs) -> Outputs:
        """Return outputs of the latest batch, each row cut to its own size."""
        faults = []
        for fault in outputs.faults:
            rows = self._cut_rows(fault.elements, fault.output)
            faults.append(fault._replace(elements=np.array([row.any() for row in rows])))
        columns: list[Column] = []
        for index, array in enumerate(outputs.arrays):
            if isinstance(array, Ragged):
                # It has lengths of its own, which no input's padding changes.
                columns.append(array)
                continue
            rows = self._cut_rows(array, index)
            alike = all(row.shape == rows[0].shape for row in rows)
            columns.append(np.stack(rows) if alike else Ragged(rows))
        return Outputs(columns, faults)

    def _cut_rows(self, array: Array, output: int) -> list[Array]:
        by_row = [own for own, rows in self._counted for _ in range(rows)]
        return [
            _cut(array[row : row + 1], self._lengths.sizes(output, own))[0]
            for row, own in enumerate(by_row)
        ]

    def write(self, results: Any, requests: list[Request]) -> Sequence[int | WrongResult]:
        """See `Codec.write`."""
        outputs: Outputs = results
        if isinstance(outputs, _WithoutPadding):
            return super().write(outputs, requests)
        sizes: list[int | WrongResult] = []
        for request, own in self._own_parts(outputs, requests):
            sizes += self._scatterer.scatter(own, [request])
        return self._or_faults(sizes, outputs.faults, requests)

    def parts(self, results: Any, requests: list[Request]) -> Sequence[bytes | WrongResult]:
        """See `Codec.parts`."""
        outputs: Outputs = results
        parts: list[bytes | WrongResult] = []
        for request, own in self._own_parts(outputs, requests):
            parts += self._scatterer.parts(own, [request.rows])
        return self._or_faults(parts, outputs.faults, requests)

    def _own_parts(
        self, outputs: Outputs, requests: list[Request]
    ) -> Iterator[tuple[Request, list[Any]]]:
        """Yield each request with its rows of all outputs, without padding."""
        start = 0
        for request in requests:
            stop = start + request.rows
            yield (
                request,
                [
                    self._own_part(array[start:stop], index, request)
                    for index, array in enumerate(outputs.arrays)
                ],
            )
            start = stop

    def _own_part(self, rows: Any, output: int, request: Request) -> Any:
        """See `TensorCodec._own_part`. What comes of padding is nobody's."""
        return _cut(rows, self._lengths.sizes(output, self._own[request.ref]))

    def _shapes(self, dimensions: Dimensions) -> list[tuple[int, ...]]:
        sizes = iter(dimensions)
        return [
            tuple(next(sizes) if declared == ANY else declared for declared in tensor.shape)
            for tensor in self._inputs
        ]

    def _grows_too_much(self, columns: Sequence[tuple[Array, ...]], padded: Dimensions) -> bool:
        before = after = 0
        for column, shape in zip(columns, self._shapes(padded), strict=True):
            before += sum(array.nbytes for array in column)
            after += sum(map(len, column)) * prod(shape) * column[0].itemsize
        return after > max(FREE_BYTES, GROWTH * before)


def _joined(arrays: Sequence[Array], shape: tuple[int, ...], value: Any) -> Array:
    """Return the rows of all arrays in one, each row padded to `shape`."""
    if all(array.shape[1:] == shape for array in arrays):
        return np.concatenate(arrays)
    joined: Array = np.full((sum(map(len, arrays)), *shape), value, arrays[0].dtype)
    start = 0
    for array in arrays:
        stop = start + len(array)
        joined[(slice(start, stop), *map(slice, array.shape[1:]))] = array
        start = stop
    return joined


def _cut(array: Array, sizes: Sequence[tuple[int, int]]) -> Array:
    """Return an array with some of its axes cut to a size."""
    if not sizes:
        return array
    cut = [slice(None)] * array.ndim
    for axis, size in sizes:
        # A fault of parts that are joined has one element for a row, and nothing to be cut.
        if axis < array.ndim:
            cut[axis] = slice(size)
    return array[tuple(cut)]
