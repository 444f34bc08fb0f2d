"""The xgboost runtime: a model that XGBoost saved, as UBJSON (.ubj) or JSON (.json).

The file declares inputs and outputs. One matrix is predicted in place, without copies; only
contributions, and models of the linear booster, need a DMatrix.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.engine.runtimes.trees import ubjson
from ringbatch.engine.runtimes.trees.releases import is_tested, numbers
from ringbatch.engine.runtimes.trees.signature import Column, Trees, both_classes, served
from ringbatch.engine.runtimes.trees.xgboost_dense import TESTED, Dense
from ringbatch.shm.errors import StartupError

logger = logging.getLogger("ringbatch.worker")

Array = NDArray[Any]

_LABELS_ONLY: Final = "binary:hinge"
_CATEGORY: Final = "c"
_VERSIONS: Final[tuple[tuple[re.Pattern[bytes], Callable[[bytes], int]], ...]] = (
    (re.compile(rb'"version"\s*:\s*\[(\d+),(\d+),(\d+)\]'), int),
    (re.compile(rb"\x00\x07version\[#L\x00{7}\x03i(.)i(.)i(.)", re.DOTALL), ord),
)
"""Version fields in JSON, with numbers as digits, and in UBJSON, with numbers as bytes."""
_JSON: Final = re.compile(rb'\s*\{\s*["}]')
"""XGBoost takes everything else for UBJSON, whose keys begin with their length."""


def open_xgboost(path: Path, options: Options) -> Model:
    """Load an XGBoost file; see `ringbatch.engine.runtimes.opening.open_model`."""
    if not options.max_batch_size:
        raise StartupError(
            f"{path}: max_batch_size is 0, but an XGBoost model takes batches; set 1 or more"
        )
    xgboost = required("xgboost", "xgboost", path)
    content = options.readable(path).read_bytes()
    booster = _loaded(path, content, xgboost)
    booster.set_param({"nthread": options.threads})
    with refusing(path, "XGBoost cannot say what it takes"):
        learner = json.loads(booster.save_config())["learner"]
        objective = learner["objective"]["name"]
        classes = _classes(objective, learner["learner_model_param"])
        columns = xgboost_columns(path, booster, named=options.columns != "matrix")
    if objective == "multi:softmax":
        # Both objectives learn the same; this one keeps the probabilities.
        booster.set_param({"objective": "multi:softprob"})
    run = _Run(
        xgboost, booster, options, in_place=learner["gradient_booster"]["name"] != "gblinear"
    )
    functions: dict[str, Callable[[Array], Array]] = {"y": run.values}
    if objective == _LABELS_ONLY:
        functions = {"label": lambda x: run.values(x).astype(np.int64)}
    elif classes == 2:
        functions = {"probabilities": lambda x: both_classes(run.values(x))}
    elif classes:
        functions = {"probabilities": run.values}
    functions |= {"margins": run.margins, "contributions": run.contributions}
    trees = Trees(
        columns=columns,
        precision="FP32",
        classes=classes,
        labels=(),
        prepared=lambda matrix: matrix,
        functions=functions,
    )
    return served(path, trees, options)


class _Run:
    """Prediction functions of a booster."""

    def __init__(self, xgboost: Any, booster: Any, options: Options, *, in_place: bool) -> None:
        self._own_form = xgboost.DMatrix
        self._booster = booster
        self._features = {"feature_types": booster.feature_types, "nthread": options.threads}
        self._rounds = (0, options.iterations or _best(booster))
        if in_place:
            values, margins = self._in_place(xgboost, False), self._in_place(xgboost, True)
        else:
            values, margins = self._predicted, partial(self._predicted, output_margin=True)
        self.values: Callable[[Array], Array] = values
        """Predicted values: the objective's transform of the margins."""
        self.margins: Callable[[Array], Array] = margins
        """Margins: sums of the trees' values."""

    def contributions(self, matrix: Array) -> Array:
        """Return the contribution of each feature."""
        return self._predicted(matrix, pred_contribs=True)

    def _in_place(self, xgboost: Any, margins: bool) -> Callable[[Array], Array]:
        if is_tested(xgboost.__version__, TESTED):
            # Where the module keeps its library is not promised; only the C API is.
            with suppress(AttributeError):
                return Dense(xgboost, self._booster, self._rounds, margins=margins)
        logger.debug("XGBoost %s is asked by Booster.inplace_predict", xgboost.__version__)
        inplace_predict: Callable[..., Array] = self._booster.inplace_predict
        kind = "margin" if margins else "value"
        return partial(inplace_predict, iteration_range=self._rounds, predict_type=kind)

    def _predicted(self, matrix: Array, **kind: bool) -> Array:
        own = self._own_form(matrix, **self._features)
        predicted: Array = self._booster.predict(
            own, iteration_range=self._rounds, validate_features=False, **kind
        )
        return predicted


