"""numpy arrays as what stands in slots, and results as numpy arrays, for one model.

    datatype          array
    ----------------  -----------------------------------------------------------------------
    BOOL to FP64      the numpy dtype of that name, in the byte order of this machine
    BF16              uint16, the bits of each; ml_dtypes' bfloat16 is taken as well
    BYTES             in: objects that are bytes or str, or numpy's own S or U; out: objects, bytes

An array has the batch dimension in front, if the model has one, and after it the shape of one
instance. Nothing is converted: an array of another dtype is refused, as V2 does, in the same words.
A masked array with masked elements is refused too, because a slot has no mask.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.frontend.codec.payload import Bytes, Part
from ringbatch.frontend.codec.ragged import in_one
from ringbatch.frontend.codec.tensor_to_json import Unwritable, placed, strings, uneven
from ringbatch.frontend.v2.input import Input, Shape
from ringbatch.frontend.v2.signature import Signature
from ringbatch.shm.errors import InvalidRequest, ModelFailed, type_in_words
from ringbatch.shm.frame import Frame, FrameError, PlacedTensor
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import DATATYPES, Tensor
from ringbatch.shm.tuples import unchecked_tuple

Array = NDArray[Any]
Arrays = Array | dict[str, Array]
"""The only output of a model, or all of several by name."""

_SHAPES_KEPT: Final = 256
_NAMES: Final = {
    np.dtype(datatype.numpy): datatype.name
    for datatype in DATATYPES.values()
    if datatype.fixed and datatype.name != "BF16"
}
_BITS: Final = np.dtype("<u2")
_STRINGS: Final = "OSU"


class ArrayForm(NamedTuple):
    """Form of results that differ in the numbers of one array alone.

    Attributes:
        size: of a result in bytes.
        prefix: first bytes of a result.
        start: where its numbers begin.
        dtype, shape: of the array; there is a dimension, and no size is 0.
    """

    size: int
    prefix: bytes
    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def fits(self, result: bytearray) -> bool:
        """Return whether a result has this form."""
        return len(result) == self.size and result.startswith(self.prefix)

    def arrays(self, results: NDArray[np.uint8]) -> list[Array]:
        """Return the array of each result, each in memory of its own.

        Args:
            results: of this form, shape [results, size].
        """
        numbers = results[:, self.start :].view(self.dtype).reshape(len(results), *self.shape)
        return [one.copy() for one in numbers]


class ArrayCodec:
    """Codec of arrays for one model. Pure.

    Args:
        spec: the model, with declared inputs and outputs.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._signature = Signature(spec)
        self._tensors = {tensor.name: tensor for tensor in spec.inputs}
        self._outputs = spec.outputs
        self._frame = Frame(spec.answered)
        self._whole = in_one(spec)
        self._batched = spec.batched
        self._cap = spec.cap
        first = spec.inputs[0]
        self._plain = (
            len(spec.inputs) == 1
            and first.static
            and spec.batched
            and spec.words is None
            and first.datatype.name not in ("BOOL", "BF16", "BYTES")
        )
        self._dtype = _dtype(first)
        self._known: dict[Shape, int] = {}
        """The rows of shapes that were found right and need no second look."""
        self._only: tuple[Shape, np.dtype[Any], int] | None = None
        """Shape, dtype and bytes of a prediction, where these are always the same."""
        self._element: np.dtype[Any] | None = None
        """The dtype of the only output; None for several, and if its elements need a look."""
        output = spec.outputs[0]
        if len(spec.outputs) == 1 and output.datatype.fixed and output.datatype.name != "BOOL":
            self._element = _dtype(output)
            if output.row_bytes:
                self._only = output.shape, self._element, output.row_bytes

    def parse(self, inputs: Array | Mapping[str, Array]) -> tuple[Part, ...]:
        """Return the parts for slots, in order; none without instances.

        The parts may refer to the arrays' own memory.

        Args:
            inputs: the array of the model's only input, or the arrays of all by name.

        Raises:
            InvalidRequest: with the value found and the right form.
        """
        if type(inputs) is np.ndarray:
            rows = self._known.get(inputs.shape)
            if rows and inputs.dtype == self._dtype and inputs.flags.c_contiguous:
                return (unchecked_tuple(Part, (rows, inputs.data.cast("B"), 0)),)
        parts = self._parse(inputs)
        if self._plain and len(parts) == 1 and isinstance(inputs, np.ndarray):
            if len(self._known) >= _SHAPES_KEPT:
                self._known.clear()
            # Views of arrays without elements cannot be cast.
            self._known[inputs.shape] = parts[0].rows if inputs.size else 0
        return parts

    def _parse(self, inputs: Array | Mapping[str, Array]) -> tuple[Part, ...]:
        shapes: dict[str, Shape] = {}
        dimensions: dict[str, Shape] = {}
        tensors: dict[str, Bytes] = {}
        for index, (name, array) in enumerate(self._named(inputs).items()):
            wanted = self._signature.named(name, index, tensors)
            if not isinstance(array, np.ndarray):
                raise InvalidRequest(f'input "{name}" is {type_in_words(array)}, not a numpy array')
            own = wanted.name
            tensor = self._tensors[own]
            wanted.expect_datatype(_datatype(array, tensor))
            shapes[own], dimensions[own] = wanted.fitted(list(array.shape))
            tensors[own] = _bytes(array, tensor, wanted, shapes[own])
        if len(tensors) < len(self._tensors):
            for reader, shape, own_dimensions, data in self._signature.left_out(dict(shapes)):
                shapes[reader.name], dimensions[reader.name] = shape, own_dimensions
                tensors[reader.name] = data
        ordered = self._signature.in_order(shapes)
        self._signature.rows(ordered)
        opened = (size for sizes in self._signature.in_order(dimensions) for size in sizes)
        return self._signature.parts(ordered, tuple(opened), self._signature.in_order(tensors))

    def _named(self, inputs: Array | Mapping[str, Array]) -> Mapping[str, Array]:
        if isinstance(inputs, Mapping):
            return inputs
        if len(self._tensors) > 1:
            raise InvalidRequest(
                f"the inputs are {type_in_words(inputs)}, but {self._signature.takes}, which are "
                "given as a dict of arrays by name"
            )
        return dict.fromkeys(self._tensors, inputs)

    def result_bytes(self, rows: int) -> int | None:
        """Return the memory for an answer of so many rows; None if the model decides that."""
        return self._frame.place(rows).size if self._frame.static else None

    def render(self, results: Sequence[tuple[int, bytearray]]) -> Arrays:
        """Return the outputs.

        Args:
            results: rows and result of each part in order. The arrays are views of a result if
                it is the only one; none if there were no instances.

        Returns:
            The array of the only output, or all by name; each of the declared datatype, with the
            batch dimension in front if the model has one, and writable.

        Raises:
            ModelFailed: a result does not fit the model's outputs.
        """
        if len(results) == 1 and self._only is not None and self._batched:
            (rows, result), (shape, dtype, row_bytes) = results[0], self._only
            if len(result) == rows * row_bytes:
                return np.ndarray((rows, *shape), dtype, result)
        try:
            if len(results) == 1 and self._element is not None:
                return self._rendered(*results[0], self._element)
            parts = [
                (memory, placed(self._frame, rows, memory).parts)
                for rows, memory in self._whole([(rows, memoryview(one)) for rows, one in results])
            ]
            arrays = [
                self._joined(
                    tensor, [_array(tensor, memory, places[i]) for memory, places in parts]
                )
                for i, tensor in enumerate(self._outputs)
            ]
        except (Unwritable, FrameError) as error:
            raise ModelFailed(str(error)) from None
        if len(arrays) == 1:
            return arrays[0]
        return {tensor.name: array for tensor, array in zip(self._outputs, arrays, strict=True)}

    def _rendered(self, rows: int, result: bytearray, dtype: np.dtype[Any]) -> Array:
        """Return the only output of the only result; raises as `placed`."""
        one = placed(self._frame, rows, memoryview(result)).parts[0]
        array: Array = np.ndarray(one.shape, dtype, result, one.offset)
        return array if self._batched else array.reshape(array.shape[1:])

    def form(self, rows: int, result: bytearray) -> ArrayForm | None:
        """Return the form of results like this one; None if there is none.

        Args:
            rows: in the result.
            result: all of it.
        """
        if self._element is None:
            return None
        try:
            one = placed(self._frame, rows, memoryview(result)).parts[0]
        except (Unwritable, FrameError):
            return None
        shape = one.shape if self._batched else one.shape[1:]
        if not shape or not one.size:
            return None
        prefix = bytes(result[: self._frame.prefix_bytes])
        return ArrayForm(len(result), prefix, one.offset, self._element, shape)

    def _joined(self, tensor: Tensor, arrays: list[Array]) -> Array:
        if not arrays:
            return np.empty((0, *tensor.shape), _dtype(tensor))
        shapes = {array.shape[1:] for array in arrays}
        if len(shapes) > 1:
            raise uneven(tensor, shapes)
        array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        return array if self._batched else array.reshape(array.shape[1:])


