"""Samples for warm-up: values made up from the signature, or those of a file.

Made-up values are ones, because they are harmless in more places than zeros: an index that most
tables have, a mask that hides nothing, a divisor. A file has the form of a V1 request,
``{"instances": [...]}``, or is the list alone.

If lengths are padded, the rows of a batch have several, as those of clients do. Made-up ones are
spread over their bucket, and those of a file are put with those of the same bucket.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from ringbatch.engine.ipc.shaping import Lengths
from ringbatch.engine.worker.outputs import array_dtype
from ringbatch.shm import default_values
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import ANY, Tensor

Array = NDArray[Any]


def made_up(inputs: Sequence[Tensor], rows: int, length: int) -> list[Array]:
    """Return an array of ones for each input, shape [rows, ...].

    `length` stands for every open dimension; BYTES are the text "1". An input has its default if
    that is empty, or the shape is fixed.
    """
    return [
        of_default(tensor, rows)
        if tensor.default is not None and (tensor.static or tensor.default == ())
        else np.full(
            (rows, *(length if size == ANY else size for size in tensor.shape)),
            1 if tensor.datatype.fixed else b"1",
            array_dtype(tensor),
        )
        for tensor in inputs
    ]


def of_default(tensor: Tensor, rows: int) -> Array:
    """Return that many rows of an input's default."""
    shape = default_values.sizes_of(tensor.default, len(tensor.shape))
    row = np.empty(shape, dtype=array_dtype(tensor))
    row.reshape(-1)[:] = list(default_values.elements(tensor.default))
    return np.stack([row] * rows)


