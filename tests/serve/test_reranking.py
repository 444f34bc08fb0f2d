"""Reranking and classification of texts, as clients of TEI, Cohere and Hugging Face ask for it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from serve import texts_site
from serve.client import Connection, request
from serve.texts_site import embedded, post
from text_models import LIMIT, token_vectors

folder, server, connection = texts_site.folder, texts_site.server, texts_site.connection

QUERY = "the cat"
RANKED = ("sat on the mat", "home", "the dog ran far away", "cat")


def scores(folder: Path) -> NDArray[np.float32]:
    pairs = [(QUERY, text) for text in RANKED]
    return np.array([logits[0] for logits in token_vectors(folder / "ranker", *pairs)])


def test_reranking_as_tei_has_it(connection: Connection, folder: Path) -> None:
    raw = scores(folder)
    body = {"query": QUERY, "texts": RANKED, "raw_scores": True, "return_text": True}
    answer = post(connection, "/rerank", body)
    best = np.argsort(-raw)
    assert [item["index"] for item in answer.json] == best.tolist()
    assert [item["text"] for item in answer.json] == [RANKED[place] for place in best]
    np.testing.assert_allclose([item["score"] for item in answer.json], raw[best], atol=1e-5)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_reranking_as_cohere_has_it(connection: Connection, folder: Path, path: str) -> None:
    expected = 1 / (1 + np.exp(-scores(folder)))
    body = {
        "model": "ranker",
        "query": QUERY,
        "documents": [RANKED[0], {"text": RANKED[1]}, *RANKED[2:]],
        "top_n": 2,
        "return_documents": True,
    }
    answer = post(connection, path, body)
    best = np.argsort(-expected)[:2]
    found = answer.json["results"]
    assert [item["index"] for item in found] == best.tolist()
    assert [item["document"] for item in found] == [{"text": RANKED[place]} for place in best]
    relevance = [item["relevance_score"] for item in found]
    np.testing.assert_allclose(relevance, expected[best], atol=1e-5)


def test_a_rerank_takes_the_bodies_of_coheres_clients(connection: Connection, folder: Path) -> None:
    ranked_documents = [{"title": text, "text": "home"} for text in RANKED]
    body = {
        "query": QUERY,
        "documents": ranked_documents,
        "rank_fields": ["title", "text"],
        "max_chunks_per_doc": 10,
        "max_tokens_per_doc": 1,
    }
    answer = post(connection, "/v1/rerank", body)
    pairs = [(QUERY, text.split()[0]) for text in RANKED]
    expected_logits = np.array([one[0] for one in token_vectors(folder / "ranker", *pairs)])
    found = {item["index"]: item["relevance_score"] for item in answer.json["results"]}
    expected = 1 / (1 + np.exp(-expected_logits))
    np.testing.assert_allclose(
        [found[place] for place in range(len(expected_logits))], expected, atol=1e-5
    )


def test_classification_as_huggingface_hub_asks_for_it(connection: Connection) -> None:
    asked = {"inputs": "the cat", "model": "moods"}
    plain = post(connection, "/predict", asked).json
    found = post(connection, "/predict", asked | {"parameters": {"top_k": 1}}).json
    assert found == [plain[:1]]


def test_tokens_are_cut_where_that_is_asked_for(connection: Connection, folder: Path) -> None:
    ids = [2, *[4, 5] * LIMIT]
    whole, cut = (
        embedded(connection, input=given, truncate=True).json for given in (ids[:LIMIT], ids)
    )
    assert whole == cut
    refused = embedded(connection, input=ids)
    assert refused.json["error"]["message"].startswith(f"input 0 has {len(ids)} tokens; this model")


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"query": "x"}, '"texts" is missing'),
        ({"texts": ["x"]}, '"query" is missing'),
        ({"query": 1, "texts": ["x"]}, '"query" is 1; it must be a text'),
        ({"query": "x", "documents": []}, '"documents" is an empty list'),
        ({"query": "x", "documents": ["y"], "top_n": 0}, '"top_n" is 0'),
        ({"query": "x", "texts": ["y"], "model": "moods"}, 'model "moods" is not for reranking'),
        ({"query": "x", "texts": ["y"], "texst": 1}, 'unknown member "texst"'),
    ],
)
def test_a_rerank_that_cannot_be_is_refused(
    connection: Connection, members: dict[str, Any], words: str
) -> None:
    answer = post(connection, "/rerank", members)
    assert answer.status == 400
    assert answer.error.startswith(words)


@pytest.mark.parametrize("several", [False, True])
def test_classification_as_tei_has_it(connection: Connection, folder: Path, several: bool) -> None:
    texts = [*RANKED] if several else ["the cat"]
    inputs: Any = [[text] for text in texts] if several else texts[0]
    body = {"inputs": inputs, "model": "moods"}
    answer = post(connection, "/predict", body).json
    raw = post(connection, "/predict", body | {"raw_scores": True}).json
    logits = token_vectors(folder / "moods", *texts)
    for own, row, own_logits in zip(
        answer if several else [answer], raw if several else [raw], logits, strict=True
    ):
        powers = np.exp(own_logits - np.max(own_logits))
        best = np.argsort(-np.array(own_logits))
        np.testing.assert_allclose(
            [one["score"] for one in own], powers[best] / powers.sum(), atol=1e-5
        )
        np.testing.assert_allclose([one["score"] for one in row], own_logits[best], atol=1e-5)
        assert [one["label"] for one in own] == [f"label-{place}" for place in best]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({}, '"inputs" is missing; it must be a text, or several as [["a text"]'),
        ({"inputs": []}, '"inputs" is no text and no list of any'),
        ({"inputs": ["x", "y"]}, '"inputs" is a list of texts, which here is a pair'),
        ({"inputs": [["x"], ["y", "z"]]}, '"inputs" has no text at place 1'),
        ({"inputs": "x", "model": "ranker"}, 'model "ranker" is not for classification'),
        ({"inputs": "x", "top_k": 1}, 'unknown member "top_k"'),
    ],
)
def test_a_classification_that_cannot_be_is_refused(
    connection: Connection, members: dict[str, Any], words: str
) -> None:
    answer = post(connection, "/predict", members)
    assert answer.status == 400
    assert answer.error.startswith(words)


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_classification_is_posted(connection: Connection, method: str) -> None:
    answer = connection.ask(request("/predict", method=method))
    assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS")
    assert answer.error == f"{method} is not allowed here; allowed: POST, OPTIONS"


def test_classes_of_texts_have_their_names(connection: Connection, folder: Path) -> None:
    (expected,) = token_vectors(folder / "moods", "the cat")
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["the cat"]}
    wanted = {"name": "logits", "parameters": {"classification": 1}}
    body = {"inputs": [tensor], "outputs": [wanted]}
    (output,) = post(connection, "/v2/models/moods/infer", body).json["outputs"]
    (best,) = output["data"]
    assert best.endswith(f":{expected.argmax()}:label-{expected.argmax()}")
