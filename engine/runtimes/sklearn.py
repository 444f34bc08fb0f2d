"""The sklearn runtime: a fitted scikit-learn model, or any with the same methods, from a file.

A skops file names the types it holds, and only known ones are made; a pickle runs code while it is
read, so it is read only where the operator says that it is trusted. The model takes one tensor,
`x`. A classifier returns `label`, and `probabilities` where it has them; everything else that
predicts returns `y`.
"""

import logging
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.runtimes.extras import required
from ringbatch.engine.runtimes.model import Model, Options, failure, refusing
from ringbatch.engine.runtimes.texts import decoded
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import Tensor

logger = logging.getLogger("ringbatch.worker")

Array = NDArray[Any]

_INPUT: Final = "x"
_DATATYPES: Final = {"b": "BOOL", "i": "INT64", "u": "INT64", "f": "FP64"}
"""By the kind of a numpy dtype; every other is BYTES."""


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
    # What a model was told to use all CPUs for uses this worker's threads.
    os.environ.setdefault("LOKY_MAX_CPU_COUNT", str(options.threads))
    # At the end, so that nothing beside the model file stands in for an installed package.
    sys.path.append(str(path.parent))
    estimator = _read_skops(path, options) if is_skops else _unpickle(path, content)
    if not callable(getattr(estimator, "predict", None)):
        raise StartupError(
            f"{path}: holds a {type(estimator).__name__}, but it must hold a model with a method "
            "predict"
        )
    with refusing(path):
        required("sklearn.utils.validation", "sklearn", path).check_is_fitted(estimator)
    x = _input(path, estimator)
    outputs, predict = _outputs(path, estimator, x)
    return Model((x,), outputs, lambda: None, predict)


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


def _input(path: Path, estimator: Any) -> Tensor:
    features = getattr(estimator, "n_features_in_", None)
    if features is not None:
        return Tensor(_INPUT, _input_datatype(estimator), [int(features)])
    if _takes_text(estimator):
        return Tensor(_INPUT, "BYTES", [])
    raise StartupError(
        f"{path}: the {type(estimator).__name__} does not say how many features it takes "
        "(n_features_in_), so it can be served from a python model file only"
    )


def _takes_text(estimator: Any) -> bool:
    """Whether its first step is one of scikit-learn's vectorizers, which take a list of texts."""
    steps = getattr(estimator, "steps", None)
    return hasattr(steps[0][1] if steps else estimator, "build_analyzer")


def _input_datatype(estimator: Any) -> str:
    """FP32 where all that it has learned is, else FP64, in which scikit-learn calculates."""
    return "FP32" if {array.dtype for array in _learned(estimator)} == {np.dtype("f4")} else "FP64"


def _learned(part: Any) -> Iterator[Any]:
    """The floating-point arrays and numbers in an estimator and the estimators in it."""
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
    path: Path, estimator: Any, x: Tensor
) -> tuple[tuple[Tensor, ...], Callable[[Array], Any]]:
    """What it returns, as it does for one row, and the function that makes it."""
    classes = getattr(estimator, "classes_", None)
    if isinstance(classes, list):
        raise StartupError(
            f"{path}: predicts {len(classes)} labels at once, so it can be served from a python "
            "model file only"
        )
    if classes is not None and not _is_plain(classes):
        raise StartupError(f"{path}: its labels (classes_) must be numbers or texts, all of a kind")
    take = _texts if x.datatype.name == "BYTES" else _unchanged
    row = np.zeros((1, *x.shape), x.datatype.numpy) if x.shape else np.array(["a"], dtype=object)
    predict = estimator.predict
    answer = _tried(path, predict, row)
    if classes is None:
        y = Tensor("y", "FP64" if answer is None else _datatype(answer), _shape(answer, ()))
        return (y,), lambda x: predict(take(x))
    label = Tensor("label", _datatype(classes), _shape(answer, ()))
    predict_proba = getattr(estimator, "predict_proba", None)
    if predict_proba is None:
        return (label,), lambda x: predict(take(x))
    answer = _tried(path, predict_proba, row)
    datatype = "FP64" if answer is None or answer.dtype != np.float32 else "FP32"
    probabilities = Tensor("probabilities", datatype, _shape(answer, classes.shape))

    def both(x: Array) -> tuple[Array, Array]:
        x = take(x)
        return predict(x), predict_proba(x)

    return (label, probabilities), both


def _tried(path: Path, function: Callable[[Array], Any], row: Array) -> Array | None:
    """What it answers for one row; None where it has no answer for that one."""
    try:
        return np.asarray(function(row))
    except Exception as error:
        words = failure(path, error)
        logger.warning("%s; so the shape of its answers is taken to be the usual one", words)
        return None


def _shape(answer: Array | None, usual: tuple[int, ...]) -> list[int]:
    return list(usual if answer is None else answer.shape[1:])


def _datatype(values: Array) -> str:
    if values.dtype == np.float32:
        return "FP32"
    return _DATATYPES.get(values.dtype.kind, "BYTES")


def _is_plain(classes: Array) -> bool:
    return classes.dtype.kind != "O" or all(isinstance(value, (str, bytes)) for value in classes)


def _texts(values: Array) -> Array:
    return decoded(_INPUT, values)


def _unchanged(values: Array) -> Array:
    return values
