"""scikit-learn models: inputs and outputs, trusted types, and errors for bad files.

Tests engine/models/python_file_hint.py.
"""

import importlib
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from late import Late
from model_files import copied_model, linear_estimator
from tiers import only

from ringbatch.engine.models.model import InvalidInput, Model, Options
from ringbatch.engine.runtimes.argmax_labels import RANKED
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import Tensor

KMeans = Late("sklearn.cluster", "KMeans")
ColumnTransformer = Late("sklearn.compose", "ColumnTransformer")
PCA = Late("sklearn.decomposition", "PCA")
RandomForestClassifier = Late("sklearn.ensemble", "RandomForestClassifier")
CountVectorizer = Late("sklearn.feature_extraction.text", "CountVectorizer")
LinearRegression = Late("sklearn.linear_model", "LinearRegression")
LogisticRegression = Late("sklearn.linear_model", "LogisticRegression")
Ridge = Late("sklearn.linear_model", "Ridge")
OneVsRestClassifier = Late("sklearn.multiclass", "OneVsRestClassifier")
MultiOutputClassifier = Late("sklearn.multioutput", "MultiOutputClassifier")
BernoulliNB = Late("sklearn.naive_bayes", "BernoulliNB")
make_pipeline = Late("sklearn.pipeline", "make_pipeline")
FunctionTransformer = Late("sklearn.preprocessing", "FunctionTransformer")
OneHotEncoder = Late("sklearn.preprocessing", "OneHotEncoder")
StandardScaler = Late("sklearn.preprocessing", "StandardScaler")
SVC = Late("sklearn.svm", "SVC")
DecisionTreeClassifier = Late("sklearn.tree", "DecisionTreeClassifier")
all_estimators = Late("sklearn.utils", "all_estimators")

X = np.random.default_rng(0).normal(size=(40, 4))
BINARY = (X[:, 0] > 0).astype(np.int64)
NAMES = np.array(["calm", "glad", "stormy"])[np.digitize(X[:, 0], [-0.5, 0.5])]
TREE = "sklearn.tree._tree.Tree"


@pytest.fixture(autouse=True)
def process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("beside"):
            del sys.modules[name]


def opened(path: Path, **more: Any) -> Model:
    return open_model("sklearn", path, Options(**{"max_batch_size": 32, "threads": 1} | more))


def skops_io() -> Any:
    # It takes half a second to import, and every process of a run collects this file.
    return importlib.import_module("skops.io")


def dumped(folder: Path, estimator: Any, **more: Any) -> Model:
    path = folder / "model.skops"
    skops_io().dump(estimator, path)
    return opened(path, **more)


def refused(path: Path, **more: Any) -> str:
    with pytest.raises(StartupError) as caught:
        opened(path, **more)
    text, _, copied = str(caught.value).partition("\n")
    assert text.startswith(f"{path}: ")
    if copied:
        text, asked, _ = text.partition("; write a model.py beside it, such as this one")
        assert asked
    return text.removeprefix(f"{path}: ")


def refused_estimator(folder: Path, estimator: Any, **more: Any) -> str:
    path = folder / "model.joblib"
    joblib.dump(estimator, path)
    return refused(path, trust_pickle=True, **more)


def unpickled(folder: Path, estimator: Any, **more: Any) -> Model:
    path = folder / "model.joblib"
    joblib.dump(estimator, path)
    return opened(path, trust_pickle=True, **more)


PROBABILITIES = Tensor("probabilities", "FP64", [2], ["0", "1"])


def test_a_classifier_returns_labels_and_probabilities(tmp_path: Path) -> None:
    estimator = LogisticRegression().fit(X, BINARY)
    model = dumped(tmp_path, estimator)
    assert model.inputs == (Tensor("x", "FP64", [4]),)
    assert model.outputs == (Tensor("label", "INT64", []), PROBABILITIES)
    label, probabilities = model.predict(X[:5])
    assert np.array_equal(label, estimator.predict(X[:5]))
    assert np.array_equal(probabilities, estimator.predict_proba(X[:5]))


