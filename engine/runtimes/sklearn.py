"""The sklearn runtime: a fitted scikit-learn model, or any with the same methods, from a file.

A skops file names the types it holds, and only known ones are made. A pickle runs code while it is
read, so it is read only if the operator says that it is trusted. The model takes one tensor, `x`,
or if it was fitted on a DataFrame an input for each column. A classifier returns `label`, and
`probabilities` if it has them, or the configured `answers`. Every other predictor returns `y`.
"""

import logging
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.models import python_file_hint
from ringbatch.engine.models.bytes_tensors import decoded
from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import InvalidInput, Model, Options, failure, refusing
from ringbatch.engine.runtimes.argmax_labels import is_ranked, labels
from ringbatch.engine.runtimes.dataframes import Table, answering, looks_by_name
from ringbatch.shm.errors import StartupError, type_in_words
from ringbatch.shm.tensor import Tensor

logger = logging.getLogger("ringbatch.worker")

Array = NDArray[Any]
Function = Callable[[Any], Any]

_INPUT: Final = "x"
_DATATYPES: Final = {"b": "BOOL", "i": "INT64", "u": "INT64", "f": "FP64"}
"""Datatypes by the kind of a numpy dtype; every other kind is BYTES."""


def open_sklearn(path: Path, options: Options) -> Model:
    """Read a file with a fitted model; see `ringbatch.engine.runtimes.opening.open_model`."""
    if not options.max_batch_size:
        raise StartupError(
            f"{path}: max_batch_size is 0, but a scikit-learn model takes batches; set 1 or more"
        )
    # A skops file is a zip archive; the path may be a link's target without an ending.
    content = options.readable(path)
    is_skops = path.suffix == ".skops" or zipfile.is_zipfile(content)
    if not is_skops and not options.trust_pickle:
        raise StartupError(
            f"{path}: a pickle or joblib file runs code while it is read; if you trust where it "
            "comes from, set trust_pickle = true, else save the model as a .skops file"
        )
    required("sklearn", "sklearn", path)
    # A model with n_jobs = -1 then uses this worker's threads.
    os.environ.setdefault("LOKY_MAX_CPU_COUNT", str(options.threads))
    # At the end, so that no module beside the model file hides an installed package.
    sys.path.append(str(path.parent))
    estimator = _read_skops(path, options) if is_skops else _unpickle(path, content)
    reading = python_file_hint.skops(options.trusted_types) if is_skops else python_file_hint.JOBLIB
    if not callable(getattr(estimator, "predict", None)):
        raise StartupError(
            f"{path}: holds {type_in_words(estimator)}, but it must hold a model with a method "
            "predict"
        )
    with refusing(path):
        required("sklearn.utils.validation", "sklearn", path).check_is_fitted(estimator)
    if options.columns != "matrix" and _has_names(estimator, options.columns):
        table = Table(path, estimator, required("pandas", "sklearn", path))
        found = _Found(path, estimator, reading, table.untold)
        if table.dates:
            columns = ", ".join(f'"{name}"' for name in table.dates)
            raise found.refused(f"it has learned dates from its column {columns}", table.dates)
        outputs, predict = _outputs(found, table.sample(), options.answers)
        if table.untold:
            logger.info(
                "%s: %s, which does not say what it takes, so it gets numbers (FP64); if texts or "
                "dates belong there, serve the model from a model.py",
                path,
                _going(table.untold),
            )
        return Model(table.inputs, outputs, lambda: None, lambda *a: predict(table.frame(*a)))
    if options.columns == "named":
        raise StartupError(
            f"{path}: columns is named, but the model was not fitted on a DataFrame; leave it out"
        )
    if looks_by_name(estimator):
        raise StartupError(
            f"{path}: columns is matrix, but this model looks for its columns by name; leave it out"
        )
    found = _Found(path, estimator, reading, {})
    x = _input(found)
    row = np.zeros((1, *x.shape), x.datatype.numpy) if x.shape else np.array(["a"], dtype=object)
    outputs, predict = _outputs(found, row, options.answers)
    return Model((x,), outputs, lambda: None, lambda values: predict(_taken(x, values)))


class _Found(NamedTuple):
    """Contents of a model file.

    Attributes:
        path: of the file.
        estimator: in it.
        reading: the code that reads it in Python.
        untold: columns of unknown type, with the type of the part that takes them.
    """

    path: Path
    estimator: Any
    reading: python_file_hint.LoadingCode
    untold: Mapping[str, str]

    def refused(self, why: str, dates: Sequence[str] = ()) -> StartupError:
        """Return the error for an estimator that only a Python model file can serve."""
        table = hasattr(self.estimator, "feature_names_in_")
        perhaps = [name for name in self.untold if name not in dates]
        return StartupError(
            python_file_hint.refusal(
                self.path, why, self.reading, table=table, dates=dates, perhaps=perhaps
            )
        )


def _read_skops(path: Path, options: Options) -> Any:
    skops = required("skops.io", "sklearn", path)
    content = options.readable(path)
    with refusing(path, "it cannot be read as a skops file"):
        unknown = [
            name
            for name in skops.get_untrusted_types(file=content)
            if name not in options.trusted_types
        ]
        if unknown:
            names = ", ".join(f'"{name}"' for name in unknown)
            raise StartupError(
                f"{path}: holds types that are not known to be safe; if you trust where the file "
                f"comes from, allow them with trusted_types = [{names}]"
            )
        return skops.load(content, trusted=list(options.trusted_types))


def _unpickle(path: Path, content: Path) -> Any:
    joblib = required("joblib", "sklearn", path)
    with refusing(path, "it cannot be read as a pickle or joblib file"):
        return joblib.load(content)


