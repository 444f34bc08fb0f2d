"""Clients of OpenAI, TEI and Cohere: the requests that they send, and the members that they read.

The requests were recorded from langchain-openai 1, llama-index-embeddings-openai-like 0.2,
huggingface_hub 2.4, cohere 7.3, cohere-ai and openai for node, and a LiteLLM proxy, each of which
got its answer from a server of these models. The package of a client that is installed asks itself.
"""

import base64
import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from serve.client import Connection, request
from serve.server import Server, Start
from text_models import DIMS, LIMIT, tokens, vectors, write_directory

TEXTS = ("the cat", "mat")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def server(start_for_module: Start, folder: Path) -> Server:
    return start_for_module(
        {
            "embedder": {"path": str(write_directory(folder / "embedder"))},
            "ranker": {"path": str(write_directory(folder / "ranker", labels=1))},
            "moods": {"path": str(write_directory(folder / "moods", labels=3))},
        }
    )


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with Connection(server.port) as connection:
        yield connection


def post(connection: Connection, path: str, body: Any) -> tuple[int, Any]:
    answer = connection.ask(request(path, json.dumps(body).encode()))
    return answer.status, answer.json


def of_openai(answer: Any) -> Any:
    assert (answer["object"], answer["usage"]["total_tokens"]) == ("list", 7)
    assert [item["index"] for item in answer["data"]] == [0, 1]
    return [item["embedding"] for item in answer["data"]]


def of_openai_in_base64(answer: Any) -> Any:
    return [np.frombuffer(base64.b64decode(text), "<f4") for text in of_openai(answer)]


def of_cohere_v1(answer: Any) -> Any:
    assert (answer["response_type"], answer["texts"]) == ("embeddings_floats", [*TEXTS])
    assert answer["id"]
    assert answer["meta"]["billed_units"] == {"input_tokens": 7}
    return answer["embeddings"]


def of_cohere_v2(answer: Any) -> Any:
    assert (answer["response_type"], answer["texts"]) == ("embeddings_by_type", [*TEXTS])
    assert answer["meta"] == {
        "api_version": {"version": "2"},
        "billed_units": {"input_tokens": 7},
    }
    return answer["embeddings"]["float"]


class Recorded(NamedTuple):
    """Request by which a client embeds `TEXTS`, and a function that reads the vectors."""

    path: str
    body: dict[str, Any]
    read: Callable[[Any], Any]


ASKED = {"model": "embedder", "input": [*TEXTS]}
EMBEDDED = {
    "openai": Recorded(
        "/v1/embeddings", ASKED | {"encoding_format": "base64"}, of_openai_in_base64
    ),
    "langchain": Recorded(
        "/v1/embeddings", ASKED | {"encoding_format": "base64"}, of_openai_in_base64
    ),
    "llama-index": Recorded(
        "/v1/embeddings", ASKED | {"encoding_format": "base64"}, of_openai_in_base64
    ),
    "litellm": Recorded("/v1/embeddings", ASKED | {"encoding_format": "float"}, of_openai),
    "huggingface_hub": Recorded(
        "/embed",
        {"inputs": [*TEXTS], "normalize": True, "truncation_direction": "right"},
        list,
    ),
    "cohere-v1": Recorded(
        "/v1/embed",
        {"texts": [*TEXTS], "model": "embedder", "input_type": "search_query"},
        of_cohere_v1,
    ),
    "cohere-v2": Recorded(
        "/v2/embed",
        {
            "texts": [*TEXTS],
            "model": "embedder",
            "input_type": "search_query",
            "embedding_types": ["float"],
        },
        of_cohere_v2,
    ),
}


@pytest.mark.parametrize("client", EMBEDDED)
def test_each_client_reads_the_vectors(connection: Connection, folder: Path, client: str) -> None:
    path, body, read = EMBEDDED[client]
    status, answer = post(connection, path, body)
    assert status == 200
    np.testing.assert_allclose(read(answer), vectors(folder / "embedder", *TEXTS), atol=1e-5)


