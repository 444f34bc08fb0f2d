"""Models that select columns of a DataFrame by name: an input for each column.

A fitted scikit-learn model knows the names of its columns, but not their types. These follow from
the parts that were fitted on them: an encoder knows its categories, an imputer of texts has learned
a text, a vectorizer takes only texts. Every other column holds numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.models.bytes_tensors import decoded
from ringbatch.engine.models.model import InvalidInput
from ringbatch.engine.runtimes.trees.lightgbm import lightgbm_columns
from ringbatch.engine.runtimes.trees.xgboost import xgboost_columns
from ringbatch.shm.tensor import Tensor

Array = NDArray[Any]

_ABOUT_VALUES: Final = (
    "Found unknown categories",
    "Found a category not in the training set",
    "contains NaN",
    "contains infinity",
)
"""Phrases in a model's error messages about values that it cannot handle."""
_OF_NUMBERS: Final = "biuf"
_OF_DATES: Final = "mM"
_LIBRARIES: Final = {"sklearn", "xgboost", "lightgbm", "catboost"}
"""Libraries whose estimators take numbers, unless they have learned other values."""
_PLAIN: Final = (str, bool, int, float)


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        name: of the feature.
        text: True if it holds texts.
        sample: a value that was seen in training.
        missing: stands for a missing text or object; a missing number is NaN.
        categories: the allowed values of a pandas categorical column; None for any other.
        closed: True if it may hold no other value.
        objects: True if its numbers or booleans are Python objects, as in pandas if some are
            missing.
    """

    name: str
    text: bool = False
    sample: Any = 0.0
    missing: Any = np.nan
    categories: tuple[str, ...] = ()
    closed: bool = False
    objects: bool = False

    @property
    def tensor(self) -> Tensor:
        """Input tensor of the column, as clients see it."""
        return Tensor(self.name, "BYTES" if self.text else "FP64", [])


class Table:
    """Builder of a DataFrame from an array for each column that the model uses.

    Attributes:
        columns: the columns that the model uses.
        untold: columns of unknown type: the part that takes them accepts anything. Each maps to the
            name of that part's type.
        dates: columns with dates that an encoder has learned.

    Args:
        path: of the model's file.
        estimator: fitted on a DataFrame.
        pandas: the module.

    Raises:
        StartupError: the columns cannot be determined.
    """

    def __init__(self, path: Path, estimator: Any, pandas: Any) -> None:
        self._pandas = pandas
        names = [str(name) for name in estimator.feature_names_in_]
        known = _known(path, estimator)
        ignored = _dropped(estimator, names)
        self._all = names
        self.columns = [known.get(n, Column(n)) for n in names if n not in ignored]
        takers = dict(_takers(estimator, names))
        self.untold = {
            c.name: takers[c.name] for c in self.columns if c.name in takers and c.name not in known
        }
        dates = {name for part in _parts(estimator) for name in _dated(part)}
        self.dates = [column.name for column in self.columns if column.name in dates]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Input tensors, one for each column."""
        return tuple(column.tensor for column in self.columns)

    def sample(self) -> Any:
        """Return a table of one row that the model should have an answer for."""
        row = [
            np.array([c.sample], object if c.text or c.objects else np.float64)
            for c in self.columns
        ]
        return self._frame(row)

    def frame(self, *arrays: Array) -> Any:
        """Return the table of a batch; an empty text is a missing one.

        Raises:
            InvalidInput: a text is not UTF-8, or is no allowed category.
        """
        return self._frame([_values(c, a) for c, a in zip(self.columns, arrays, strict=True)])

    def _frame(self, arrays: Sequence[Array]) -> Any:
        given = dict(zip((column.name for column in self.columns), arrays, strict=True))
        nothing = np.full(len(arrays[0]), np.nan)
        values = {name: given.get(name, nothing) for name in self._all}
        # pandas 3 would convert them to its own text type, in which None is NaN.
        series = self._pandas.Series
        frame = self._pandas.DataFrame(
            {name: series(array, dtype=array.dtype) for name, array in values.items()}
        )
        for column in self.columns:
            if column.categories:
                texts = frame[column.name]
                others = sorted(set(texts[texts.notna()]) - set(column.categories))
                if others and column.closed:
                    raise InvalidInput(
                        f'input "{column.name}" holds {others[0]!r}, which is none of the '
                        "categories that the model was trained with"
                    )
                known = [*column.categories, *others]
                frame[column.name] = self._pandas.Categorical(texts, categories=known)
        return frame


