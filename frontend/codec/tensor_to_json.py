"""The bytes of one tensor of an answer to rows that orjson can write as JSON."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from math import isfinite, prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from orjson import OPT_SERIALIZE_NUMPY, dumps

from ringbatch.frontend.codec.bytes_tensor import Overlong, Unsound, elements
from ringbatch.shm.brain_floats import widened
from ringbatch.shm.frame import Frame, Placement
from ringbatch.shm.tensor import Tensor

NOT_FINITE: Final = (
    "the answer holds NaN or Infinity, which JSON cannot carry; V2 carries them in binary data"
)

_N: Final = ord("n")
_FEW: Final = 48
"""Numbers that are looked at faster one by one."""
_MISFIT: Final = "the answer does not fit the model's outputs"
_MAX_EMPTY_LISTS: Final = 1 << 20


Result = tuple[memoryview, Placement]
"""Result of one part of a request, and the places of its outputs."""


class Unwritable(ValueError):
    """The bytes are no such tensor, or hold what JSON cannot carry; says which."""


class TensorWriter:
    """Turns the memory of one output into rows, for orjson with OPT_SERIALIZE_NUMPY.

    Args:
        tensor: what the signature says of it. BYTES become strings where they are UTF-8 and
            ``{"b64": "..."}`` where not; always the latter if its name ends in ``_bytes``.

    Attributes:
        name: of the output.
        dtype: of its elements, as they lie in memory.
        is_plain: whether orjson writes them as they lie there.
    """

    rows: Callable[[memoryview, int, int, tuple[int, ...]], Any]
    """``rows(memory, offset, size, shape)``: an array, or lists within a list, of that shape, the
    number of rows in front; `size` bytes are used, whole elements where these are of one size.
    Raises `Unwritable`."""

    def __init__(self, tensor: Tensor) -> None:
        self.name = tensor.name
        self.dtype = np.dtype(tensor.datatype.numpy)
        self._always_b64 = tensor.name.endswith("_bytes")
        special = {"BOOL": _booleans, "BF16": _brain_floats, "BYTES": self._strings}
        self.is_plain = tensor.datatype.name not in special
        self.rows = special.get(tensor.datatype.name, self._numbers)

    def text(self, memory: memoryview, offset: int, size: int, shape: tuple[int, ...]) -> bytes:
        """Return the rows as JSON text; arguments and errors as for `rows`."""
        if not self.is_plain:
            return dumps(self.rows(memory, offset, size, shape), None, OPT_SERIALIZE_NUMPY)
        text = dumps(np.ndarray(shape, self.dtype, memory, offset), None, OPT_SERIALIZE_NUMPY)
        if _N in text:  # null is what orjson writes for NaN and Infinity
            raise Unwritable(NOT_FINITE)
        return text

    def _numbers(
        self, memory: memoryview, offset: int, _size: int, shape: tuple[int, ...]
    ) -> NDArray[Any]:
        return _finite(np.ndarray(shape, self.dtype, memory, offset))

    def _strings(
        self, memory: memoryview, offset: int, size: int, shape: tuple[int, ...]
    ) -> list[Any]:
        texts = [self._text(text) for text in strings(memory, offset, size, prod(shape))]
        return _nested(texts, shape)

    def _text(self, data: bytes) -> str | dict[str, str]:
        if not self._always_b64:
            try:
                return data.decode()
            except UnicodeDecodeError:
                pass
        return {"b64": b64encode(data).decode()}


def placed(frame: Frame, rows: int, memory: memoryview) -> Placement:
    """Return the places of the outputs in a result.

    Args:
        frame: of the model's outputs.
        rows: instances in each of them.
        memory: the whole result.

    Raises:
        Unwritable, FrameError: the result does not fit the outputs.
    """
    if memory.nbytes < frame.prefix_bytes:
        raise Unwritable(_MISFIT)
    dimensions, lengths = frame.read_prefix(memory)
    if 0 in dimensions and prod(filter(None, dimensions)) > _MAX_EMPTY_LISTS:
        raise Unwritable(_MISFIT)
    placement = frame.place(rows, dimensions, lengths)
    if placement.size != memory.nbytes:
        raise Unwritable(_MISFIT)
    return placement


def whole_shape(
    tensor: Tensor, index: int, rows: int, results: Sequence[Result]
) -> tuple[int, ...]:
    """Return the shape of an output over all parts of a request.

    Args:
        tensor: the output.
        index: of the output.
        rows: in all results.
        results: of the parts.

    Raises:
        Unwritable: the results differ in theirs.
    """
    if tensor.static:
        return (rows, *tensor.shape)
    shapes = {placement.parts[index].shape[1:] for _, placement in results}
    if len(shapes) != 1:
        raise uneven(tensor, shapes)
    return (rows, *shapes.pop())


def uneven(tensor: Tensor, shapes: Iterable[tuple[int, ...]]) -> Unwritable:
    """Return the error of rows that cannot stand in one array.

    Args:
        tensor: the output.
        shapes: of its rows, each once.
    """
    one, other, *_ = sorted(map(list, shapes))
    padding = "0" if tensor.datatype.fixed else '""'
    return Unwritable(
        f'rows of output "{tensor.name}" differ in shape, such as {one} and {other}, and nothing '
        "says how to pad them; send each instance in a request of its own, or have the model "
        f'declare what shorter rows are padded with: Tensor("{tensor.name}", ..., '
        f"padding={padding})"
    )


def bytes_of(index: int, result: Result) -> memoryview:
    """Return the bytes of an output in a result."""
    memory, placement = result
    part = placement.parts[index]
    return memory[part.offset : part.offset + part.size]


def strings(memory: memoryview, offset: int, size: int, count: int) -> list[bytes]:
    """Return the elements of a BYTES tensor; raises `Unwritable` if its lengths make no sense."""
    try:
        spans = elements(memory, offset, size, count)
    except Overlong:
        raise Unwritable("the answer holds more bytes than its strings take") from None
    except Unsound:
        raise Unwritable("the lengths of the strings in the answer make no sense") from None
    return [bytes(memory[start:end]) for start, end in spans]


def _booleans(
    memory: memoryview, offset: int, _size: int, shape: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Return booleans in which any byte but 0 is true: numpy leaves bytes above 1 undefined."""
    array: NDArray[np.uint8] = np.ndarray(shape, np.uint8, memory, offset)
    return np.not_equal(array, 0)


def _brain_floats(
    memory: memoryview, offset: int, _size: int, shape: tuple[int, ...]
) -> NDArray[Any]:
    return _finite(widened(np.ndarray(shape, "<u2", memory, offset)))


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "f":
        few = array.size <= _FEW
        if not (all(map(isfinite, array.ravel().tolist())) if few else np.isfinite(array).all()):
            raise Unwritable(NOT_FINITE)
    return array


def _nested(leaves: list[Any], shape: tuple[int, ...]) -> list[Any]:
    for depth in range(len(shape) - 1, 0, -1):
        size = shape[depth]
        leaves = [leaves[i * size : (i + 1) * size] for i in range(prod(shape[:depth]))]
    return leaves
