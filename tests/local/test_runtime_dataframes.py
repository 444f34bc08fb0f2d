"""scikit-learn models fitted on DataFrames: an input for each column, and what it may hold."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from late import Late
from model_files import copied_model
from tiers import only

from ringbatch.engine.models.model import InvalidInput, Model, Options
from ringbatch.engine.runtimes.dataframes import answering
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import Tensor

ColumnTransformer = Late("sklearn.compose", "ColumnTransformer")
make_column_transformer = Late("sklearn.compose", "make_column_transformer")
HistGradientBoostingClassifier = Late("sklearn.ensemble", "HistGradientBoostingClassifier")
RandomForestClassifier = Late("sklearn.ensemble", "RandomForestClassifier")
CountVectorizer = Late("sklearn.feature_extraction.text", "CountVectorizer")
SimpleImputer = Late("sklearn.impute", "SimpleImputer")
LinearRegression = Late("sklearn.linear_model", "LinearRegression")
make_pipeline = Late("sklearn.pipeline", "make_pipeline")
make_union = Late("sklearn.pipeline", "make_union")
FunctionTransformer = Late("sklearn.preprocessing", "FunctionTransformer")
OneHotEncoder = Late("sklearn.preprocessing", "OneHotEncoder")
OrdinalEncoder = Late("sklearn.preprocessing", "OrdinalEncoder")
StandardScaler = Late("sklearn.preprocessing", "StandardScaler")
Cleaner = Late("cleaner", "Cleaner")
DataFrame = Late("pandas", "DataFrame")
to_datetime = Late("pandas", "to_datetime")
to_timedelta = Late("pandas", "to_timedelta")

ROWS = 200
RANDOM = np.random.default_rng(0)
KIND = RANDOM.integers(0, 3, ROWS)


@pytest.fixture(autouse=True)
def threads_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("pandas")
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    path = list(sys.path)
    yield
    sys.path[:] = path


def forest() -> Any:
    return RandomForestClassifier(5, random_state=0)


@cache
def table() -> Any:
    frame = DataFrame(
        {
            "id": np.arange(ROWS),
            "age": RANDOM.normal(40, 9, ROWS),
            "home city": np.array(["Bonn", "Köln", "Ulm"], dtype=object)[KIND],
            "note": np.array(["good", "bad bad", "fine thing"], dtype=object)[KIND],
            "class": KIND + 1,
        }
    )
    frame.loc[::9, "age"] = np.nan
    frame.loc[::11, "home city"] = np.nan
    return frame


@cache
def wanted() -> Any:
    return (KIND == 1) | (table()["age"] > 45)


def columns(unseen: str, model: Any = None) -> Any:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    cities = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown=unseen)
    )
    taken = ColumnTransformer(
        [
            ("numbers", numbers, ["age"]),
            ("cities", cities, ["home city"]),
            ("classes", OneHotEncoder(handle_unknown=unseen), ["class"]),
            ("words", CountVectorizer(), "note"),
        ]
    )
    return make_pipeline(taken, forest() if model is None else model)


def opened(folder: Path, estimator: Any, **more: Any) -> Model:
    path = folder / "model.joblib"
    joblib.dump(estimator, path)
    options = {"max_batch_size": 32, "threads": 1, "trust_pickle": True} | more
    return open_model("sklearn", path, Options(**options))


def sent(model: Model, frame: Any) -> list[Any]:
    """The columns of a table as they come from clients."""
    arrays = []
    for tensor in model.inputs:
        values = frame[tensor.name]
        if tensor.datatype.fixed:
            arrays.append(values.to_numpy(np.float64))
        else:
            texts = np.empty(len(values), dtype=object)
            texts[:] = [v.encode() if isinstance(v, str) else b"" for v in values.astype(object)]
            arrays.append(texts)
    return arrays


def with_text(arrays: list[Any], place: int, text: bytes) -> list[Any]:
    """The first row, with another text in one place."""
    first = [array[:1].copy() for array in arrays]
    first[place][0] = text
    return first


def assert_same(model: Model, estimator: Any, frame: Any) -> None:
    """Assert that the model's answers are the estimator's to the last bit, alone and in batches."""
    arrays = sent(model, frame)
    label, probabilities = model.predict(*arrays)
    assert np.array_equal(label, estimator.predict(frame))
    assert np.array_equal(probabilities, estimator.predict_proba(frame))
    for size in (1, 7):
        for start in range(0, 14, size):
            few = model.predict(*(array[start : start + size] for array in arrays))
            assert np.array_equal(few[1], probabilities[start : start + size])


def test_a_pipeline_takes_its_columns_by_name(tmp_path: Path) -> None:
    estimator = columns("ignore").fit(table(), wanted())
    model = opened(tmp_path, estimator)
    assert model.inputs == tuple(
        Tensor(name, datatype, [])
        for name, datatype in (
            ("age", "FP64"),
            ("home city", "BYTES"),
            ("note", "BYTES"),
            ("class", "FP64"),
        )
    )
    assert [(o.name, o.datatype.name, o.shape) for o in model.outputs] == [
        ("label", "BOOL", ()),
        ("probabilities", "FP64", (2,)),
    ]
    assert_same(model, estimator, table())


def test_an_unseen_category_is_the_fault_of_its_request(tmp_path: Path) -> None:
    model = opened(tmp_path, columns("error").fit(table(), wanted()))
    arrays = sent(model, table())
    with pytest.raises(InvalidInput, match=r"no answer: Found unknown categories \['Oslo'\]"):
        model.predict(*with_text(arrays, 1, b"Oslo"))
    with pytest.raises(InvalidInput, match="not UTF-8"):
        model.predict(*with_text(arrays, 1, b"\xff"))
    lenient = opened(tmp_path, columns("ignore").fit(table(), wanted()))
    assert lenient.predict(*with_text(arrays, 1, b"Oslo"))[1].shape == (1, 2)


def test_a_missing_number_that_the_model_does_not_take_is_too(tmp_path: Path) -> None:
    frame = table()[["class", "id"]]
    model = opened(tmp_path, LinearRegression().fit(frame, KIND))
    assert model.outputs == (Tensor("y", "FP64", []),)
    with pytest.raises(InvalidInput, match="no answer: Input X contains NaN"):
        model.predict(np.array([1.0]), np.array([np.nan]))


def test_failures_that_are_not_about_values_stay_failures() -> None:
    def broken(_: Any) -> Any:
        raise ValueError("shapes differ")

    with pytest.raises(ValueError, match="shapes differ"):
        answering(broken)(table())


def test_missing_texts_are_as_in_training(tmp_path: Path) -> None:
    for missing in (np.nan, None):
        frame = table()[["age", "home city"]].copy()
        frame["home city"] = frame["home city"].astype(object)
        frame.loc[::11, "home city"] = missing
        encoder = make_column_transformer((OneHotEncoder(), ["home city"]), ("drop", ["age"]))
        estimator = make_pipeline(encoder, forest()).fit(frame, wanted())
        model = opened(tmp_path, estimator)
        assert model.inputs == (Tensor("home city", "BYTES", []),)
        assert_same(model, estimator, frame)


def long(frame: Any) -> Any:
    return frame.map(len)


def years(frame: Any) -> Any:
    return frame.apply(lambda column: column.dt.year)


def doubled(frame: Any) -> Any:
    return frame * 2


def with_born() -> Any:
    born = to_datetime("2000-01-01") + to_timedelta(table()["id"] * 100, unit="D")
    return table()[["class", "note"]].assign(born=born)


@pytest.mark.parametrize(
    ("made", "column", "why"),
    [
        (
            lambda: FunctionTransformer(long),
            "note",
            'its column "note" goes into a FunctionTransformer',
        ),
        (
            lambda: FunctionTransformer(years),
            "born",
            'its column "born" goes into a FunctionTransformer',
        ),
        (Cleaner, "note", 'its column "note" goes into a Cleaner'),
        (
            lambda: make_pipeline(FunctionTransformer(long), StandardScaler()),
            "note",
            'its column "note" goes into a FunctionTransformer',
        ),
        (
            lambda: make_union(FunctionTransformer(long), Cleaner()),
            "note",
            'its column "note" goes into a Cleaner',
        ),
        (OneHotEncoder, "born", 'it has learned dates from its column "born"'),
    ],
    ids=["lengths", "years", "cleaner", "pipeline", "union", "dates"],
)
def test_a_column_that_cannot_be_served_is_refused_with_a_model_file_that_serves_it(
    tmp_path: Path, made: Callable[[], Any], column: str, why: str
) -> None:
    frame = with_born()[["class", column]]
    numbers = make_column_transformer((made(), [column]), remainder="passthrough")
    estimator = make_pipeline(numbers, forest()).fit(frame, wanted())
    with pytest.raises(StartupError, match=re.escape(why)) as caught:
        opened(tmp_path, estimator)
    text = str(caught.value)
    if column == "born":
        text = text.replace("# table", "table")
    own = copied_model(text, tmp_path)
    records = json.loads(frame.to_json(orient="records", date_format="iso"))
    assert own.predict(records) == estimator.predict(frame).tolist()


def test_a_column_that_nothing_tells_of_holds_numbers_if_these_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ringbatch.worker")
    numbers = make_column_transformer((FunctionTransformer(doubled), ["class"]))
    estimator = make_pipeline(numbers, forest()).fit(table()[["class"]], wanted())
    assert_same(opened(tmp_path, estimator), estimator, table()[["class"]])
    (message,) = caplog.messages
    assert 'its column "class" goes into a FunctionTransformer, which does not say' in message
    caplog.clear()
    plain = make_column_transformer(("passthrough", ["class"]), (StandardScaler(), ["id"]))
    opened(tmp_path, make_pipeline(plain, forest()).fit(table()[["class", "id"]], wanted()))
    assert not caplog.messages


def test_a_model_that_looks_for_names_takes_no_matrix(tmp_path: Path) -> None:
    estimator = columns("ignore").fit(table(), wanted())
    with pytest.raises(StartupError, match="looks for its columns by name; leave it out"):
        opened(tmp_path, estimator, columns="matrix")


ENCODERS: dict[str, Callable[[], Any]] = {
    "passthrough": lambda: "passthrough",
    "one-hot": OneHotEncoder,
    "ordinal": OrdinalEncoder,
}


@pytest.mark.parametrize(
    ("made", "kind", "missing"),
    only(
        {
            f"{name}-{kind}-{missing}": (made, kind, missing)
            for name, made in ENCODERS.items()
            for kind in ("bool", "number")
            for missing in (True, np.nan, None)
        },
        "passthrough-bool-True",
        "passthrough-number-nan",
        "one-hot-bool-None",
        "ordinal-bool-nan",
    ),
)
def test_columns_of_booleans_are_numbers(
    tmp_path: Path, made: Callable[[], Any], kind: str, missing: Any
) -> None:
    frame = table()[["class", "id"]].copy()
    frame["member"] = KIND == 1 if kind == "bool" else KIND
    if missing is not True:
        frame["member"] = frame["member"].astype(object)
        frame.loc[::7, "member"] = missing
    columns = make_column_transformer((made(), ["member"]), remainder="passthrough")
    model = HistGradientBoostingClassifier(max_iter=3)
    estimator = make_pipeline(columns, model).fit(frame, wanted())
    served = opened(tmp_path, estimator)
    assert [tensor.datatype.name for tensor in served.inputs] == ["FP64", "FP64", "FP64"]
    assert_same(served, estimator, frame)


def test_columns_of_pandas_categories_are_texts(tmp_path: Path) -> None:
    frame = table()[["age", "home city"]].astype({"home city": "category"})
    model = HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype")
    estimator = model.fit(frame, wanted())
    assert_same(opened(tmp_path, estimator), estimator, frame)


BOOSTERS = [
    pytest.param(module, name, more, id=module)
    for module, name, more in (
        ("xgboost", "XGBClassifier", {"enable_categorical": True, "n_estimators": 5}),
        ("lightgbm", "LGBMClassifier", {"verbose": -1, "n_estimators": 5}),
        (
            "catboost",
            "CatBoostClassifier",
            {"verbose": False, "iterations": 5, "allow_writing_files": False},
        ),
    )
]


@pytest.mark.parametrize(("module", "name", "more"), BOOSTERS)
def test_boosters_stand_in_pipelines(tmp_path: Path, module: str, name: str, more: Any) -> None:
    booster = getattr(pytest.importorskip(module), name)(**more)
    estimator = columns("ignore", booster).fit(table(), wanted().astype(int))
    assert_same(opened(tmp_path, estimator), estimator, table())


@pytest.mark.parametrize(("module", "name", "more"), BOOSTERS[:2])
def test_boosters_alone_take_texts_where_they_learned_from_categories(
    tmp_path: Path, module: str, name: str, more: Any
) -> None:
    booster = getattr(pytest.importorskip(module), name)(**more)
    frame = table()[["age", "home city"]].rename(columns={"home city": "city"})
    frame = frame.replace({"Köln": "Kiel"}).astype({"city": "category"})
    estimator = booster.fit(frame, wanted().astype(int))
    model = opened(tmp_path, estimator)
    assert [tensor.datatype.name for tensor in model.inputs] == ["FP64", "BYTES"]
    assert_same(model, estimator, frame)
    oslo = with_text(sent(model, frame), 1, b"Oslo")
    if module == "xgboost":
        with pytest.raises(InvalidInput, match="'Oslo', which is none of the categories"):
            model.predict(*oslo)
    else:
        without = with_text(sent(model, frame), 1, b"")
        assert np.array_equal(model.predict(*oslo)[1], model.predict(*without)[1])


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_names_that_lightgbm_made_up_for_an_array_are_none(tmp_path: Path) -> None:
    x = table()[["class", "id"]].to_numpy(float)
    estimator = RandomForestClassifier(3, random_state=0).fit(x, wanted())
    estimator.feature_names_in_ = np.array(["Column_0", "Column_1"], dtype=object)
    model = opened(tmp_path, estimator)
    assert model.inputs == (Tensor("x", "FP64", [2]),)
    assert np.array_equal(model.predict(x)[1], estimator.predict_proba(x))
    named = opened(tmp_path, estimator, columns="named")
    assert [tensor.name for tensor in named.inputs] == ["Column_0", "Column_1"]
    for names in (["Column_1", "Column_0"], ["Column_0", "age"]):
        estimator.feature_names_in_ = np.array(names, dtype=object)
        assert [tensor.name for tensor in opened(tmp_path, estimator).inputs] == names


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(("module", "name", "more"), BOOSTERS)
def test_boosters_fitted_on_an_array_take_one(
    tmp_path: Path, module: str, name: str, more: Any
) -> None:
    x = table()[["age", "class"]].to_numpy(float)
    estimator = getattr(pytest.importorskip(module), name)(**more).fit(x, wanted().astype(int))
    model = opened(tmp_path, estimator)
    assert [(tensor.name, tensor.shape) for tensor in model.inputs] == [("x", (2,))]
    assert np.array_equal(model.predict(x)[1], estimator.predict_proba(x))


def test_numbers_alone_may_be_one_matrix_again(tmp_path: Path) -> None:
    frame = table()[["class", "id"]]
    estimator = RandomForestClassifier(3, random_state=0).fit(frame, wanted())
    assert_same(opened(tmp_path, estimator), estimator, frame)
    estimator = make_pipeline(OrdinalEncoder(), forest()).fit(frame.to_numpy(), wanted())
    assert opened(tmp_path, estimator).inputs == (Tensor("x", "FP64", [2]),)
    with pytest.raises(StartupError, match="columns is named, but the model was not fitted on a"):
        opened(tmp_path, estimator, columns="named")


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_model_fitted_on_a_dataframe_takes_a_matrix_where_that_is_wanted(tmp_path: Path) -> None:
    frame = table()[["class", "id"]]
    estimator = RandomForestClassifier(3, random_state=0).fit(frame, wanted())
    model = opened(tmp_path, estimator, columns="matrix")
    assert model.inputs == (Tensor("x", "FP64", [2]),)
    assert np.array_equal(model.predict(frame.to_numpy(float))[1], estimator.predict_proba(frame))
