"""The catboost runtime: a model that CatBoost saved in its own format (.cbm).

The file declares inputs and outputs. Categories go to CatBoost as the texts that clients send; an
unseen one is a category like any other to it.
"""

from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.models import python_file_hint
from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.engine.runtimes.trees.signature import Column, Trees, served
from ringbatch.shm.errors import StartupError

Array = NDArray[Any]

_START: Final = b"CBM1"
_SIZE: Final = Struct("<I")
"""Length behind the magic number. CatBoost reads beyond a truncated file, and may die of it."""
_SEVERAL_AT_ONCE: Final = ("MultiLogloss", "MultiCrossEntropy")
_USUAL_BORDER: Final = 0.5
_BORDER: Final = "binclass_probability_threshold"


def open_catboost(path: Path, options: Options) -> Model:
    """Load a CatBoost file; see `ringbatch.engine.runtimes.opening.open_model`."""
    if not options.max_batch_size:
        raise StartupError(
            f"{path}: max_batch_size is 0, but a CatBoost model takes batches; set 1 or more"
        )
    catboost = required("catboost", "catboost", path)
    content = options.readable(path).read_bytes()
    if not content.startswith(_START):
        raise StartupError(
            f'{path}: is no CatBoost model; save one with save_model(path, format="cbm")'
        )
    wanted = len(_START) + _SIZE.size + _SIZE.unpack_from(content.ljust(8, b"\0"), len(_START))[0]
    if len(content) < wanted:
        raise StartupError(
            f"{path}: is no whole CatBoost model: it ends at byte {len(content):,} of {wanted:,}"
        )
    model = catboost.CatBoost()
    with refusing(path, "CatBoost cannot load it"):
        model.load_model(blob=content)
    if model.get_text_feature_indices() or model.get_embedding_feature_indices():
        why = "takes texts to be cut into words, or embeddings, which this runtime cannot give it"
        raise StartupError(python_file_hint.refusal(path, why, python_file_hint.CATBOOST))
    categorical = list(model.get_cat_feature_indices())
    if categorical and options.columns == "matrix":
        raise StartupError(
            f"{path}: columns is matrix, but some columns of this model hold texts; leave it out"
        )
    run = _Run(catboost, model, categorical, options)
    labels = [] if run.objective in _SEVERAL_AT_ONCE else list(model.classes_)
    trees = Trees(
        columns=[
            Column(name, text=index in categorical)
            for index, name in enumerate(model.feature_names_)
        ],
        precision="FP32",
        classes=len(labels),
        labels=labels,
        prepared=run.pool,
        functions=run.functions(len(labels)),
    )
    return served(path, trees, options)


class _Run:
    """Prediction functions of a CatBoost model."""

    def __init__(self, catboost: Any, model: Any, categorical: list[int], options: Options) -> None:
        self._pool = catboost.Pool
        self._model = model
        self._categorical = categorical
        self._threads = options.threads
        self._trees = options.iterations
        parameters = dict(model.get_metadata().items())
        self._border = float(parameters.get(_BORDER, _USUAL_BORDER))
        self.objective = model._object._get_loss_function_name()

    def pool(self, matrix: Array) -> Any:
        """Return the matrix as a CatBoost pool."""
        if matrix.shape[1] != len(self._model.feature_names_):
            raise ValueError(
                f"{matrix.shape[1]} columns, but the model has {len(self._model.feature_names_)}"
            )
        return self._pool(matrix, cat_features=self._categorical or None, thread_count=1)

    def functions(self, classes: int) -> dict[str, Callable[[Any], Array]]:
        """Return the functions by the names of answers."""
        functions = {"y": self._predicted("RawFormulaVal")}
        if classes:
            functions = {"probabilities": self._predicted("Probability")}
            if self._border != _USUAL_BORDER:
                functions["label"] = self._above_border
        functions["margins"] = self._predicted("RawFormulaVal")
        functions["contributions"] = self._contributions
        return functions

    def _predicted(self, kind: str) -> Callable[[Any], Array]:
        def predict(pool: Any) -> Array:
            predicted: Array = self._model.predict(
                pool, prediction_type=kind, ntree_end=self._trees, thread_count=self._threads
            )
            return predicted

        return predict

    def _above_border(self, pool: Any) -> Array:
        above: Array = self._predicted("Probability")(pool)[:, 1] > self._border
        return above.astype(np.int64)

    def _contributions(self, pool: Any) -> Array:
        contributions: Array = self._model.get_feature_importance(
            pool, type="ShapValues", thread_count=self._threads
        )
        return contributions