def _has_names(estimator: Any, columns: str) -> bool:
    """Return whether an estimator selects its columns by names that its author gave them."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return False
    # LightGBM makes up these names if it is fitted on an array.
    made_up = [f"Column_{number}" for number in range(len(names))]
    return columns == "named" or [*names] != made_up


def _input(found: _Found) -> Tensor:
    estimator = found.estimator
    features = getattr(estimator, "n_features_in_", None)
    if features == 0:
        # CatBoost saves its feature names to a file, but not their number.
        features = len(getattr(estimator, "feature_names_", ()))
    if features is not None:
        return Tensor(_INPUT, _input_datatype(estimator), [int(features)])
    if _takes_text(estimator):
        return Tensor(_INPUT, "BYTES", [])
    raise found.refused(
        f"the {type(estimator).__name__} does not say how many features it takes (n_features_in_)"
    )


def _takes_text(estimator: Any) -> bool:
    """Return whether its first step is a vectorizer of scikit-learn's, which takes texts."""
    steps = getattr(estimator, "steps", None)
    return hasattr(steps[0][1] if steps else estimator, "build_analyzer")


def _input_datatype(estimator: Any) -> str:
    """Return FP32 if all learned values are FP32, else FP64, in which scikit-learn calculates."""
    return "FP32" if {array.dtype for array in _learned(estimator)} == {np.dtype("f4")} else "FP64"


def _learned(part: Any) -> Iterator[Any]:
    """Yield the floating-point arrays and numbers in an estimator and the estimators in it."""
    if isinstance(part, (np.ndarray, np.generic)):
        if part.dtype.kind == "f":
            yield part
    elif isinstance(part, (list, tuple)):
        for item in part:
            yield from _learned(item)
    elif hasattr(part, "get_params") and not isinstance(part, type):
        for item in vars(part).values():
            yield from _learned(item)


def _outputs(
    found: _Found, row: Any, answers: Sequence[str]
) -> tuple[tuple[Tensor, ...], Function]:
    """Return the outputs, as the model answers that row, and the function that makes them."""
    path, estimator = found.path, found.estimator
    classes = getattr(estimator, "classes_", None)
    if isinstance(classes, list):
        raise found.refused(f"it predicts {len(classes)} labels at once")
    if classes is not None and not _is_plain(classes):
        raise found.refused("its labels (classes_) are neither all numbers nor all texts")
    functions = {"y" if classes is None else "label": answering(estimator.predict)}
    if classes is not None and hasattr(estimator, "predict_proba"):
        functions["probabilities"] = answering(estimator.predict_proba)
    for name in answers:
        if name not in functions:
            has = " and ".join(functions)
            raise StartupError(f'{path}: answers has "{name}", but this model has {has}')
    wanted = tuple(answers) or tuple(functions)
    outputs = tuple(_output(name, _tried(found, functions[name], row), classes) for name in wanted)
    if len(wanted) == 1:
        return outputs, functions[wanted[0]]
    both = _both(
        functions["label"], functions["probabilities"], classes if is_ranked(estimator) else None
    )
    return outputs, both if wanted[0] == "label" else lambda x: both(x)[::-1]


def _both(label: Function, probabilities: Function, ranked: Array | None) -> Function:
    """Return a function of labels and probabilities.

    `ranked` are the classes, if the probabilities rank them.
    """

    def both(x: Any) -> tuple[Array, Array]:
        likely = probabilities(x)
        found = None if ranked is None else labels(ranked, likely)
        return label(x) if found is None else found, likely

    return both


def _output(name: str, answer: Array | None, classes: Any) -> Tensor:
    if name == "probabilities":
        datatype = "FP64" if answer is None or answer.dtype != np.float32 else "FP32"
        shape = _shape(answer, classes.shape)
        names = [str(one) for one in classes] if tuple(shape) == classes.shape else []
        return Tensor(name, datatype, shape, names)
    if name == "label":
        return Tensor(name, _datatype(classes), _shape(answer, ()))
    return Tensor(name, "FP64" if answer is None else _datatype(answer), _shape(answer, ()))


def _tried(found: _Found, function: Function, row: Any) -> Array | None:
    """Return the model's answer to one row; None if it fails for that row.

    Raises:
        StartupError: it fails, and it has columns in `untold`, which may not take numbers.
    """
    try:
        return np.asarray(function(row))
    except Exception as error:
        words = failure(found.path, error)
        if found.untold and not isinstance(error, InvalidInput):
            raise found.refused(
                f"{_going(found.untold)}, which does not say whether it takes numbers, texts or "
                f"dates; with numbers it fails: {words.removeprefix(f'{found.path}: ')}"
            ) from None
        logger.warning("%s; so the shape of its answers is taken to be the usual one", words)
        return None


def _going(untold: Mapping[str, str]) -> str:
    """Return a phrase for the part of the model that takes these columns."""
    columns = ", ".join(f'"{name}"' for name in untold)
    clause = f"column {columns} goes" if len(untold) == 1 else f"columns {columns} go"
    return f"its {clause} into a {' and a '.join(dict.fromkeys(untold.values()))}"


def _shape(answer: Array | None, usual: tuple[int, ...]) -> list[int]:
    return list(usual if answer is None else answer.shape[1:])


def _datatype(values: Array) -> str:
    if values.dtype == np.float32:
        return "FP32"
    return _DATATYPES.get(values.dtype.kind, "BYTES")


def _is_plain(classes: Array) -> bool:
    return classes.dtype.kind != "O" or all(isinstance(value, (str, bytes)) for value in classes)


def _taken(x: Tensor, values: Array) -> Array:
    return values if x.datatype.fixed else decoded(_INPUT, values)
