"""Models of every kind of file, served side by side: the same requests get the same answers."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from dev_shm import takes
from late import Late
from model_files import (
    EVERY,
    LINEAR,
    ROWS,
    expected,
    graph,
    identity,
    installed,
    linear_onnx,
    signature,
    written,
)
from onnx import TensorProto
from serve.client import Connection, Response, fast, instances, request
from serve.server import SMALL, Server, Start
from tiers import exhaustive

pytestmark = takes(20)

LogisticRegression = Late("sklearn.linear_model", "LogisticRegression")
StandardScaler = Late("sklearn.preprocessing", "StandardScaler")
make_pipeline = Late("sklearn.pipeline", "make_pipeline")

CAP = 4
HELD = {"policy": "fixed", "max_batch_size": CAP, "max_latency_ms": 60_000}
"""A batch that is not full would wait longer than any test."""
HEADER = "Inference-Header-Content-Length"
TABLE = np.array([5, 6, 7], np.float32)


@pytest.fixture(scope="module")
def classifier() -> Any:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    kinds = np.where(rows.sum(axis=1) > 0, "süß", "bitter")
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, kinds)


@pytest.fixture(scope="module")
def server(
    start_for_module: Start, tmp_path_factory: pytest.TempPathFactory, classifier: Any
) -> Server:
    folder = tmp_path_factory.mktemp("models")
    models: dict[str, dict[str, Any]] = {
        runtime: {"path": str(written(folder, runtime)), **HELD}
        for runtime in filter(installed, LINEAR)
    }
    joblib.dump(classifier, folder / "taste.joblib")
    (folder / "text.bin").write_bytes(identity(TensorProto.STRING, ["n", 2]))
    (folder / "table.onnx").write_bytes(
        graph(
            {"i": (TensorProto.INT64, ["n"])},
            {"y": (TensorProto.FLOAT, ["n"])},
            [("Gather", ["table", "i"], ["y"])],
            {"table": TABLE},
        )
    )
    models["taste"] = {"path": str(folder / "taste.joblib"), "trust_pickle": True}
    models["text"] = {"path": str(folder / "text.bin"), "runtime": "onnx"}
    models["table"] = {"path": str(folder / "table.onnx"), **HELD}
    (folder / "fixed.onnx").write_bytes(linear_onnx(rows=1))
    fixed = {"path": str(folder / "fixed.onnx")}
    models |= {"single": fixed | {"max_batch_size": 1}, "whole": fixed | {"max_batch_size": 0}}
    return start_for_module(models)


def ask(server: Server, *requests: bytes) -> list[Response]:
    with Connection(server.port) as connection:
        return [connection.ask(one) for one in requests]


def ask_at_once(server: Server, *requests: bytes) -> list[Response]:
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.port)) for _ in requests]
        for connection, one in zip(connections, requests, strict=True):
            connection.send(one)
        return [connection.receive() for connection in connections]


def infer(model: str, name: str, datatype: str, array: Any) -> bytes:
    entry = {"name": name, "shape": list(np.shape(array)), "datatype": datatype, "data": array}
    body = json.dumps({"inputs": [entry]}).encode()
    return request(f"/v2/models/{model}/infer", body)


def infer_binary(model: str, name: str, datatype: str, shape: Sequence[int], data: bytes) -> bytes:
    size = {"binary_data_size": len(data)}
    entry = {"name": name, "shape": shape, "datatype": datatype, "parameters": size}
    text = json.dumps({"inputs": [entry]}).encode()
    headers = {HEADER: str(len(text))}
    return request(f"/v2/models/{model}/infer", text + data, headers=headers)


def first_output(answer: Response) -> Any:
    assert answer.status == 200, answer.body
    output = answer.json["outputs"][0]
    return np.array(output["data"]).reshape(output["shape"])


@EVERY
def test_the_metadata_are_those_of_the_file_and_name_its_runtime(
    server: Server, runtime: str
) -> None:
    (takes,), (gives,) = signature(runtime)
    (answer,) = ask(server, request(f"/v2/models/{runtime}", method="GET"))
    assert answer.json == {
        "name": runtime,
        "versions": ["1"],
        "platform": runtime,
        "inputs": [{"name": "x", "datatype": takes.datatype.name, "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": gives.datatype.name, "shape": [-1, 2]}],
    }


@EVERY
def test_requests_of_both_protocols_share_a_batch_and_get_their_own_rows(
    server: Server, runtime: str
) -> None:
    one, two, three = ROWS[:1], ROWS[1:2], ROWS[2:4]
    kind = signature(runtime)[0][0].datatype
    v1, v2, binary = ask_at_once(
        server,
        fast(runtime, instances(*one.tolist())),
        infer(runtime, "x", kind.name, two.tolist()),
        infer_binary(runtime, "x", kind.name, three.shape, three.astype(kind.numpy).tobytes()),
    )
    batches = {v1.json["batchId"], v2.headers["x-batch-id"], binary.headers["x-batch-id"]}
    assert len(batches) == 1
    np.testing.assert_allclose(v1.json["predictions"], expected(one), rtol=1e-6)
    np.testing.assert_allclose(first_output(v2), expected(two), rtol=1e-6)
    np.testing.assert_allclose(first_output(binary), expected(three), rtol=1e-6)


@EVERY
def test_a_request_of_more_than_a_batch_is_answered_whole(server: Server, runtime: str) -> None:
    rows = np.concatenate([ROWS, ROWS[:1]])
    (answer,) = ask(server, fast(runtime, instances(*rows.tolist())))
    np.testing.assert_allclose(answer.json["predictions"], expected(rows), rtol=1e-6)


@EVERY
def test_inputs_that_do_not_fit_the_signature_are_refused(server: Server, runtime: str) -> None:
    row = [[1.0, 2.0, 3.0]]
    wrong = ask(
        server,
        fast(runtime, instances([1, 2])),
        fast(runtime, instances(["a", "b", "c"])),
        infer(runtime, "x", "FP32", [[1.0, 2.0]]),
        infer(runtime, "x", "INT64", [[1, 2, 3]]),
        infer(runtime, "", "FP32", row),
        infer_binary(runtime, "x", "FP32", (1, 3), b"\0" * 11),
    )
    assert [answer.status for answer in wrong] == [400] * len(wrong)
    assert all(answer.error for answer in wrong)
    (good,) = ask(server, fast(runtime, instances(*row * CAP)))
    assert good.status == 200


def test_an_error_of_the_session_is_the_failure_of_the_bad_request_alone(server: Server) -> None:
    answers = ask_at_once(server, *(infer("table", "i", "INT64", [i]) for i in (0, 1, 99, 2)))
    assert [answer.status for answer in answers] == [200, 200, 500, 200]
    found = [first_output(answer).item() for answer in answers if answer.status == 200]
    assert found == TABLE.tolist()
    assert answers[2].error.startswith("model 'table' raised InvalidArgument; ")


def test_texts_go_through_a_graph_of_strings(server: Server) -> None:
    texts = ["süß", "日本 🙂"]
    undecodable = b"\x01\0\0\0a\x01\0\0\0\xff"
    v1, v2, refused = ask(
        server,
        fast("text", instances(texts)),
        infer("text", "x", "BYTES", [texts]),
        infer_binary("text", "x", "BYTES", (1, 2), undecodable),
    )
    assert v1.json["predictions"] == [texts]
    assert first_output(v2).tolist() == [texts]
    assert (refused.status, refused.error) == (400, "input 'x' holds bytes that are not UTF-8 text")


def test_a_classifier_answers_with_its_label_and_probabilities(
    server: Server, classifier: Any
) -> None:
    rows = ROWS.astype(float) - 2
    v1, v2 = ask(
        server,
        fast("taste", instances(*rows.tolist())),
        infer("taste", "x", "FP64", rows.tolist()),
    )
    labels, probabilities = classifier.predict(rows), classifier.predict_proba(rows)
    assert [row["label"] for row in v1.json["predictions"]] == labels.tolist()
    assert [row["probabilities"] for row in v1.json["predictions"]] == probabilities.tolist()
    assert [output["name"] for output in v2.json["outputs"]] == ["label", "probabilities"]
    assert first_output(v2).tolist() == labels.tolist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fixed.onnx").write_bytes(linear_onnx(rows=1))
    (tmp_path / "spoilt.onnx").write_bytes(linear_onnx()[:99])
    (tmp_path / "model.pkl").write_bytes(b"no matter what")
    (tmp_path / "model.h5").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            "spoilt.onnx",
            "{here}/spoilt.onnx: onnxruntime cannot load it: InvalidProtobuf: ",
            marks=exhaustive,
        ),
        pytest.param(
            "fixed.onnx",
            "{here}/fixed.onnx: input 'x' has a first dimension of 1, but --max-batch-size is 32; ",
            marks=exhaustive,
        ),
        ("model.pkl", "{here}/model.pkl: a pickle or joblib file runs code while it is read; "),
        pytest.param(
            "model.h5",
            'MODEL: found "model.h5", but it must be a file whose ending says ',
            marks=exhaustive,
        ),
    ],
)
def test_a_start_that_fails_says_why_in_one_line(folder: Path, arguments: str, words: str) -> None:
    assert check_error(folder, *arguments.split()).startswith(words.format(here=folder))


@exhaustive
def test_a_start_without_the_package_says_how_to_install_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "stub").mkdir()
    raising = "raise ModuleNotFoundError('not here', name='onnxruntime')\n"
    (folder / "stub" / "onnxruntime.py").write_text(raising)
    monkeypatch.setenv("PYTHONPATH", str(folder / "stub"))
    assert check_error(folder, "fixed.onnx") == (
        f"{folder}/fixed.onnx: the runtime onnx needs the module onnxruntime, which is not "
        "installed; pip install 'ringbatch[onnx]', or in a clone '.[onnx]'"
    )


def check_error(folder: Path, *arguments: str) -> str:
    """The only line that a start which fails says."""
    server = Server(folder, *arguments, *SMALL, "--port", "0")
    assert server.process.wait() == 2
    (line,) = [text for text in server.stderr.splitlines() if text.startswith("ringbatch: ")]
    assert "Traceback" not in server.stderr
    assert server.stdout == ""
    assert server.gone()
    return line.removeprefix("ringbatch: ")


def test_a_fixed_batch_dimension_is_served_one_by_one_or_as_it_is(server: Server) -> None:
    answers = [expected(ROWS[:1]).tolist()[0], expected(ROWS[1:2]).tolist()[0]]
    row, other = ROWS[:2].tolist()
    single, whole, v2 = ask(
        server,
        fast("single", instances(row, other)),
        fast("whole", instances([row], [other])),
        infer("whole", "x", "FP32", [other]),
    )
    assert single.json["predictions"] == answers
    assert whole.json["predictions"] == [[answers[0]], [answers[1]]]
    assert first_output(v2).tolist() == [answers[1]]
