"""Tree models in whole servers: the page's example, and the effect of a bad request."""

import importlib
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents.commands import printed, serving, write
from documents.pages import example, output_after
from serve.client import Connection, Response, fast, instances, request
from serve.server import Server, Start

# Only where all extras are there are these servers worth their time.
pytest.importorskip("xgboost")

ROWS = [[0.5, -1.0, 2.0, 0.0], [-0.5, 1.0, 0.25, 3.0]]
CAP = 4
PAGE = "docs/how-to/serve-trees.md"
PRECISION = {"light": "FP64", "cat": "FP32"}


def ask_at_once(server: Server, *requests: bytes) -> list[Response]:
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in requests]
        for connection, one in zip(connections, requests, strict=True):
            connection.send(one)
        return [connection.receive() for connection in connections]


def test_the_tree_of_the_page_is_served(tmp_path: Path) -> None:
    write(tmp_path, "tree.py", example(PAGE, "tree.py"))
    printed(example(PAGE, "make-tree"), tmp_path)
    with serving(tmp_path, example(PAGE, "tree")) as server:
        (answer,) = ask_at_once(server, fast("risk", instances(*ROWS)))
        (row,) = json.loads(printed(example(PAGE, "tree-curl"), tmp_path, server))["predictions"]
    (shown,) = json.loads(output_after(PAGE, "tree-curl"))["predictions"]
    assert row == {"label": shown["label"], "margins": pytest.approx(shown["margins"], rel=0.1)}
    booster = importlib.import_module("xgboost").Booster(model_file=tmp_path / "risk.ubj")
    margins = booster.inplace_predict(np.array(ROWS, "f4"), predict_type="margin")
    assert answer.json["predictions"] == [
        {"label": "high", "margins": pytest.approx(margins[0])},
        {"label": "low", "margins": pytest.approx(margins[1])},
    ]


@pytest.fixture(scope="module")
def cities(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A LightGBM and a CatBoost model of two columns each, whose batches wait until they are
    full."""
    lightgbm = pytest.importorskip("lightgbm")
    catboost = pytest.importorskip("catboost")
    pandas = pytest.importorskip("pandas")
    folder = tmp_path_factory.mktemp("cities")
    kind = np.arange(200) % 2
    frame = pandas.DataFrame(
        {"area": kind * 1.0, "city": pandas.Categorical(np.array(["Bonn", "Ulm"])[kind])}
    )
    data = lightgbm.Dataset(frame, kind)
    trees = lightgbm.train({"objective": "binary", "verbose": -1, "num_threads": 1}, data, 3)
    trees.save_model(folder / "light.txt")
    model = catboost.CatBoostClassifier(
        iterations=3, cat_features=["city"], verbose=False, allow_writing_files=False
    )
    model.fit(frame.astype({"city": str}), kind).save_model(str(folder / "cat.cbm"))
    held: dict[str, Any] = {"policy": "fixed", "max_batch_size": CAP, "max_latency_ms": 60_000}
    return start_for_module(
        {
            "light": {"path": str(folder / "light.txt"), **held},
            "cat": {"path": str(folder / "cat.cbm"), **held},
        }
    )


@pytest.mark.parametrize("model", ["light", "cat"])
def test_columns_are_sent_by_name_and_a_wrong_one_is_refused_alone(
    cities: Server, model: str
) -> None:
    good = fast(model, instances({"area": 1, "city": "Ulm"}, {"area": 0, "city": "Bonn"}))
    wrong = (
        instances({"area": "large", "city": "Ulm"}),
        instances({"area": 1}),
        instances({"area": 1, "city": 7}),
    )
    answers = ask_at_once(cities, good, *(fast(model, one) for one in wrong), good)
    assert [answer.status for answer in answers] == [200, 400, 400, 400, 200]
    for answer in (answers[0], answers[-1]):
        assert [row["label"] for row in answer.json["predictions"]] == [1, 0]
    assert answers[0].json["batchId"] == answers[-1].json["batchId"]
    assert '"city"' in answers[2].error


@pytest.mark.parametrize("model", ["light", "cat"])
def test_a_null_is_a_missing_value_in_json_of_both_protocols(cities: Server, model: str) -> None:
    entries = [
        {"name": "area", "shape": [2], "datatype": PRECISION[model], "data": [None, 1]},
        {"name": "city", "shape": [2], "datatype": "BYTES", "data": ["Bonn", None]},
    ]
    v2 = request(f"/v2/models/{model}/infer", json.dumps({"inputs": entries}).encode())
    v1 = fast(model, instances({"area": None, "city": "Bonn"}, {"area": 1, "city": None}))
    first, second = ask_at_once(cities, v1, v2)
    assert (first.status, second.status) == (200, 200)
    labels = next(o for o in second.json["outputs"] if o["name"] == "label")["data"]
    assert [row["label"] for row in first.json["predictions"]] == labels