def _loaded(path: Path, content: bytes, xgboost: Any) -> Any:
    # XGBoost ends the process if a file is empty.
    if not content.lstrip().startswith(b"{"):
        raise StartupError(
            f"{path}: is no XGBoost model; save one with Booster.save_model, as .ubj or .json"
        )
    if not _JSON.match(content):
        try:
            ubjson.walk(content)
        except ubjson.NotWhole as error:
            raise StartupError(f"{path}: is no whole XGBoost model: {error}") from None
    written, installed = _version(content), numbers(xgboost.__version__)
    newer = written is not None and written > installed
    by = f"XGBoost {'.'.join(map(str, written or ()))}"
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(content))
        features = booster.num_features()
    except (xgboost.core.XGBoostError, ValueError, LookupError) as error:
        reason = str(error).partition("Stack trace:")[0].split("] ", 1)[-1]
        words = " ".join(re.sub(r"^\S+\.(?:cc|h):\d+: ", "", reason).split())
        hint = f"; {by} wrote it, and {xgboost.__version__} is installed" if newer else ""
        raise StartupError(f"{path}: XGBoost cannot load it: {words}{hint}") from None
    if not features:
        raise StartupError(f"{path}: is no XGBoost model: it has no features")
    if newer:
        logger.warning(
            "%s: %s wrote it, which is newer than the %s that is installed",
            path,
            by,
            xgboost.__version__,
        )
    return booster


def _version(content: bytes) -> tuple[int, ...] | None:
    """Return the version of the XGBoost that wrote a file, if the file has it."""
    for pattern, number in _VERSIONS:
        found = pattern.search(content)
        if found:
            return tuple(number(group) for group in found.groups())
    return None


def _best(booster: Any) -> int:
    """Return the rounds up to the best, if training determined it; 0 for all."""
    best = booster.attr("best_iteration")
    return 0 if best is None else int(best) + 1


def _classes(objective: str, parameters: Mapping[str, str]) -> int:
    if objective.startswith("multi:"):
        return int(parameters["num_class"])
    binary = objective in ("binary:logistic", _LABELS_ONLY)
    return 2 if binary and int(parameters.get("num_target", "1")) == 1 else 0


def xgboost_columns(path: Path, booster: Any, *, named: bool) -> list[Column]:
    """Return the features of a booster; with categories, if they are wanted and the file has them.

    Raises:
        StartupError: the file has them, but not whole.
    """
    count = booster.num_features()
    names = booster.feature_names or [f"f{index}" for index in range(count)]
    types = booster.feature_types or [""] * count
    if _CATEGORY not in types or not named:
        return [Column(name) for name in names]
    model = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    encoded = model.get("gbtree", model).get("model", {}).get("cats", {}).get("enc")
    if not encoded:
        # Before XGBoost 3.1, files kept only the codes.
        return [Column(name) for name in names]
    return [
        Column(name, categories=_categories(path, name, of_column) or None)
        for name, of_column in zip(names, encoded, strict=True)
    ]


def _categories(path: Path, name: str, encoded: Mapping[str, Any]) -> dict[Any, float]:
    values: Sequence[int] = encoded["values"]
    offsets = encoded.get("offsets")
    if offsets is None:
        return {float(value): float(code) for code, value in enumerate(values)}
    text = bytes(value & 0xFF for value in values)
    texts = [text[start:end] for start, end in pairwise(offsets)]
    if not text.isascii():
        raise StartupError(
            f"{path}: column {name!r} has categories that are not ASCII, which XGBoost does not "
            'save whole; rename them, or set columns = "matrix" and send codes'
        )
    return {one: float(code) for code, one in enumerate(texts)}