class RowCodec:
    """Codec of instances and predictions that are runs of bytes of one size.

    Each is an item of one array.

    Attributes:
        input_bytes: of one instance.
        output_bytes: of one prediction.

    Args:
        spec: the model.

    Raises:
        InvalidRequest: it has several inputs or outputs, or a size depends on the request, as may
            that of the tensors kept between its steps.
    """

    def __init__(self, spec: ModelSpec) -> None:
        sizes = [tensor.row_bytes for tensor in (*spec.inputs, *spec.outputs)]
        asks = spec.words is not None
        if spec.chain is not None and not spec.chain.static:
            raise InvalidRequest(
                f'the steps of "{spec.name}" keep tensors whose size depends on the request; '
                "send its instances with infer or infer_async"
            )
        if len(spec.inputs) != 1 or len(spec.outputs) != 1 or not all(sizes) or asks:
            raise InvalidRequest(
                f'model "{spec.name}" has not one input and one output, both of a fixed size; '
                "send its instances with infer or infer_async"
            )
        (self._input,), (self._output,) = spec.inputs, spec.outputs
        self.input_bytes, self.output_bytes = (size or 0 for size in sizes)
        self._wanted = Input(self._input, spec.name)

    def rows(self, inputs: Any) -> Array:
        """Return the bytes of each instance, shape [rows].

        Args:
            inputs: an array whose first size is the number of instances, also if the model has
                no batch dimension.

        Raises:
            InvalidRequest: with the value found and the right form.
        """
        if not isinstance(inputs, np.ndarray):
            found = type_in_words(inputs)
            raise InvalidRequest(f'input "{self._input.name}" is {found}, not a numpy array')
        self._wanted.expect_datatype(_datatype(inputs, self._input))
        shape, _ = self._wanted.fitted(list(inputs.shape))
        data = np.frombuffer(_bytes(inputs, self._input, self._wanted, shape), np.uint8)
        return data.view(f"V{self.input_bytes}")

    def predictions(self, results: Array) -> Array:
        """Return the outputs, shape [rows, ...], from an array of the bytes of each."""
        shape = (len(results), *self._output.shape)
        array: Array = results.view(_dtype(self._output)).reshape(shape)
        return _sound(array, self._output)

    def room(self, rows: int) -> Array:
        """Return zeroed memory for that many predictions."""
        return np.zeros(rows, f"V{self.output_bytes}")


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    return _BITS if tensor.datatype.name == "BF16" else np.dtype(tensor.datatype.numpy)


