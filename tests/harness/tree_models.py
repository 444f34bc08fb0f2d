"""Models of trees, trained with each library, and the answers of the library itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringbatch.engine.models.model import Model, Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.errors import StartupError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 6)).astype(np.float32)
X[::7, 2] = np.nan
KIND = np.digitize(X[:, 0], [-0.5, 0.5])
BINARY = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
AMOUNT = X[:, 0] * 3 + X[:, 3]
CITIES = np.array(["Bonn", "Kiel", "Ulm"])[KIND]
EVERY = ("label", "probabilities", "margins", "contributions")


def opened(runtime: str, path: Path, **more: Any) -> Model:
    return open_model(runtime, path, Options(**{"max_batch_size": 32, "threads": 1} | more))


def asked(model: Model, *arrays: Any) -> tuple[Any, ...]:
    """Return the model's outputs as a tuple, even a single one."""
    found = model.predict(*arrays)
    assert isinstance(found, tuple) == (len(model.outputs) > 1)
    return found if isinstance(found, tuple) else (found,)


def refused(runtime: str, path: Path, **more: Any) -> str:
    with pytest.raises(StartupError) as caught:
        opened(runtime, path, **more)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def xgboost_file(folder: Path, objective: str, wanted: Any, table: Any = X, **more: Any) -> Path:
    xgboost = pytest.importorskip("xgboost")
    how = {"objective": objective, "nthread": 1, **more}
    data = xgboost.DMatrix(table, wanted, enable_categorical=True)
    path = folder / "model.ubj"
    xgboost.train(how, data, 25).save_model(path)
    return path


def lightgbm_file(folder: Path, objective: str, wanted: Any, table: Any = X, **more: Any) -> Path:
    lightgbm = pytest.importorskip("lightgbm")
    how = {"objective": objective, "num_threads": 1, "verbose": -1, **more}
    path = folder / "model.txt"
    lightgbm.train(how, lightgbm.Dataset(table, wanted), 25).save_model(path)
    return path


def catboost_file(folder: Path, objective: str, wanted: Any, table: Any = X, **more: Any) -> Path:
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoost(
        {
            "loss_function": objective,
            "iterations": 25,
            "depth": 4,
            "thread_count": 1,
            "allow_writing_files": False,
            "verbose": False,
            **more,
        }
    )
    path = folder / "model.cbm"
    model.fit(table, wanted).save_model(str(path))
    return path


def by_xgboost(path: Path, answer: str) -> Any:
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.Booster(model_file=path)
    if answer == "contributions":
        return booster.predict(xgboost.DMatrix(X), pred_contribs=True)
    kind = "margin" if answer == "margins" else "value"
    return booster.inplace_predict(X, predict_type=kind)


def by_lightgbm(path: Path, answer: str) -> Any:
    booster = pytest.importorskip("lightgbm").Booster(model_file=path)
    options = {"margins": {"raw_score": True}, "contributions": {"pred_contrib": True}}
    return booster.predict(X.astype(float), num_threads=1, **options.get(answer, {}))


def by_catboost(path: Path, answer: str) -> Any:
    catboost = pytest.importorskip("catboost")
    trained = catboost.CatBoost().load_model(str(path))
    if answer == "contributions":
        return trained.get_feature_importance(catboost.Pool(X), type="ShapValues")
    kind = {"probabilities": "Probability"}.get(answer, "RawFormulaVal")
    return trained.predict(X, prediction_type=kind)


MAKERS: dict[str, tuple[Callable[..., Path], Callable[[Path, str], Any]]] = {
    "xgboost": (xgboost_file, by_xgboost),
    "lightgbm": (lightgbm_file, by_lightgbm),
    "catboost": (catboost_file, by_catboost),
}
OBJECTIVES = {
    "xgboost": ("binary:logistic", "multi:softprob", "reg:squarederror"),
    "lightgbm": ("binary", "multiclass", "regression"),
    "catboost": ("Logloss", "MultiClass", "RMSE"),
}
EACH = pytest.mark.parametrize("runtime", list(MAKERS))


def made(runtime: str, folder: Path, kind: int) -> Path:
    """A file of two classes, of three, or of numbers."""
    more = {"num_class": 3} if kind == 1 and runtime != "catboost" else {}
    make, _ = MAKERS[runtime]
    return make(folder, OBJECTIVES[runtime][kind], (BINARY, KIND, AMOUNT)[kind], **more)
