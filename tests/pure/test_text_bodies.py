"""Bodies of embeddings, reranks and classification: whatever comes is read or refused in words."""

import base64
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.texts import classifying, openai, reranking
from ringbatch.shm.errors import InvalidRequest, ModelNotFound, Overloaded, Unauthenticated

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    (
        *("model", "input", "encoding_format", "dimensions", "truncate", "query", "texts"),
        *("documents", "top_n", "raw_scores", "return_text", "return_documents", "user", "other"),
        "inputs",
    )
)


def dumped(value: Any) -> bytes:
    import json

    return json.dumps(value).encode()


@pytest.mark.parametrize("read", [openai.read, reranking.read, classifying.read])
@given(body=st.binary(max_size=40) | st.dictionaries(MEMBERS, VALUES, max_size=6).map(dumped))
def test_whatever_comes_is_read_or_refused(read: Any, body: bytes) -> None:
    try:
        asked = read(body)
    except InvalidRequest as error:
        refusal = str(error)
    else:
        assert len(asked.given) > 0
        assert isinstance(asked.model, str)
        return
    assert refusal
    assert "\n" not in refusal


@given(st.lists(st.text(max_size=4), min_size=1, max_size=5), st.sampled_from([None, True, False]))
def test_texts_are_read_as_they_are(texts: list[str], truncate: bool | None) -> None:
    asked = openai.read(orjson.dumps({"model": "m", "input": texts, "truncate": truncate}))
    assert (asked.given.texts, asked.given.truncate) == (texts, truncate)
    ranked = reranking.read(orjson.dumps({"query": "q", "texts": texts}))
    assert ranked.given.texts == [("q", text) for text in texts]


@pytest.mark.parametrize(
    ("given_input", "ids"), [([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])]
)
def test_numbers_are_tokens(given_input: Any, ids: Any) -> None:
    assert openai.read(orjson.dumps({"input": given_input})).given.ids == ids


def results(*rows: Any) -> list[tuple[int, memoryview]]:
    """Of parts of one row each."""
    return [(1, memoryview(np.array([row], "<f4").tobytes())) for row in rows]


@pytest.mark.parametrize("form", ["float", "base64"])
def test_vectors_are_written_as_asked_for(form: str) -> None:
    asked = openai.read(orjson.dumps({"input": ["a", "b"], "encoding_format": form}))
    asked.given.counts = [3, 4]
    rendering = openai.EmbeddingsRendering(asked, "m")
    status, body, _ = rendering.render(results([0.5, 1], [2, 0]), "")
    told = orjson.loads(body)
    vectors = [item["embedding"] for item in told["data"]]
    if form == "base64":
        vectors = [np.frombuffer(base64.b64decode(one), "<f4").tolist() for one in vectors]
    assert (status, vectors) == (200, [[0.5, 1], [2, 0]])
    assert told["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


@pytest.mark.parametrize("raw", [False, True])
def test_the_best_text_comes_first_whatever_its_score(raw: bool) -> None:
    body = {"query": "q", "texts": ["a", "b", "c", "d"], "raw_scores": raw}
    rendering = reranking.RerankingRendering(reranking.read(orjson.dumps(body)), "m")
    _, answer, _ = rendering.render(results(-200, 3, 200, 3), "")
    told = orjson.loads(answer)
    assert [item["index"] for item in told] == [2, 1, 3, 0]
    expected = [200, 3, 3, -200] if raw else [1, 0.95257413, 0.95257413, 0]
    np.testing.assert_allclose([item["score"] for item in told], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (InvalidRequest("no"), 400, "invalid_request_error", None),
        (Unauthenticated(), 401, "invalid_request_error", "invalid_api_key"),
        (ModelNotFound("no"), 404, "invalid_request_error", "model_not_found"),
        (Overloaded("full", 7), 503, "server_error", None),
    ],
)
def test_errors_have_openai_s_form(error: Any, status: int, kind: str, code: str | None) -> None:
    found, body, headers = openai.refused(error)
    told = orjson.loads(body)["error"]
    assert (found, told["type"], told["code"]) == (status, kind, code)
    assert told["message"]
    assert ("retry-after", "7") in headers or status != 503