def test_labels_may_be_texts_and_a_pipeline_is_a_model_like_any_other(tmp_path: Path) -> None:
    estimator = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, NAMES)
    model = dumped(tmp_path, estimator)
    names = sorted({*NAMES.tolist()})
    probabilities = Tensor("probabilities", "FP64", [3], names)
    assert model.outputs == (Tensor("label", "BYTES", []), probabilities)
    label, _ = model.predict(X[:5])
    assert np.array_equal(label, estimator.predict(X[:5]))


def test_a_classifier_without_probabilities_returns_labels_alone(tmp_path: Path) -> None:
    estimator = SVC().fit(X, BINARY == 1)
    model = dumped(tmp_path, estimator)
    assert model.outputs == (Tensor("label", "BOOL", []),)
    assert np.array_equal(model.predict(X[:5]), estimator.predict(X[:5]))


def test_several_labels_for_a_row_have_their_own_dimension(tmp_path: Path) -> None:
    both = np.stack([BINARY, 1 - BINARY], axis=1)
    model = dumped(tmp_path, OneVsRestClassifier(LogisticRegression()).fit(X, both))
    assert model.outputs == (Tensor("label", "INT64", [2]), PROBABILITIES)
    label, _ = model.predict(X[:4])
    assert label.tolist() == both[:4].tolist()


@pytest.mark.parametrize("name", sorted(RANKED))
@pytest.mark.parametrize(
    ("y", "in_a_pipeline"),
    only(
        {
            "three": (NAMES, False),
            "two classes": (BINARY, False),
            "three, in a pipeline": (NAMES, True),
            "two classes, in a pipeline": (BINARY, True),
        },
        "three",
    ),
)
def test_labels_out_of_probabilities_are_those_that_the_model_would_say(
    tmp_path: Path, name: str, y: Any, in_a_pipeline: bool
) -> None:
    kind = dict(all_estimators(type_filter="classifier"))[name]
    few = {"n_estimators": 5, "max_depth": 2}
    if name.startswith("Hist"):
        few["max_iter"] = 5
    last = kind(**{key: few[key] for key in few.keys() & kind().get_params().keys()})
    estimator = make_pipeline(StandardScaler(), last) if in_a_pipeline else last
    # Rounded, so that more than one row falls between two classes.
    estimator.fit(X.round(), y)
    model = unpickled(tmp_path, estimator)
    for rows in np.random.default_rng(1).normal(size=(10, 3, 4)).round():
        label, probabilities = model.predict(rows)
        assert np.array_equal(label, estimator.predict(rows))
        assert np.array_equal(probabilities, estimator.predict_proba(rows))


def test_a_model_asked_for_labels_and_probabilities_runs_once_where_a_class_is_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.array([[0.0], [0.0], [1.0], [1.0]])
    estimator = DecisionTreeClassifier().fit(x, [0, 1, 1, 1])
    runs = []
    kind = DecisionTreeClassifier.real
    predict = kind.predict

    def counted(*args: Any) -> Any:
        runs.append("label")
        return predict(*args)

    monkeypatch.setattr(kind, "predict", counted)
    model = unpickled(tmp_path, estimator)
    runs.clear()
    assert model.predict(np.ones((1, 1)))[0].tolist() == [1]
    assert runs == []
    for unclear in ([[0.0]], [[0.0], [1.0]]):
        assert model.predict(np.array(unclear))[0].tolist() == [0, 1][: len(unclear)]
    assert runs == ["label", "label"]


@pytest.mark.parametrize(
    ("answers", "names"),
    [
        (["label"], ["label"]),
        (["probabilities"], ["probabilities"]),
        (["probabilities", "label"], ["probabilities", "label"]),
    ],
)
def test_a_model_returns_the_outputs_named_by_answers(
    tmp_path: Path, answers: list[str], names: list[str]
) -> None:
    estimator = LogisticRegression().fit(X, BINARY)
    model = unpickled(tmp_path, estimator, answers=answers)
    assert [one.name for one in model.outputs] == names
    right = {"label": estimator.predict(X), "probabilities": estimator.predict_proba(X)}
    found = model.predict(X)
    for name, array in zip(names, [found] if len(names) == 1 else found, strict=True):
        assert np.array_equal(array, right[name])


