"""Models of trees: what they take and return, alone and in company, and words for bad files."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tree_models import (
    AMOUNT,
    BINARY,
    CITIES,
    EACH,
    EVERY,
    KIND,
    MAKERS,
    X,
    asked,
    by_xgboost,
    catboost_file,
    lightgbm_file,
    made,
    opened,
    refused,
    xgboost_file,
)

from ringbatch.engine.models.model import InvalidInput, Model, Options
from ringbatch.engine.runtimes.trees import lightgbm_row, xgboost_dense
from ringbatch.engine.runtimes.trees import xgboost as runtime
from ringbatch.engine.runtimes.trees.lightgbm_row import SingleRow
from ringbatch.engine.runtimes.trees.releases import is_tested
from ringbatch.engine.runtimes.trees.signature import Column, Trees, served
from ringbatch.engine.runtimes.trees.xgboost_dense import Dense
from ringbatch.shm.tensor import Tensor


def matrix(model: Model) -> Any:
    return X.astype(model.inputs[0].datatype.numpy)


@EACH
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_answers_are_those_of_the_library_to_the_last_bit_alone_and_in_company(
    tmp_path: Path, runtime: str, kind: int
) -> None:
    path = made(runtime, tmp_path, kind)
    names = ("y", "margins", "contributions") if kind == 2 else EVERY
    model = opened(runtime, path, answers=names)
    x = matrix(model)
    together = dict(zip(names, asked(model, x), strict=True))
    assert [tensor.name for tensor in model.outputs] == list(names)
    for name in names[kind < 2 :]:
        right = MAKERS[runtime][1](path, name)
        if name == "probabilities" and right.ndim == 1:
            right = np.stack([1 - right, right], axis=1)
        assert np.array_equal(together[name], right), name
    for size in (1, 2, 3, 8, 31):
        batches = [asked(model, x[start : start + size]) for start in range(0, 62, size)]
        for name, parts in zip(names, zip(*batches, strict=True), strict=True):
            assert np.array_equal(np.concatenate(parts)[:62], together[name][:62]), (name, size)


@EACH
def test_a_classifier_says_its_labels_and_probabilities_as_they_are_usual(
    tmp_path: Path, runtime: str
) -> None:
    model = opened(runtime, made(runtime, tmp_path, 1))
    label, probabilities = model.outputs
    assert (label, probabilities.shape) == (Tensor("label", "INT64", []), (3,))
    found, shares = asked(model, matrix(model))
    assert np.array_equal(found, shares.argmax(axis=1))
    assert np.mean(found == KIND) > 0.9


@EACH
def test_labels_have_the_names_that_they_are_given(tmp_path: Path, runtime: str) -> None:
    path = made(runtime, tmp_path, 0)
    model = opened(runtime, path, class_names=["no", "süß"], answers=["label"])
    assert model.outputs == (Tensor("label", "BYTES", []),)
    (found,) = asked(model, matrix(model))
    assert np.mean(found == np.array(["no", "süß"])[BINARY]) > 0.9
    assert refused(runtime, path, class_names=["one"]) == (
        "class_names has length 1, but the model has 2 classes"
    )


@EACH
def test_a_model_without_a_requested_output_names_its_outputs(tmp_path: Path, runtime: str) -> None:
    path = made(runtime, tmp_path, 2)
    assert refused(runtime, path, answers=["probabilities"]) == (
        'answers has "probabilities", but this model has y, margins, contributions'
    )
    assert refused(runtime, path, class_names=["a"]) == (
        "class_names has length 1, but the model has 0 classes"
    )
    assert refused(runtime, path, max_batch_size=0).startswith("max_batch_size is 0, but a")


@EACH
def test_fewer_rounds_are_another_answer(tmp_path: Path, runtime: str) -> None:
    path = made(runtime, tmp_path, 2)
    few, all_of_it = opened(runtime, path, iterations=3), opened(runtime, path)
    x = matrix(few)[:9]
    again = opened(runtime, path, iterations=25)
    assert not np.array_equal(asked(few, x)[0], asked(all_of_it, x)[0])
    assert np.array_equal(asked(again, x)[0], asked(all_of_it, x)[0])


@EACH
def test_columns_may_be_inputs_of_their_own(tmp_path: Path, runtime: str) -> None:
    path = made(runtime, tmp_path, 2)
    whole, named = opened(runtime, path), opened(runtime, path, columns="named")
    assert len(named.inputs) == 6
    assert all(tensor.shape == () for tensor in named.inputs)
    x = matrix(whole)[:20]
    assert np.array_equal(asked(named, *x.T)[0], asked(whole, x)[0])


def table() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(
        {"amount": X[:, 3], "city": pandas.Categorical(CITIES), "size": pandas.Categorical(KIND)}
    )


def texts(*values: bytes) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def test_categories_of_xgboost_are_texts_and_one_never_seen_is_refused(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    frame = table()
    path = xgboost_file(tmp_path, "reg:squarederror", AMOUNT, frame)
    model = opened("xgboost", path)
    if len(model.inputs) == 1:
        pytest.skip("this XGBoost does not save the names of categories")
    assert [tensor.datatype.name for tensor in model.inputs] == ["FP32", "BYTES", "FP32"]
    sent = [X[:, 3], texts(*(city.encode() for city in CITIES)), KIND.astype("f4")]
    right = xgboost.Booster(model_file=path).inplace_predict(frame)
    assert np.array_equal(asked(model, *sent)[0], right)
    with pytest.raises(InvalidInput, match="'Oslo', which is none of the categories"):
        asked(model, X[:1, 3], texts(b"Oslo"), sent[2][:1])
    missing = asked(model, X[:1, 3], texts(b""), np.array([np.nan], "f4"))[0]
    codes = np.array([[X[0, 3], np.nan, np.nan]], "f4")
    assert np.array_equal(missing, asked(opened("xgboost", path, columns="matrix"), codes)[0])


def test_categories_that_xgboost_does_not_save_whole_are_refused(tmp_path: Path) -> None:
    frame = table()
    if len(opened("xgboost", xgboost_file(tmp_path, "reg:squarederror", AMOUNT, frame)).inputs) < 3:
        pytest.skip("this XGBoost does not save the names of categories")
    frame["city"] = frame["city"].cat.rename_categories({"Ulm": "Köln"})
    path = xgboost_file(tmp_path, "reg:squarederror", AMOUNT, frame)
    assert refused("xgboost", path).startswith(
        "column 'city' has categories that are not ASCII, which XGBoost does not save whole"
    )
    assert opened("xgboost", path, columns="matrix").inputs == (Tensor("x", "FP32", [3]),)


def test_a_lightgbm_row_of_another_length_is_refused(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    booster = lightgbm.Booster(model_file=lightgbm_file(tmp_path, "regression", AMOUNT))
    row = SingleRow(lightgbm, booster, threads=1, iterations=0, margins=False)
    for shape in ((1, X.shape[1] - 1), (2, X.shape[1]), (X.shape[1],)):
        with pytest.raises(ValueError, match=f"a row of {X.shape[1]}, found"):
            row(np.zeros(shape))


def test_an_xgboost_matrix_of_another_width_is_refused(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.Booster(model_file=xgboost_file(tmp_path, "reg:squarederror", AMOUNT))
    dense = Dense(xgboost, booster, (0, 0), margins=False)
    for shape in ((1, X.shape[1] - 1), (X.shape[1],)):
        with pytest.raises(ValueError, match=f"rows of {X.shape[1]}, found"):
            dense(np.zeros(shape))


def test_xgboosts_refusal_keeps_its_words(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.Booster(model_file=xgboost_file(tmp_path, "reg:squarederror", AMOUNT))
    rounds = booster.num_boosted_rounds()
    dense = Dense(xgboost, booster, (rounds + 7, rounds + 8), margins=False)
    with pytest.raises(RuntimeError, match="Check failed"):
        dense(X[:1])


def test_an_xgboost_result_stays_when_it_predicts_again(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.Booster(model_file=xgboost_file(tmp_path, "reg:squarederror", AMOUNT))
    dense = Dense(xgboost, booster, (0, 0), margins=False)
    first, other = dense(X[:1]), dense(X[1:2])
    assert first != other
    assert np.array_equal(first, booster.inplace_predict(X[:1]))


def test_xgboost_answers_alike_where_its_library_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xgboost")
    path = xgboost_file(tmp_path, "multi:softprob", KIND, num_class=3)
    expected = asked(opened("xgboost", path, answers=EVERY), X)
    monkeypatch.setattr(runtime, "Dense", lambda xgboost, *_, **__: xgboost.elsewhere)
    found = asked(opened("xgboost", path, answers=EVERY), X)
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_lightgbm_answers_alike_where_its_library_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    path = lightgbm_file(tmp_path, "multiclass", KIND, num_class=3)
    row = X[:1].astype(float)
    expected = asked(opened("lightgbm", path, answers=EVERY), row)
    monkeypatch.setattr(lightgbm.Booster, "num_feature", property(lambda self: self.missing))
    found = asked(opened("lightgbm", path, answers=EVERY), row)
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("runtime", ["xgboost", "lightgbm"])
def test_the_installed_release_is_among_those_that_were_tested(runtime: str) -> None:
    """If not, run this file with it, with TESTED changed, and see that nothing but this failed."""
    tested = {"xgboost": xgboost_dense.TESTED, "lightgbm": lightgbm_row.TESTED}[runtime]
    assert is_tested(pytest.importorskip(runtime).__version__, tested)


@pytest.mark.parametrize("version", ["1.7.6", "99.0.1"])
@pytest.mark.parametrize("runtime", ["xgboost", "lightgbm"])
def test_a_release_that_was_not_tested_answers_alike_by_its_own_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, version: str
) -> None:
    library = pytest.importorskip(runtime)
    make = xgboost_file if runtime == "xgboost" else lightgbm_file
    path = make(tmp_path, "reg:squarederror" if runtime == "xgboost" else "regression", AMOUNT)
    row = X[:1].astype(float if runtime == "lightgbm" else np.float32)
    expected = asked(opened(runtime, path), row)
    monkeypatch.setattr(library, "__version__", version)
    for module, name in ((xgboost_dense, "Dense"), (lightgbm_row, "SingleRow")):
        monkeypatch.delattr(getattr(module, name), "__call__")
    assert np.array_equal(asked(opened(runtime, path), row), expected)


def test_categories_of_lightgbm_are_texts_and_one_never_seen_is_missing(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame = table()
    path = lightgbm_file(tmp_path, "regression", AMOUNT, frame, min_data_per_group=5)
    model = opened("lightgbm", path)
    assert model.inputs == tuple(
        Tensor(name, datatype, [])
        for name, datatype in (("amount", "FP64"), ("city", "BYTES"), ("size", "FP64"))
    )
    cities = texts(*(city.encode() for city in CITIES))
    cities[:2] = [b"Oslo", b""]
    frame.loc[:1, "city"] = None
    right = lightgbm.Booster(model_file=path).predict(frame)
    found = asked(model, X[:, 3].astype(float), cities, KIND.astype(float))[0]
    assert np.array_equal(found, right)


def test_categories_of_catboost_are_texts_and_one_never_seen_is_like_any_other(
    tmp_path: Path,
) -> None:
    catboost = pytest.importorskip("catboost")
    frame = table().astype({"city": str, "size": str})
    path = catboost_file(tmp_path, "RMSE", AMOUNT, frame, cat_features=["city", "size"])
    model = opened("catboost", path, answers=["y", "contributions"])
    assert model.inputs == tuple(
        Tensor(name, datatype, [])
        for name, datatype in (("amount", "FP32"), ("city", "BYTES"), ("size", "BYTES"))
    )
    frame.loc[:1, "city"] = ["Köln", ""]
    pool = catboost.Pool(frame, cat_features=["city", "size"])
    right = catboost.CatBoost().load_model(str(path))
    sent = [texts(*(value.encode() for value in frame[name])) for name in ("city", "size")]
    y, contributions = asked(model, X[:, 3], *sent)
    assert np.array_equal(y, right.predict(pool))
    assert np.array_equal(contributions, right.get_feature_importance(pool, type="ShapValues"))
    assert refused("catboost", path, columns="matrix").startswith("columns is matrix, but some")


def test_labels_of_catboost_are_those_of_its_file(tmp_path: Path) -> None:
    model = opened("catboost", catboost_file(tmp_path, "MultiClass", CITIES))
    assert model.outputs[0] == Tensor("label", "BYTES", [])
    assert np.mean(asked(model, X)[0] == CITIES) > 0.9


def test_labels_that_are_floats_are_served_as_such() -> None:
    trees = Trees(
        columns=[Column("a")],
        precision="FP32",
        classes=2,
        labels=[0.5, 2.0],
        prepared=lambda matrix: matrix,
        functions={"probabilities": lambda matrix: np.hstack([1 - matrix, matrix])},
    )
    model = served(Path("model"), trees, Options(max_batch_size=8, threads=1))
    assert model.outputs[0] == Tensor("label", "FP64", [])
    (label, _) = asked(model, np.array([[0.0], [1.0]], "f4"))
    assert label.tolist() == [0.5, 2.0]


def test_a_classifier_of_catboost_keeps_labels_that_are_floats(tmp_path: Path) -> None:
    model = opened("catboost", catboost_file(tmp_path, "Logloss", BINARY.astype(float)))
    assert model.outputs[0] == Tensor("label", "FP64", [])
    assert np.mean(asked(model, X)[0] == BINARY) > 0.9


def test_rounds_up_to_the_best_are_used_where_xgboost_looked_for_it(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    train, check = xgboost.DMatrix(X, AMOUNT), xgboost.DMatrix(X[:40], AMOUNT[:40] + 1)
    how = {"nthread": 1}
    stopped = xgboost.train(
        how, train, 60, evals=[(check, "v")], early_stopping_rounds=4, verbose_eval=False
    )
    stopped.save_model(tmp_path / "model.json")
    best = stopped.best_iteration + 1
    assert best < stopped.num_boosted_rounds()
    found = asked(opened("xgboost", tmp_path / "model.json"), X)[0]
    assert np.array_equal(found, stopped.inplace_predict(X, iteration_range=(0, best)))
    assert not np.array_equal(found, stopped.inplace_predict(X))


@pytest.mark.parametrize("booster", ["dart", "gblinear"])
def test_other_boosters_of_xgboost_answer_too(tmp_path: Path, booster: str) -> None:
    path = xgboost_file(tmp_path, "reg:squarederror", AMOUNT, np.nan_to_num(X), booster=booster)
    (found,) = asked(opened("xgboost", path), np.nan_to_num(X))
    assert np.corrcoef(found, AMOUNT)[0, 1] > 0.9


def test_classes_without_probabilities_are_labels_or_get_them_back(tmp_path: Path) -> None:
    hinge = opened("xgboost", xgboost_file(tmp_path, "binary:hinge", BINARY))
    assert hinge.outputs == (Tensor("label", "INT64", []),)
    assert np.mean(asked(hinge, X)[0] == BINARY) > 0.9
    soft = xgboost_file(tmp_path, "multi:softmax", KIND, num_class=3)
    label, probabilities = asked(opened("xgboost", soft), X)
    assert np.array_equal(label, by_xgboost(soft, "label"))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_a_border_of_catboosts_own_decides_its_labels(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost")
    path = catboost_file(tmp_path, "Logloss", BINARY)
    trained = catboost.CatBoostClassifier().load_model(str(path))
    trained.set_probability_threshold(0.9)
    trained.save_model(str(path))
    label, probabilities = asked(opened("catboost", path), X)
    assert np.array_equal(label, trained.predict(X))
    assert not np.array_equal(label, probabilities.argmax(axis=1))


def test_missing_values_are_as_the_library_has_them(tmp_path: Path) -> None:
    path = xgboost_file(tmp_path, "reg:squarederror", AMOUNT)
    nothing = np.full((2, 6), np.nan, "f4")
    right = pytest.importorskip("xgboost").Booster(model_file=path).inplace_predict(nothing)
    assert np.array_equal(asked(opened("xgboost", path), nothing)[0], right)


def spoilt(path: Path, *changes: tuple[bytes, bytes]) -> Path:
    content = path.read_bytes()
    for old, new in changes:
        assert old in content
        content = content.replace(old, new)
    path.write_bytes(content)
    return path


def as_json(path: Path) -> Path:
    booster = importlib.import_module("xgboost").Booster(model_file=path)
    booster.save_model(path.with_suffix(".json"))
    return path.with_suffix(".json")


def version_of(path: Path) -> bytes:
    numbers: Sequence[str] = importlib.import_module("xgboost").__version__.split(".")
    return b'"version":[' + ",".join(numbers).encode() + b"]"


def test_a_file_of_a_newer_xgboost_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = as_json(xgboost_file(tmp_path, "reg:squarederror", AMOUNT))
    newer = spoilt(path, (version_of(path), b'"version":[99,0,0]'))
    opened("xgboost", newer)
    assert "XGBoost 99.0.0 wrote it, which is newer than the" in caplog.text
    unknown = spoilt(newer, (b'"num_feature":"6"', b'"num_feature":"six"'))
    words = refused("xgboost", unknown)
    assert words.startswith("XGBoost cannot load it: ")
    assert "; XGBoost 99.0.0 wrote it, and " in words


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no XGBoost model; save one with Booster.save_model, as .ubj or .json"),
        (b"[1, 2]", "is no XGBoost model; save one with Booster.save_model, as .ubj or .json"),
        (b'{"a": 1}', "XGBoost cannot load it: "),
        (b'{"learner": {}}', "XGBoost cannot load it: "),
        (b'{"learner": ', "XGBoost cannot load it: "),
    ],
)
def test_a_json_file_that_is_no_xgboost_model_is_refused(
    tmp_path: Path, content: bytes, words: str
) -> None:
    pytest.importorskip("xgboost")
    path = tmp_path / "model.json"
    path.write_bytes(content)
    text = refused("xgboost", path)
    assert text.startswith(words)
    assert "[bt]" not in text


def test_a_text_of_lightgbm_in_another_format_or_not_whole_is_refused(tmp_path: Path) -> None:
    path = lightgbm_file(tmp_path, "regression", AMOUNT)
    text = path.read_bytes()
    for end in (b"\nend of parameters", b"\nend of trees", b"\nTree=7\n", b"\nTree=0\n"):
        path.write_bytes(text[: text.index(end)])
        assert refused("lightgbm", path) == "is not all of a LightGBM model, some of it is missing"
    path.write_bytes(text.replace(b"version=v4", b"version=v9"))
    assert refused("lightgbm", path) == "is of LightGBM's format v9, and known are v2, v3, v4"
    path.write_text("all kinds of words")
    assert refused("lightgbm", path).startswith("is no LightGBM model; save one with")


def test_a_catboost_file_that_is_none_or_not_whole_is_refused(tmp_path: Path) -> None:
    path = catboost_file(tmp_path, "RMSE", AMOUNT)
    path.write_bytes(path.read_bytes()[:200])
    assert refused("catboost", path).startswith(
        "is no whole CatBoost model: it ends at byte 200 of"
    )
    path.write_bytes(b"CBM1")
    assert refused("catboost", path) == "is no whole CatBoost model: it ends at byte 4 of 8"
    path.write_bytes(b"words")
    assert refused("catboost", path).startswith("is no CatBoost model; save one with save_model")


@EACH
def test_too_few_columns_are_an_error_of_that_request(tmp_path: Path, runtime: str) -> None:
    model = opened(runtime, made(runtime, tmp_path, 2))
    with pytest.raises(Exception, match="5"):
        asked(model, matrix(model)[:, :5].copy())