@pytest.mark.parametrize("many", [False, True])
def test_many_texts_come_back_in_their_order(
    connection: Connection, folder: Path, many: bool
) -> None:
    """The long body is read in another process, and the long answer is written there."""
    texts = ["cat " * (number * 7 % 23) for number in range(400 if many else 3)]
    expected = vectors(folder / "embedder", *texts)
    _, tei = post(connection, "/embed", {"model": "embedder", "inputs": texts})
    np.testing.assert_allclose(tei, expected, atol=1e-5)
    asked = {"model": "embedder", "texts": texts, "embedding_types": ["base64", "float"]}
    _, cohere = post(connection, "/v2/embed", asked)
    assert cohere["texts"] == texts
    assert cohere["id"]
    np.testing.assert_allclose(cohere["embeddings"]["float"], expected, atol=1e-5)
    numbers = [np.frombuffer(base64.b64decode(t), "<f4") for t in cohere["embeddings"]["base64"]]
    np.testing.assert_allclose(numbers, expected, atol=1e-5)


def test_tei_normalizes_unless_a_request_forbids_it(start: Start, tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "raw", normalize=False)
    scaled = vectors(folder, *TEXTS)
    with Connection(start({"raw": {"path": str(folder)}}).port) as connection:
        found = post(connection, "/embed", {"inputs": [*TEXTS]})[1]
        plain = post(connection, "/embed", {"inputs": [*TEXTS], "normalize": False})[1]
        # One model of texts needs no name.
        about = connection.ask(request("/info", method="GET")).json
    assert about["model_id"] == "raw"
    np.testing.assert_allclose(found, scaled, atol=1e-5)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert abs(lengths - 1).min() > 0.1
    np.testing.assert_allclose(plain / lengths, scaled, atol=1e-5)


@pytest.mark.parametrize(
    ("path", "member"), [("/embed", "dimensions"), ("/v2/embed", "output_dimension")]
)
def test_fewer_dimensions(connection: Connection, folder: Path, path: str, member: str) -> None:
    texts = "inputs" if path == "/embed" else "texts"
    status, answer = post(connection, path, {"model": "embedder", texts: "mat", member: 4})
    assert status == 200
    (found,) = answer if path == "/embed" else answer["embeddings"]["float"]
    first = vectors(folder / "embedder", "mat")[0][:4]
    np.testing.assert_allclose(found, first / np.linalg.norm(first), atol=1e-5)
    status, answer = post(connection, path, {"model": "embedder", texts: "mat", member: DIMS + 1})
    assert status == 400
    assert answer["error"] == f'"{member}" is 17, but this model\'s vectors have 16'


def test_tei_takes_tokens(connection: Connection, folder: Path) -> None:
    _, found = post(connection, "/embed", {"model": "embedder", "inputs": tokens(*TEXTS)})
    np.testing.assert_allclose(found, vectors(folder / "embedder", *TEXTS), atol=1e-5)


RERANKED: dict[str, tuple[str, dict[str, Any]]] = {
    "cohere-v2": ("/v2/rerank", {"model": "ranker", "query": "cat", "documents": [*TEXTS]}),
    "litellm-cohere": (
        "/v1/rerank",
        {"model": "ranker", "query": "cat", "documents": [*TEXTS], "top_n": 2},
    ),
    "litellm-vllm": (
        "/rerank",
        {"model": "ranker", "query": "cat", "documents": [*TEXTS], "top_n": 2},
    ),
    "litellm-huggingface": (
        "/rerank",
        {
            "raw_scores": False,
            "truncate": False,
            "truncation_direction": "Right",
            "query": "cat",
            "texts": [*TEXTS],
            "top_n": 2,
        },
    ),
}


@pytest.mark.parametrize("client", RERANKED)
def test_each_client_reads_the_ranking(connection: Connection, client: str) -> None:
    path, body = RERANKED[client]
    status, answer = post(connection, path, body)
    assert status == 200
    score = "score"
    if "documents" in body:
        assert answer["id"]
        assert answer["meta"]["billed_units"] == {"search_units": 1}
        answer, score = answer["results"], "relevance_score"
    assert sorted(item["index"] for item in answer) == [0, 1]
    assert answer[0][score] >= answer[1][score]


