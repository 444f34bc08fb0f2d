"""The lightgbm runtime: a model that LightGBM saved as text (.txt).

The file declares inputs and outputs. LightGBM ends the process if a file breaks off in the wrong
place, so the file is checked to be whole before LightGBM reads it.
"""

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.engine.runtimes.trees.lightgbm_row import TESTED, SingleRow
from ringbatch.engine.runtimes.trees.releases import is_tested
from ringbatch.engine.runtimes.trees.signature import Column, Trees, both_classes, served
from ringbatch.shm.errors import StartupError

logger = logging.getLogger("ringbatch.worker")

Array = NDArray[Any]

_KNOWN: Final = ("v2", "v3", "v4")
_ENDS: Final = ("\nend of trees\n", "\nend of parameters\n")
_MULTICLASS: Final = ("multiclass", "multiclassova")
_UNUSED: Final = "none"
"""Entry of a feature with only one value, which no tree uses."""


def open_lightgbm(path: Path, options: Options) -> Model:
    """Load a LightGBM file; see `ringbatch.engine.runtimes.opening.open_model`."""
    if not options.max_batch_size:
        raise StartupError(
            f"{path}: max_batch_size is 0, but a LightGBM model takes batches; set 1 or more"
        )
    text = options.readable(path).read_bytes().decode(errors="replace")
    head = _head(path, text)
    lightgbm = required("lightgbm", "lightgbm", path)
    # LightGBM raises its errors as well.
    lightgbm.register_logger(logging.getLogger("ringbatch.lightgbm"))
    logging.getLogger("ringbatch.lightgbm").setLevel(logging.CRITICAL)
    with refusing(path, "LightGBM cannot load it"):
        booster = lightgbm.Booster(model_str=text)
    objective = head.get("objective", "").partition(" ")[0]
    classes = int(head["num_class"]) if objective in _MULTICLASS else 2 * (objective == "binary")
    how = {
        "num_threads": options.threads,
        "num_iteration": options.iterations or None,
        "validate_features": False,
    }

    def run(**kind: bool) -> Callable[[Array], Array]:
        def predict(matrix: Array) -> Array:
            predicted: Array = booster.predict(matrix, **how, **kind)
            return predicted

        return predict

    def run_of(margins: bool) -> Callable[[Array], Array]:
        rows = run(raw_score=margins)
        if not is_tested(lightgbm.__version__, TESTED):
            logger.debug("LightGBM %s is asked by Booster.predict alone", lightgbm.__version__)
            return rows
        try:
            row = SingleRow(lightgbm, booster, options.threads, options.iterations, margins=margins)
        except AttributeError:
            # Where the module keeps its library is not promised; only the C API is.
            return rows
        return lambda matrix: row(matrix) if len(matrix) == 1 else rows(matrix)

    values = run_of(margins=False)
    functions = {"y": values}
    if classes == 2 and objective not in _MULTICLASS:
        functions = {"probabilities": lambda x: both_classes(values(x))}
    elif classes:
        functions = {"probabilities": values}
    functions |= {"margins": run_of(margins=True), "contributions": run(pred_contrib=True)}
    trees = Trees(
        columns=lightgbm_columns(text, booster),
        precision="FP64",
        classes=classes,
        labels=(),
        prepared=lambda matrix: matrix,
        functions=functions,
    )
    return served(path, trees, options)


def _head(path: Path, text: str) -> dict[str, str]:
    """Return the head of a whole file: the lines before the trees.

    Raises:
        StartupError: it is no LightGBM file, or not a whole one.
    """
    head = _lines(text)
    sizes = head.get("tree_sizes", "").split()
    if not text.startswith("tree") or not {"version", "num_class", "feature_names"} <= head.keys():
        raise StartupError(
            f"{path}: is no LightGBM model; save one with Booster.save_model, as .txt"
        )
    if head["version"] not in _KNOWN:
        raise StartupError(
            f"{path}: is of LightGBM's format {head['version']}, and known are {', '.join(_KNOWN)}"
        )
    trees = len(re.findall(r"^Tree=\d+$", text, re.MULTILINE))
    if trees != len(sizes) or not all(end in text for end in _ENDS):
        raise StartupError(f"{path}: is not all of a LightGBM model, some of it is missing")
    return head


def lightgbm_columns(text: str, booster: Any) -> list[Column]:
    """Return the features, with their categories if it has learned from a DataFrame.

    Args:
        text: of the model, its head at least.
        booster: the model.
    """
    head = _lines(text)
    categories: Sequence[Sequence[Any]] | None = booster.pandas_categorical
    names = head["feature_names"].split(" ")
    infos = head.get("feature_infos", "").split(" ")
    # The entry of a numeric feature is [least:largest].
    categorical = [
        index for index, info in enumerate(infos) if not info.startswith("[") and info != _UNUSED
    ]
    if not categories or len(categorical) != len(categories):
        return [Column(name) for name in names]
    columns = [Column(name) for name in names]
    for index, known in zip(categorical, categories, strict=True):
        codes = {_sent(category): float(code) for code, category in enumerate(known)}
        columns[index] = Column(names[index], categories=codes, others=np.nan)
    return columns


def _lines(text: str) -> dict[str, str]:
    """Return the values in the head of a model, by name."""
    top, _, _ = text.partition("\nTree=")
    return dict(line.partition("=")[::2] for line in top.splitlines())


def _sent(category: Any) -> bytes | float:
    """Return a category as an input holds it."""
    return category.encode() if isinstance(category, str) else float(category)