def _datatype(array: Array, tensor: Tensor) -> str:
    """Return the protocol's name of an array's dtype, or numpy's if the protocol has none."""
    if array.dtype.kind in _STRINGS:
        return "BYTES"
    if tensor.datatype.name == "BF16" and (array.dtype == _BITS or array.dtype.name == "bfloat16"):
        return "BF16"
    return _NAMES.get(array.dtype, str(array.dtype))


def _bytes(array: Array, tensor: Tensor, wanted: Input, shape: Shape) -> Bytes:
    if type(array) is not np.ndarray and np.ma.is_masked(array):
        raise InvalidRequest(
            f'input "{tensor.name}" is a masked array that masks elements; fill them, as with '
            "filled(), for no mask reaches the model"
        )
    if tensor.datatype.fixed:
        data: NDArray[np.uint8] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return wanted.unpacked(data.data, shape)
    return joined([_text(value, tensor) for value in array.reshape(-1).tolist()])


def _text(value: Any, tensor: Tensor) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise InvalidRequest(
            f'input "{tensor.name}" holds {type_in_words(value)}; '
            "the elements of BYTES are bytes or str"
        )
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            f'input "{tensor.name}" holds half of a surrogate pair, which UTF-8 does not have'
        ) from None


def _array(tensor: Tensor, memory: memoryview, one: PlacedTensor) -> Array:
    if not tensor.datatype.fixed:
        found = strings(memory, one.offset, one.size, prod(one.shape))
        values: Array = np.empty(len(found), dtype=object)
        values[:] = found
        return values.reshape(one.shape)
    return _sound(np.ndarray(one.shape, _dtype(tensor), memory, one.offset), tensor)


def _sound(array: Array, tensor: Tensor) -> Array:
    if tensor.datatype.name == "BOOL":
        # To numpy, booleans that are neither 0 nor 1 are undefined.
        return np.not_equal(array.view(np.uint8), 0)
    return array