@pytest.mark.parametrize(
    ("kind", "answer", "words"),
    [
        (SVC, "probabilities", 'answers has "probabilities", but this model has label'),
        (Ridge, "label", 'answers has "label", but this model has y'),
        (
            LogisticRegression,
            "margins",
            'answers has "margins", but this model has label and probabilities',
        ),
    ],
)
def test_answers_that_a_model_does_not_have_are_refused(
    tmp_path: Path, kind: Any, answer: str, words: str
) -> None:
    assert refused_estimator(tmp_path, kind().fit(X, BINARY), answers=[answer]) == words


@pytest.mark.parametrize(
    ("fitted", "y"),
    [
        (lambda: Ridge().fit(X, X[:, 0]), Tensor("y", "FP64", [])),
        (lambda: Ridge().fit(X, X[:, :3]), Tensor("y", "FP64", [3])),
        (lambda: KMeans(2, n_init=1, random_state=0).fit(X), Tensor("y", "INT64", [])),
    ],
)
def test_a_regressor_returns_y_in_its_own_shape(
    tmp_path: Path, fitted: Callable[[], Any], y: Tensor
) -> None:
    estimator = fitted()
    model = dumped(tmp_path, estimator)
    assert model.outputs == (y,)
    assert np.array_equal(model.predict(X[:5]), estimator.predict(X[:5]))


@pytest.mark.parametrize(("dtype", "datatype"), [("f4", "FP32"), ("f8", "FP64")])
def test_the_input_has_the_precision_in_which_it_has_learned(
    tmp_path: Path, dtype: str, datatype: str
) -> None:
    x = X.astype(dtype)
    for estimator in (LinearRegression(), make_pipeline(FunctionTransformer(), Ridge())):
        model = dumped(tmp_path, estimator.fit(x, x[:, 0]))
        assert model.inputs == (Tensor("x", datatype, [4]),)
        assert model.outputs == (Tensor("y", datatype, []),)


def test_a_pipeline_that_begins_with_a_vectorizer_takes_texts(tmp_path: Path) -> None:
    texts = ["good good", "bad", "bad thing", "good thing"]
    estimator = make_pipeline(CountVectorizer(), BernoulliNB()).fit(texts, [1, 0, 0, 1])
    model = dumped(tmp_path, estimator)
    assert model.inputs == (Tensor("x", "BYTES", []),)
    x = np.empty(2, dtype=object)
    x[:] = [b"good", "schläft bad".encode()]
    label, _ = model.predict(x)
    assert label.tolist() == [1, 0]
    x[1] = b"\xff"
    with pytest.raises(InvalidInput, match="'x' holds bytes that are not UTF-8 text"):
        model.predict(x)


def test_a_model_that_has_no_answer_for_zeros_is_taken_to_be_as_most_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x = np.array([[1.0], [2.0], [1.0], [2.0]])
    encoder = ColumnTransformer([("kind", OneHotEncoder(), [0])])
    estimator = make_pipeline(encoder, LogisticRegression()).fit(x, [0, 1, 0, 1])
    model = dumped(tmp_path, estimator)
    assert model.outputs == (Tensor("label", "INT64", []), PROBABILITIES)
    assert "so the shape of its answers is taken to be the usual one" in caplog.text
    label, _ = model.predict(x)
    assert label.tolist() == [0, 1, 0, 1]


def test_types_beyond_the_known_ones_are_listed_as_the_setting_wants_them(tmp_path: Path) -> None:
    path = tmp_path / "forest.skops"
    skops_io().dump(RandomForestClassifier(2, random_state=0).fit(X, BINARY), path)
    unknown = skops_io().get_untrusted_types(file=path)
    if TREE not in unknown:
        pytest.skip("this skops trusts trees by itself")
    assert refused(path) == (
        "holds types that are not known to be safe; if you trust where the file comes from, "
        f'allow them with trusted_types = ["{TREE}"]'
    )
    assert refused(path, trusted_types=["some.other.Type"]) == refused(path)
    label, _ = opened(path, trusted_types=["some.other.Type", TREE]).predict(X[:3])
    assert label.shape == (3,)


BESIDE = """
from pathlib import Path
def halved(x):
    Path(__file__).with_name("was_run").touch()
    return x / 2
"""