def answering(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a model's function, so that a value it cannot handle raises `InvalidInput`."""

    def answered(frame: Any) -> Any:
        try:
            return function(frame)
        except ValueError as error:
            text = str(error).splitlines()[0]
            if any(words in text for words in _ABOUT_VALUES):
                raise InvalidInput(f"the model has no answer: {text}") from None
            raise

    return answered


def _values(column: Column, array: Array) -> Array:
    if column.objects:
        # numpy would convert booleans among numbers to numbers.
        of_kind = bool if isinstance(column.sample, bool) else float
        found = np.empty(len(array), dtype=object)
        found[:] = [of_kind(v) if v == v else column.missing for v in array.tolist()]
        return found
    if not column.text:
        return array
    texts = decoded(column.name, array)
    texts[array == b""] = column.missing
    return texts


def _known(path: Path, estimator: Any) -> dict[str, Column]:
    """Return the columns whose type a part of the model shows."""
    found: dict[str, Column] = {}
    for part in _parts(estimator):
        for column in (*_encoded(part), *_imputed(part), *_boosted(path, part), *_cut_up(part)):
            found.setdefault(column.name, column)
    return found


def _parts(part: Any) -> Iterator[Any]:
    """Yield an estimator and the estimators in it."""
    if isinstance(part, (list, tuple)):
        for item in part:
            yield from _parts(item)
    elif hasattr(part, "get_params") and not isinstance(part, type):
        yield part
        for item in vars(part).values():
            yield from _parts(item)


def _encoded(part: Any) -> Iterator[Column]:
    for name, known in zip(_names(part), getattr(part, "categories_", ()), strict=False):
        values = np.asarray(known)
        present = [v for v in values.tolist() if isinstance(v, _PLAIN) and v == v]
        if not present:
            continue
        texts = [value for value in present if isinstance(value, str)]
        missing = None if None in values.tolist() else np.nan
        if texts:
            yield Column(name, text=True, sample=texts[0], missing=missing)
        elif values.dtype.kind in _OF_NUMBERS:
            yield Column(name, sample=values[0])
        elif values.dtype == object:
            yield Column(name, sample=present[0], missing=missing, objects=True)


def _dated(part: Any) -> Iterator[str]:
    for name, known in zip(_names(part), getattr(part, "categories_", ()), strict=False):
        if np.asarray(known).dtype.kind in _OF_DATES:
            yield name


def _imputed(part: Any) -> Iterator[Column]:
    statistics = getattr(part, "statistics_", None)
    if isinstance(statistics, np.ndarray):
        missing = getattr(part, "missing_values", np.nan)
        for name, value in zip(_names(part), statistics.tolist(), strict=False):
            if isinstance(value, str):
                yield Column(name, text=True, sample=value, missing=missing)


def _boosted(path: Path, part: Any) -> Iterator[Column]:
    """Yield the pandas categorical columns from which LightGBM or XGBoost has learned."""
    booster: Any = getattr(part, "_Booster", None)
    if getattr(booster, "pandas_categorical", None):
        columns = lightgbm_columns(booster.model_to_string(num_iteration=1), booster)
    elif "c" in (getattr(booster, "feature_types", None) or ()):
        columns = xgboost_columns(path, booster, named=True)
    else:
        columns = []
    for column in columns:
        known = tuple(one.decode() for one in column.categories or () if isinstance(one, bytes))
        if known:
            closed = column.others is None
            yield Column(column.name, text=True, sample=known[0], categories=known, closed=closed)


def _cut_up(part: Any) -> Iterator[Column]:
    """Yield the columns that vectorizers take, each by its name alone."""
    for _, transformer, columns in getattr(part, "transformers_", ()):
        steps = getattr(transformer, "steps", None)
        first = steps[0][1] if steps else transformer
        if isinstance(columns, str) and hasattr(first, "build_analyzer"):
            yield Column(columns, text=True, sample="a", missing="")


def looks_by_name(estimator: Any) -> bool:
    """Return whether a part of an estimator selects columns by name; arrays have no names."""
    return any(
        isinstance(columns, str) or (isinstance(columns, list) and isinstance(columns[0], str))
        for part in _parts(estimator)
        for _, _, columns in getattr(part, "transformers_", ())
        if isinstance(columns, str) or len(columns)
    )


def _takers(part: Any, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the columns among these that go into a part that accepts anything, with its type."""
    steps = [step for _, step in getattr(part, "steps", ()) if hasattr(step, "get_params")]
    first = steps[0] if steps else part
    if steps:
        yield from _takers(first, names)
    elif hasattr(first, "transformers_"):
        places = first._transformer_to_input_indices
        for name, transformer, _ in first.transformers_:
            if hasattr(transformer, "get_params"):
                yield from _takers(transformer, [names[place] for place in places[name]])
    elif hasattr(first, "transformer_list"):
        for _, transformer in first.transformer_list:
            yield from _takers(transformer, names)
    elif _takes_anything(first):
        yield from ((name, type(first).__name__) for name in names)


def _takes_anything(part: Any) -> bool:
    kind = type(part)
    if kind.__module__.startswith("sklearn.") and kind.__name__ == "FunctionTransformer":
        return part.func is not None and not part.validate
    return kind.__module__.partition(".")[0] not in _LIBRARIES


def _dropped(estimator: Any, names: Sequence[str]) -> set[str]:
    """Return the columns that the model saw in training and does not use."""
    steps = getattr(estimator, "steps", None)
    first = steps[0][1] if steps else estimator
    places: Mapping[str, Any] | None = getattr(first, "_transformer_to_input_indices", None)
    if places is None:
        return set()
    used = {
        names[place]
        for name, transformer, _ in first.transformers_
        if not (isinstance(transformer, str) and transformer == "drop")
        for place in places.get(name, ())
    }
    return set(names) - used if used else set()


def _names(part: Any) -> list[str]:
    names = getattr(part, "feature_names_in_", None)
    return [] if names is None else [str(name) for name in names]
