"""What warm-up runs a model on: values made up from its signature, or those of a file.

Made-up values are ones, because they are harmless in more places than zeros: an index that most
tables have, a mask that hides nothing, a divisor. A file has the form of a V1 request,
``{"instances": [...]}``, or is the list alone.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ringbatch.engine.worker.outputs import array_dtype
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import ANY, Tensor

Array = NDArray[Any]


def made_up(inputs: Sequence[Tensor], rows: int, length: int) -> list[Array]:
    """An array of ones for each input, shape [rows, ...], with `length` for every open dimension;
    BYTES are the text "1"."""
    return [
        np.full(
            (rows, *(length if size == ANY else size for size in tensor.shape)),
            1 if tensor.datatype.fixed else b"1",
            array_dtype(tensor),
        )
        for tensor in inputs
    ]


class Samples:
    """The instances of a file.

    Attributes:
        length: the first open dimension of the first instance's inputs; 0 where there is none.

    Args:
        path: of the file.
        inputs: of the model, as requests carry them; none where it takes JSON values.

    Raises:
        StartupError: in words, where the file does not hold instances of this model.
    """

    def __init__(self, path: Path, inputs: Sequence[Tensor]) -> None:
        self._path = path
        instances = self._read()
        self._columns: list[Array] | None = None
        self._instances = instances
        self.length = 0
        if inputs:
            columns = [[self._value(t, inputs, value) for value in instances] for t in inputs]
            shapes = {tuple(array.shape for array in row) for row in zip(*columns, strict=True)}
            if len(shapes) > 1:
                raise StartupError(f"{path}: the instances must all have the same shapes")
            self._columns = [np.stack(column) for column in columns]
            sizes = [
                size
                for tensor, column in zip(inputs, columns, strict=True)
                for declared, size in zip(tensor.shape, column[0].shape, strict=True)
                if declared == ANY
            ]
            self.length = sizes[0] if sizes else 0

    def rows(self, count: int) -> Any:
        """So many instances, from the first on and over again: an array for each input, or a list
        of JSON values."""
        numbers = np.arange(count) % len(self._instances)
        if self._columns is not None:
            return [column[numbers] for column in self._columns]
        return [self._instances[number] for number in numbers]

    def _read(self) -> list[Any]:
        try:
            document = json.loads(self._path.read_bytes(), parse_float=orjson.loads)
        except OSError as error:
            raise StartupError(f"{self._path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise StartupError(f"{self._path}: is not JSON: {error}") from None
        found = document.get("instances") if isinstance(document, dict) else document
        if not isinstance(found, list) or not found:
            raise StartupError(
                f'{self._path}: must hold {{"instances": [...]}} with at least one instance'
            )
        return found

    def _value(self, tensor: Tensor, inputs: Sequence[Tensor], instance: Any) -> Array:
        value = instance
        if len(inputs) > 1 or (isinstance(instance, dict) and tensor.name in instance):
            if not isinstance(instance, dict) or tensor.name not in instance:
                raise StartupError(
                    f"{self._path}: an instance must be an object with a value for each input, "
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
                f"{self._path}: a value for input {tensor.name!r} is no {tensor.datatype.name}: "
                f"{error}"
            ) from None
        sizes = zip(tensor.shape, array.shape, strict=False)
        if array.ndim != len(tensor.shape) or any(want not in (ANY, got) for want, got in sizes):
            raise StartupError(
                f"{self._path}: a value for input {tensor.name!r} has shape {list(array.shape)}, "
                f"declared is {list(tensor.shape)}"
            )
        return array


def _encoded(texts: Array) -> Array:
    encoded: Array = np.empty(texts.size, dtype=object)
    encoded[:] = [text.encode() for text in texts.reshape(-1)]
    return encoded.reshape(texts.shape)
