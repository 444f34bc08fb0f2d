"""Five models of trees, trained on made-up data and called as their own libraries are.

    python trees_models.py FOLDER     trains all, writes rows, their labels and the names of files

Run by the interpreter of the peers, which has the libraries.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILES = {
    "xgboost": "xgboost.ubj",
    "lightgbm": "lightgbm.txt",
    "catboost": "catboost.cbm",
    "histgb": "histgb.joblib",
    "forest": "forest.joblib",
}
"""The file of each model."""
FEATURES = 30
TREES = 300
Predict = Callable[[Any], Any]


def train(kind: str, path: Path, x: Any, y: Any) -> None:
    """Write the file of a model."""
    if kind == "xgboost":
        import xgboost

        model = xgboost.XGBClassifier(n_estimators=TREES, n_jobs=1).fit(x, y)
        model.get_booster().save_model(path)
    elif kind == "lightgbm":
        import lightgbm

        trained = lightgbm.LGBMClassifier(n_estimators=TREES, n_jobs=1, verbose=-1).fit(x, y)
        trained.booster_.save_model(path)
    elif kind == "catboost":
        import catboost

        catboost.CatBoostClassifier(
            iterations=TREES, thread_count=1, verbose=False, allow_writing_files=False
        ).fit(x, y).save_model(str(path))
    else:
        import joblib
        from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

        hist = HistGradientBoostingClassifier(max_iter=TREES, early_stopping=False)
        forest = RandomForestClassifier(TREES, max_depth=10, n_jobs=1)
        joblib.dump((hist if kind == "histgb" else forest).fit(x, y), path)


def load(kind: str, path: Path) -> Predict:
    """Return a function from rows to labels, with one thread."""
    if kind == "xgboost":
        import xgboost

        booster = xgboost.Booster(model_file=path)
        booster.set_param({"nthread": 1})
        return lambda rows: booster.inplace_predict(np.asarray(rows, np.float32)) > 0.5
    if kind == "lightgbm":
        import lightgbm

        trees = lightgbm.Booster(model_file=path)
        return lambda rows: trees.predict(np.asarray(rows, np.float64), num_threads=1) > 0.5
    if kind == "catboost":
        import catboost

        model = catboost.CatBoostClassifier().load_model(str(path))
        return lambda rows: model.predict(np.asarray(rows, np.float32), thread_count=1)
    import joblib

    estimator = joblib.load(path)
    return lambda rows: estimator.predict(np.asarray(rows, np.float64))


def main() -> None:
    """Train all models."""
    folder = Path(sys.argv[1])
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, FEATURES)).round(3)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + random.normal(size=4000) / 2 > 0).astype(int)
    rows = x[:32].tolist()
    labels = {}
    for kind, name in FILES.items():
        train(kind, folder / name, x, y)
        labels[kind] = [int(label) for label in load(kind, folder / name)(rows)]
    (folder / "rows.json").write_text(json.dumps({"rows": rows, "labels": labels, "files": FILES}))


if __name__ == "__main__":
    main()