def test_tei_s_facts_about_each_model(connection: Connection) -> None:
    for name, kind in (("embedder", "embedding"), ("ranker", "reranker"), ("moods", "classifier")):
        answer = connection.ask(request(f"/info?model={name}", method="GET")).json
        assert answer["model_id"] == name
        assert [*answer["model_type"]] == [kind]
        assert answer["max_input_length"] == LIMIT
        assert answer["auto_truncate"] is True
    assert answer["model_type"]["classifier"]["id2label"]["2"] == "label-2"
    several = connection.ask(request("/info", method="GET"))
    assert several.status == 400
    assert several.error.startswith('"model" is missing; models for texts are: embedder, ranker, ')
    assert connection.ask(request("/info?model=none", method="GET")).status == 404


def test_tei_s_health(connection: Connection) -> None:
    answer = connection.ask(request("/health", method="GET"))
    assert (answer.status, answer.body) == (200, b"")


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("/embed", {"inputs": "x", "prompt_name": "query"}, 400, '"prompt_name" is not supported'),
    ("/embed", {"inputs": "x", "truncation_direction": "left"}, 400, '"truncation_direction" is'),
    ("/embed", {"input": "x"}, 400, 'unknown member "input"; known are model, inputs, '),
    ("/embed", {"inputs": "x", "model": "none"}, 404, "Request for unknown model: "),
    ("/embed", {"inputs": "x", "model": "moods"}, 400, 'model "moods" is not for embeddings'),
    ("/rerank", {"texts": ["x"]}, 400, '"query" is missing'),
    ("/predict", {}, 400, '"inputs" is missing'),
    ("/v2/embed", {"texts": ["x"], "truncate": "START"}, 400, '"truncate" is "START"; it must be '),
    (
        "/v2/embed",
        {"texts": ["x"], "embedding_types": ["int8"]},
        400,
        '"embedding_types" has "int8',
    ),
    ("/v2/embed", {"inputs": []}, 400, '"inputs" is not supported; send texts'),
    ("/v1/embed", {"texts": []}, 400, '"texts" is an empty list'),
    ("/v1/rerank", {"documents": ["x"]}, 400, '"query" is missing'),
    ("/v2/rerank", {"query": "x", "documents": ["x"], "model": "none"}, 404, "Request for unknown"),
]


@pytest.mark.parametrize(("path", "body", "status", "words"), REFUSED)
def test_refusals_have_the_form_of_the_path_s_api(
    connection: Connection, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    found, answer = post(connection, path, body)
    assert found == status
    assert answer["error"].startswith(words)
    if path.startswith("/v"):
        assert answer == {"message": answer["error"], "error": answer["error"]}
    else:
        assert answer == {"error": answer["error"], "error_type": "Validation"}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "/similarity",
            "of texts there are embeddings at /embed, reranking at /rerank, classes at",
        ),
        ("/v1/classify", "of texts there are embeddings at /embed"),
        (
            "/v1/chat/completions",
            "no model here writes text at this path; /v1/completions",
        ),
        ("/", "of texts there are embeddings at /embed"),
    ],
)
def test_an_unavailable_feature_is_refused_in_words(
    connection: Connection, path: str, words: str
) -> None:
    status, answer = post(connection, path, {"inputs": "x"})
    assert status == (405 if path == "/" else 404)
    of_openai = path.endswith("completions")
    text = answer["error"]["message"] if of_openai else answer["error"]
    assert words in text


@pytest.mark.skipif(find_spec("openai") is None, reason="not installed: openai")
def test_openai_s_client_learns_that_nothing_chats(server: Server) -> None:
    import openai

    url = f"http://127.0.0.1:{server.port}/v1"
    with (
        openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client,
        pytest.raises(openai.NotFoundError, match="no model here writes text"),
    ):
        client.chat.completions.create(model="embedder", messages=[])


def test_huggingface_s_client(server: Server, folder: Path) -> None:
    """tokenizers brings it along."""
    from huggingface_hub import InferenceClient

    url = f"http://127.0.0.1:{server.port}"
    client = InferenceClient(provider="hf-inference", model=url)
    classes = client.text_classification("the cat", model=f"{url}/predict")
    assert {item.label for item in classes} == {"label-0", "label-1", "label-2"}
    found = client.feature_extraction([*TEXTS], model=f"{url}/embed")
    np.testing.assert_allclose(found, vectors(folder / "embedder", *TEXTS), atol=1e-5)
    assert client.health_check()