def spread(below: int, length: int, count: int) -> list[int]:
    """Return that many sizes of a bucket, `length` first, down to the least.

    Args:
        below: the edge below, which the bucket does not take; 0 if there is none.
        length: the bucket's own edge.
        count: of sizes.
    """
    span, steps = length - below - 1, max(count - 1, 1)
    return [length - span * step // steps for step in range(count)]


class Values(Protocol):
    """Values that a model is run with.

    Attributes:
        lengths: the sizes of open dimensions that there are; 0 alone if nothing is open.
    """

    lengths: list[int]

    def rows(self, count: int, length: int) -> Any:
        """Return so many instances of that length.

        They are a list of JSON values, or an array for each input, shape [count, ...]. If lengths
        are padded, each row is a list of such arrays of its own.
        """


class MadeUp:
    """Ones of every size that the configuration speaks of.

    Args:
        spec: the model, which is typed.
        length: of open dimensions without buckets.
    """

    def __init__(self, spec: ModelSpec, length: int) -> None:
        self._inputs = spec.inputs
        self._edges = spec.length_buckets
        self._lengths = None
        if spec.pad_variable_length:
            self._lengths = Lengths(spec.inputs, spec.outputs, spec.length_buckets)
        any_open = any(ANY in tensor.shape for tensor in spec.inputs)
        self.lengths = (list(spec.length_buckets) or [length]) if any_open else [0]

    def rows(self, count: int, length: int) -> Any:
        """See `Values.rows`."""
        if self._lengths is None:
            return made_up(self._inputs, count, length)
        below = max((edge for edge in self._edges if edge < length), default=0)
        rows = [made_up(self._inputs, 1, size) for size in spread(below, length, count)]
        goals = {self._lengths.goal(open_dimensions(self._inputs, row)) for row in rows}
        # An empty default is shorter than the other inputs, so that only equal rows share a batch.
        return rows if len(goals) == 1 else [rows[0]] * count


class Samples:
    """Instances of a file; see `Values`.

    Of several buckets whose first sizes are equal, those of the first are used.

    Args:
        path: of the file.
        spec: the model.

    Raises:
        StartupError: the file does not hold instances of this model; the text says why.
    """

    def __init__(self, path: Path, spec: ModelSpec) -> None:
        self._path = path
        self._padded = spec.pad_variable_length
        self._by_length: dict[int, list[Any]] = {}
        """The instances; those of a typed model as arrays of one row, one for each input."""
        instances = read_instances(path)
        if spec.typed:
            inputs = spec.inputs
            rows = [[row_of(path, t, inputs, value) for t in inputs] for value in instances]
            self._sort(rows, spec)
        else:
            self._by_length[0] = instances
        self._typed = spec.typed
        self.lengths = sorted(self._by_length)

    def rows(self, count: int, length: int) -> Any:
        """See `Values.rows`. From the first on, and over again."""
        instances = self._by_length[length]
        found = [instances[number % len(instances)] for number in range(count)]
        if not self._typed or self._padded:
            return found
        return [np.concatenate(column) for column in zip(*found, strict=True)]

    def _sort(self, rows: list[list[Array]], spec: ModelSpec) -> None:
        if not spec.pad_variable_length:
            shapes = {tuple(array.shape for array in row) for row in rows}
            if len(shapes) > 1:
                raise StartupError(
                    f"{self._path}: the instances must all have the same shapes, as "
                    "pad_variable_length is not set"
                )
            sizes = open_dimensions(spec.inputs, rows[0])
            self._by_length[sizes[0] if sizes else 0] = rows
            return
        lengths = Lengths(spec.inputs, spec.outputs, spec.length_buckets)
        by_goal: dict[tuple[int, ...], list[list[Array]]] = {}
        for row in rows:
            by_goal.setdefault(lengths.goal(open_dimensions(spec.inputs, row)), []).append(row)
        for goal, group in by_goal.items():
            met = lengths.met(goal, [open_dimensions(spec.inputs, row) for row in group])
            self._by_length.setdefault(met[0], group)


def read_instances(path: Path) -> list[Any]:
    """Return the instances in a file: a list, a V1 body, a V2 body, or a list of such bodies.

    Raises:
        StartupError: there are none; the text says why.
    """
    try:
        document = json.loads(path.read_bytes(), parse_float=orjson.loads)
    except OSError as error:
        raise StartupError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise StartupError(f"{path}: is not JSON: {error}") from None
    found = _instances(path, document)
    if not found:
        raise StartupError(f'{path}: must hold {{"instances": [...]}} with at least one instance')
    return found


def _instances(path: Path, document: Any) -> list[Any]:
    if isinstance(document, list):
        if document and all(_is_v2(one) for one in document):
            return [row for body in document for row in _rows_of_v2(path, body)]
        return document
    if _is_v2(document):
        return _rows_of_v2(path, document)
    found = document.get("instances") if isinstance(document, dict) else None
    return found if isinstance(found, list) else []


def _is_v2(document: Any) -> bool:
    return (
        isinstance(document, dict)
        and isinstance(document.get("inputs"), list)
        and all(isinstance(one, dict) and "data" in one for one in document["inputs"])
    )


def _rows_of_v2(path: Path, body: Any) -> list[Any]:
    """Return the instances in a V2 body."""
    columns = {}
    for tensor in body["inputs"]:
        name, shape = tensor.get("name"), tensor.get("shape")
        try:
            values = np.empty(int(np.prod(shape)), dtype=object)
            values[:] = list(_flat(tensor["data"]))
            columns[name] = values.reshape(shape).tolist()
        except (TypeError, ValueError):
            raise StartupError(
                f"{path}: the data of input {name!r} is not of the shape {shape!r}"
            ) from None
    if len({len(column) for column in columns.values()}) > 1:
        raise StartupError(f"{path}: the inputs of a V2 body have different numbers of rows")
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _flat(data: Any) -> Iterator[Any]:
    for one in data:
        if isinstance(one, list):
            yield from _flat(one)
        else:
            yield one


def row_of(path: Path, tensor: Tensor, inputs: Sequence[Tensor], instance: Any) -> Array:
    """Return an instance's value for an input, as an array of one row.

    Raises:
        StartupError: it has none, or one that does not fit; the text says why.
    """
    value = instance
    named = isinstance(instance, dict) and any(one.name in instance for one in inputs)
    if tensor.default is not None and named and tensor.name not in instance:
        return of_default(tensor, 1)
    if len(inputs) > 1 or (isinstance(instance, dict) and tensor.name in instance):
        if not isinstance(instance, dict) or tensor.name not in instance:
            raise StartupError(
                f"{path}: an instance must be an object with a value for each input, "
                f"but there is none for {tensor.name!r}"
            )
        value = instance[tensor.name]
    try:
        array = np.asarray(value, None if tensor.datatype.fixed else object)
        if not tensor.datatype.fixed:
            array = _encoded(array)
        array = array.astype(array_dtype(tensor))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StartupError(
            f"{path}: a value for input {tensor.name!r} is no {tensor.datatype.name}: {error}"
        ) from None
    sizes = zip(tensor.shape, array.shape, strict=False)
    if array.ndim != len(tensor.shape) or any(want not in (ANY, got) for want, got in sizes):
        raise StartupError(
            f"{path}: a value for input {tensor.name!r} has shape {list(array.shape)}, "
            f"declared is {list(tensor.shape)}"
        )
    return array[np.newaxis]


def open_dimensions(inputs: Sequence[Tensor], arrays: Sequence[Array]) -> tuple[int, ...]:
    """Return the sizes of the inputs' open dimensions in these arrays with rows."""
    return tuple(
        size
        for tensor, array in zip(inputs, arrays, strict=True)
        for size, declared in zip(array.shape[1:], tensor.shape, strict=True)
        if declared == ANY
    )


def _encoded(texts: Array) -> Array:
    encoded: Array = np.empty(texts.size, dtype=object)
    encoded[:] = [text.encode() for text in texts.reshape(-1)]
    return encoded.reshape(texts.shape)
