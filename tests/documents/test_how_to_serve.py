"""How-to pages that serve models: their files are written and their commands run, to the letter."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from documents.commands import printed, serving, write
from documents.pages import README, example, output_after, prose
from serve.client import Connection, request
from serve.server import SMALL, Server
from tiers import exhaustive

from ringbatch.shm.shm_objects import remove_dead_engines

PYTHON: Final = "docs/how-to/serve-python.md"
ONNX: Final = "docs/how-to/serve-onnx.md"
SKLEARN: Final = "docs/how-to/serve-scikit-learn.md"
CHAIN: Final = "docs/how-to/serve-a-chain.md"
ROUTES: Final = "docs/how-to/add-routes.md"


def predictions(answer: str) -> Any:
    return json.loads(answer)["predictions"]


def test_the_python_file_answers_as_the_page_shows(tmp_path: Path) -> None:
    write(tmp_path, "bright.py", example(PYTHON, "bright.py"))
    with serving(tmp_path, example(PYTHON, "serve")) as server:
        answer = predictions(printed(example(PYTHON, "curl"), tmp_path, server))
        assert answer == predictions(output_after(PYTHON, "curl"))
        bad = b'{"instances": [{"pixels": [null, 1]}]}'
        with Connection(server.port) as connection:
            assert connection.ask(request("/v1/models/bright:predict", bad)).status == 400


@exhaustive
def test_the_python_file_passes_its_check(tmp_path: Path) -> None:
    write(tmp_path, "bright.py", example(PYTHON, "bright.py"))
    assert "bright" in printed(example(PYTHON, "check"), tmp_path)


@exhaustive
def test_a_python_file_answers_any_json(tmp_path: Path) -> None:
    write(tmp_path, "words.py", example(PYTHON, "words.py"))
    with serving(tmp_path, example(PYTHON, "words")) as server:
        assert predictions(printed(example(PYTHON, "words-curl"), tmp_path, server)) == [3]


@exhaustive
def test_a_python_file_reads_a_header(tmp_path: Path) -> None:
    write(tmp_path, "greet.py", example(PYTHON, "greet.py"))
    write(tmp_path, "greet.toml", example(PYTHON, "greet.toml"))
    with serving(tmp_path, example(PYTHON, "greet")) as server:
        answer = predictions(printed(example(PYTHON, "greet-curl"), tmp_path, server))
        with Connection(server.port) as connection:
            plain = connection.ask(request("/v1/models/greet:predict", b'{"instances": [1]}'))
    assert answer == predictions(output_after(PYTHON, "greet-curl")) == ["zoe: 1a"]
    assert plain.json["predictions"] == ["nobody: "]


BESIDE: Final = """
import logging
import numpy as np
import beside
from ringbatch.engine import Tensor

inputs = [Tensor("x", "BYTES", [-1])]
outputs = [Tensor("y", "BYTES", [-1])]


def predict(x):
    logging.getLogger("mine").info("%s rows of %s", *x.shape)
    return np.concatenate([x, [[beside.MARK]] * len(x)], axis=1)
