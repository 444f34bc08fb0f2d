"""Inputs and outputs of tree models, for every library.

The columns of a table come as one matrix, `x`, or as an input each; in both cases the library gets
a matrix. A column of categories holds their codes there.

    y              the library's default prediction
    label          the class with the highest probability
    probabilities  one for each class
    margins        sums of the trees' values
    contributions  share of each feature in the margin, and last the bias
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.models.model import InvalidInput, Model, Options, refusing
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import Tensor

Array = NDArray[Any]

_INPUT: Final = "x"
_KINDS: Final = {"b": "BOOL", "i": "INT64", "u": "INT64", "f": "FP64"}
"""The datatypes of labels, by the kind of their numpy dtype; every other is BYTES."""
_FLOATS: Final = {"FP32": "<f4", "FP64": "<f8"}
_SHOWN: Final = 60


class Column(NamedTuple):
    """A column of a model's table.

    Attributes:
        name: of the feature.
        categories: the values that a client may send, each with its code in the matrix; None if the
            code is the number itself, or any text.
        text: True if it holds texts, as bytes.
        others: the code of a category that is none of these; None to refuse it.
    """

    name: str
    categories: Mapping[Any, float] | None = None
    text: bool = False
    others: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """A tree model as its library has it.

    Attributes:
        columns: of its table, in order.
        precision: the datatype of the numbers in its matrix.
        classes: the number of classes; 0 if it is no classifier.
        labels: the names of the classes in its file; empty without names.
        prepared: converts the matrix once for all functions.
        functions: by the names of answers; each takes the prepared matrix. Without a function, a
            ``label`` is made of the probabilities.
    """

    columns: Sequence[Column]
    precision: str
    classes: int
    labels: Sequence[Any]
    prepared: Callable[[Array], Any]
    functions: Mapping[str, Callable[[Any], Array]]


def served(path: Path, trees: Trees, options: Options) -> Model:
    """Return the model with the configured answers.

    Raises:
        StartupError: the file does not have a configured answer; the text says which it has.
    """
    labels = _labels(path, trees, options.class_names)
    wanted = tuple(options.answers) or _usual(trees)
    offered = [*trees.functions]
    if "probabilities" in offered and "label" not in offered:
        offered.insert(0, "label")
    for name in wanted:
        if name not in offered:
            raise StartupError(
                f'{path}: answers has "{name}", but this model has {", ".join(offered)}'
            )
    if "matrix" not in (options.columns, _auto(options, trees)):
        inputs = tuple(_input(column, trees.precision) for column in trees.columns)
        matrix: Callable[..., Array] = _Matrix(trees.columns, trees.precision)
    else:
        inputs = (Tensor(_INPUT, trees.precision, [len(trees.columns)]),)
        matrix = _itself
    answer = _Answer(trees, wanted, labels)
    with refusing(path, "it cannot answer for a row of zeros"):
        row = answer(_row_of_zeros(trees))
    outputs = tuple(_output(name, array) for name, array in zip(wanted, row, strict=True))

    def predict(*arrays: Array) -> Any:
        found = answer(matrix(*arrays))
        return found[0] if len(found) == 1 else found

    return Model(inputs, outputs, lambda: None, predict)


class _Matrix:
    """Builder of one matrix from an array for each column."""

    def __init__(self, columns: Sequence[Column], precision: str) -> None:
        self._columns = columns
        self._dtype = _matrix_dtype(columns, precision)

    def __call__(self, *arrays: Array) -> Array:
        matrix = np.empty((len(arrays[0]), len(arrays)), self._dtype)
        for index, (column, array) in enumerate(zip(self._columns, arrays, strict=True)):
            matrix[:, index] = array if column.categories is None else _codes(column, array)
        return matrix


class _Answer:
    """Callable from a matrix to an array for each output."""

    def __init__(self, trees: Trees, wanted: Sequence[str], labels: Array) -> None:
        self._trees = trees
        self._wanted = wanted
        self._labels = labels
        self._by_probability = "label" in wanted and "label" not in trees.functions

    def __call__(self, matrix: Array) -> tuple[Array, ...]:
        prepared = self._trees.prepared(matrix)
        found: dict[str, Array] = {}
        for name in (*self._wanted, "probabilities" if self._by_probability else None):
            function = self._trees.functions.get(name or "")
            if name is not None and function is not None and name not in found:
                found[name] = function(prepared)
        if self._by_probability:
            found["label"] = found["probabilities"].argmax(axis=1)
        if "label" in found:
            found["label"] = self._labels[found["label"]]
        return tuple(found[name] for name in self._wanted)


def both_classes(probabilities: Array) -> Array:
    """Return the probabilities of both classes, from those of the second."""
    return np.stack([1 - probabilities, probabilities], axis=1)


def _usual(trees: Trees) -> tuple[str, ...]:
    known = [name for name in ("label", "probabilities") if name in trees.functions]
    return ("label", *known[-1:]) if known == ["probabilities"] else tuple(known) or ("y",)


def _auto(options: Options, trees: Trees) -> str:
    if options.columns != "auto":
        return options.columns
    plain = all(column.categories is None and not column.text for column in trees.columns)
    return "matrix" if plain else "named"


def _labels(path: Path, trees: Trees, names: Sequence[str]) -> Array:
    """Return the label of each class, by its number."""
    count = trees.classes
    if names and len(names) != count:
        there = f"{path}: class_names has length {len(names)}"
        raise StartupError(f"{there}, but the model has {count} classes")
    return np.array(names or trees.labels or range(count))


def _input(column: Column, precision: str) -> Tensor:
    if column.text or _has_texts(column):
        return Tensor(column.name, "BYTES", [])
    return Tensor(column.name, precision, [])


def _output(name: str, array: Array) -> Tensor:
    if name == "label":
        return Tensor(name, _KINDS.get(array.dtype.kind, "BYTES"), array.shape[1:])
    return Tensor(name, "FP32" if array.dtype == np.float32 else "FP64", array.shape[1:])


def _row_of_zeros(trees: Trees) -> Array:
    row = np.zeros((1, len(trees.columns)), _matrix_dtype(trees.columns, trees.precision))
    for index, column in enumerate(trees.columns):
        if column.text:
            row[0, index] = b""
    return row


def _has_texts(column: Column) -> bool:
    return any(isinstance(category, bytes) for category in column.categories or ())


def _codes(column: Column, values: Array) -> list[float]:
    categories, others = column.categories or {}, column.others
    return [
        categories[value] if value in categories else _code_of_another(column, value, others)
        for value in values.tolist()
    ]


def _code_of_another(column: Column, value: Any, others: float | None) -> float:
    """Return the code of a value that is missing, or no category of the column."""
    missing = value == b"" if isinstance(value, bytes) else np.isnan(value)
    if missing:
        return np.nan
    if others is None:
        shown = value.decode(errors="replace") if isinstance(value, bytes) else f"{value:g}"
        raise InvalidInput(
            f'input "{column.name}" holds {shown[:_SHOWN]!r}, which is none of the categories that '
            "the model was trained with"
        )
    return others


def _matrix_dtype(columns: Sequence[Column], precision: str) -> np.dtype[Any]:
    texts = any(column.text for column in columns)
    return np.dtype("O" if texts else _FLOATS[precision])


def _itself(matrix: Array) -> Array:
    return matrix