@pytest.mark.parametrize("ending", [".pkl", ".joblib", ".bin"])
def test_a_pickle_is_read_only_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    (tmp_path / "beside_the_model.py").write_text(BESIDE)
    path = tmp_path / f"model{ending}"
    with monkeypatch.context() as patched:
        patched.syspath_prepend(str(tmp_path))
        halved = importlib.import_module("beside_the_model").halved
        estimator = make_pipeline(FunctionTransformer(halved), LinearRegression())
        joblib.dump(estimator.fit(X, X[:, 0]), path)
        del sys.modules["beside_the_model"]
    (tmp_path / "was_run").unlink()
    assert refused(path) == (
        "a pickle or joblib file runs code while it is read; if you trust where it comes from, "
        "set trust_pickle = true, else save the model as a .skops file"
    )
    assert "beside_the_model" not in sys.modules
    model = opened(path, trust_pickle=True)
    np.testing.assert_allclose(model.predict(X), X[:, 0])
    assert (tmp_path / "was_run").exists()
    assert sys.path[-1] == str(tmp_path)


def test_a_skops_file_is_known_by_its_content_too(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    skops_io().dump(linear_estimator(), path)
    assert opened(path).outputs == (Tensor("y", "FP32", [2]),)


def test_a_zip_archive_that_is_no_skops_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.skops"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    assert refused(path).startswith("it cannot be read as a skops file: KeyError: ")


def test_a_spoilt_pickle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(b"no pickle")
    assert refused(path, trust_pickle=True).startswith(
        "it cannot be read as a pickle or joblib file: "
    )


def many() -> Any:
    both = np.stack([BINARY, BINARY], axis=1)
    return MultiOutputClassifier(LogisticRegression()).fit(X, both)


def mixed() -> Any:
    estimator = LogisticRegression().fit(X, BINARY)
    estimator.classes_ = np.array([1, "one"], dtype=object)
    return estimator


def featureless() -> Any:
    estimator = LinearRegression().fit(X, X[:, 0])
    del estimator.n_features_in_
    return estimator


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "no-model": (lambda: {"a": 1}, "holds a dict, but it must hold a model with a method predict"),
    "nothing-to-predict": (
        lambda: PCA(2).fit(X),
        "holds a PCA, but it must hold a model with a method predict",
    ),
    "no-number-of-features": (
        featureless,
        "the LinearRegression does not say how many features it takes (n_features_in_)",
    ),
}


@pytest.mark.parametrize(("made", "words"), BAD.values(), ids=BAD)
def test_an_unservable_estimator_is_refused_in_words(
    tmp_path: Path, made: Callable[[], Any], words: str
) -> None:
    assert refused_estimator(tmp_path, made()) == words


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (many, "it predicts 2 labels at once"),
        (mixed, "its labels (classes_) are neither all numbers nor all texts"),
    ],
)
@pytest.mark.parametrize("ending", ["joblib", "skops"])
def test_an_estimator_that_needs_a_model_file_is_refused_with_one(
    tmp_path: Path, made: Callable[[], Any], words: str, ending: str
) -> None:
    estimator = made()
    path = tmp_path / f'a "model".{ending}'
    (joblib if ending == "joblib" else skops_io()).dump(estimator, path)
    more = {"trust_pickle": True} if ending == "joblib" else {"trusted_types": ["a.Type"]}
    assert refused(path, **more) == words
    with pytest.raises(StartupError) as caught:
        opened(path, **more)
    own = copied_model(str(caught.value), tmp_path)
    assert own.predict(X[:5].tolist()) == estimator.predict(X[:5]).tolist()


def test_a_model_that_was_never_fitted_is_refused(tmp_path: Path) -> None:
    words = refused_estimator(tmp_path, LogisticRegression())
    assert words.startswith("NotFittedError: This LogisticRegression instance is not fitted yet")


def test_a_model_without_batches_is_refused(tmp_path: Path) -> None:
    assert refused_estimator(tmp_path, mixed(), max_batch_size=0) == (
        "max_batch_size is 0, but a scikit-learn model takes batches; set 1 or more"
    )


def test_all_cpus_of_a_model_are_the_threads_of_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT")
    dumped(tmp_path, linear_estimator(), threads=1)
    assert os.environ["LOKY_MAX_CPU_COUNT"] == "1"
    assert joblib.effective_n_jobs(-1) == 1