"""


def test_a_model_file_has_sizes_modules_logging_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(BESIDE)
    (tmp_path / "beside.py").write_text(r'MARK = b"\xff"')
    assert '`{"b64": "..."}`' in prose(PYTHON)
    server = Server(tmp_path, "model.py", "--name", "mine", *SMALL, "--port", "0")
    try:
        server.wait_ready()
        with Connection(server.port) as connection:
            for row in (["a"], [{"b64": "/w=="}, "b"]):
                body = json.dumps({"instances": [row, row]}).encode()
                answer = connection.ask(request("/v1/models/mine:predict", body))
                answered = [*row, {"b64": "/w=="}]
                assert answer.json["predictions"] == [answered, answered], answer.body
        assert "2 rows of 1" in server.stderr
    finally:
        server.kill()
        remove_dead_engines()


@exhaustive
def test_the_onnx_model_is_exported_and_answers(tmp_path: Path) -> None:
    write(tmp_path, "iris.py", example(ONNX, "iris.py"))
    printed(example(ONNX, "export"), tmp_path)
    with serving(tmp_path, example(ONNX, "serve")) as server:
        (row,) = predictions(printed(example(ONNX, "curl"), tmp_path, server))
    (shown,) = predictions(output_after(ONNX, "curl"))
    assert row["label"] == shown["label"] == 0
    assert row["probabilities"] == pytest.approx(shown["probabilities"], abs=0.01)


@exhaustive
def test_the_pipeline_is_saved_and_answers(tmp_path: Path) -> None:
    write(tmp_path, "table.py", example(SKLEARN, "table.py"))
    printed(example(SKLEARN, "fit"), tmp_path)
    with serving(tmp_path, example(SKLEARN, "serve")) as server:
        (row,) = predictions(printed(example(SKLEARN, "curl"), tmp_path, server))
        unknown = b'{"instances": [{"age": 70, "city": "Oslo"}]}'
        with Connection(server.port) as connection:
            refused = connection.ask(request("/v1/models/table:predict", unknown))
    (shown,) = predictions(output_after(SKLEARN, "curl"))
    assert row["label"] == shown["label"] == 1
    assert row["probabilities"] == pytest.approx(shown["probabilities"], abs=0.01)
    assert refused.status == 400
    assert "Found unknown categories ['Oslo']" in refused.error


@exhaustive
def test_a_pickled_pipeline_is_served_where_it_is_trusted(tmp_path: Path) -> None:
    save = 'joblib.dump(model, "table.joblib")'
    assert f"`{save}`" in prose(SKLEARN)
    write(tmp_path, "table.py", f"{example(SKLEARN, 'table.py')}\nimport joblib; {save}")
    printed(example(SKLEARN, "fit"), tmp_path)
    with serving(tmp_path, example(SKLEARN, "pickled")) as server:
        (row,) = predictions(printed(example(SKLEARN, "curl"), tmp_path, server))
    assert row["label"] == 1


def write_steps(folder: Path) -> None:
    write(folder, "tokenizer.py", example(CHAIN, "tokenizer.py"))
    write(folder, "encoder.py", example(CHAIN, "encoder.py"))
    write(folder, "ranker.py", example(CHAIN, "ranker.py"))


def test_the_chain_answers_as_its_steps_do(tmp_path: Path) -> None:
    write_steps(tmp_path)
    write(tmp_path, "chain.toml", example(CHAIN, "chain.toml"))
    with serving(tmp_path, example(CHAIN, "serve")) as server:
        answer = predictions(printed(example(CHAIN, "curl"), tmp_path, server))
        with Connection(server.port) as connection:
            empty = request("/v1/models/search:predict", b'{"instances": [""]}')
            assert connection.ask(empty).json["predictions"] == [0.0]
    assert answer == predictions(output_after(CHAIN, "curl")) == [120.0, 96.0]


@exhaustive
def test_a_chain_in_the_long_form_answers(tmp_path: Path) -> None:
    write_steps(tmp_path)
    write(tmp_path, "chain.toml", example(CHAIN, "long.toml"))
    with serving(tmp_path, example(CHAIN, "serve")) as server:
        output = printed(example(CHAIN, "curl"), tmp_path, server)
    first = {"relevance": 120.0, "vector": [2.0, 122.0]}
    assert predictions(output) == [first, {"relevance": 96.0, "vector": [3.0, 99.0]}]


@exhaustive
def test_the_application_is_served_beside_the_model(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    write(tmp_path, "model.py", example(README, "model.py"))
    write(tmp_path, "api.py", example(ROUTES, "api.py"))
    with serving(tmp_path, example(ROUTES, "app"), "--frontends", "1") as server:
        output = printed(example(ROUTES, "curl"), tmp_path, server)
        assert json.loads(output) == json.loads(output_after(ROUTES, "curl"))
        headers = {"Content-Type": "application/json"}
        with Connection(server.port) as connection:
            refused = connection.ask(request("/classify", b"[1, 2]", headers=headers))
    assert refused.status == 400
    assert refused.error.startswith('input "x" has shape [1, 2]')
