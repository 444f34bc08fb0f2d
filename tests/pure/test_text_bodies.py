"""Bodies of embeddings, reranks and classification: whatever comes is read or refused in words."""

import base64
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.codec.tensor_to_json import NOT_FINITE
from ringbatch.frontend.texts import classifying, openai, reranking
from ringbatch.shm.errors import (
    InvalidRequest,
    ModelFailed,
    ModelNotFound,
    Overloaded,
    Unauthenticated,
)
from ringbatch.shm.tensor import Tensor

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    (
        *("model", "input", "encoding_format", "dimensions", "truncate", "query", "texts"),
        *("documents", "top_n", "raw_scores", "return_text", "return_documents", "user", "other"),
        *("inputs", "parameters", "rank_fields", "max_tokens_per_doc", "max_chunks_per_doc"),
    )
)


def dumped(value: Any) -> bytes:
    import json

    return json.dumps(value).encode()


@pytest.mark.parametrize("read", [openai.read, reranking.read, classifying.read])
@given(body=st.binary(max_size=40) | st.dictionaries(MEMBERS, VALUES, max_size=6).map(dumped))
def test_any_body_is_read_or_refused(read: Any, body: bytes) -> None:
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


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize(
    ("read", "member", "before"),
    [
        (openai.read, "input", "{"),
        (openai.read, "model", '{"input": "a", '),
        (reranking.read, "query", '{"texts": ["a"], '),
        (reranking.read, "documents", '{"query": "q", '),
        (classifying.read, "model", '{"inputs": "a", '),
        (classifying.read, "inputs", "{"),
    ],
)
def test_deep_nesting_is_refused(read: Any, member: str, before: str, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    for deep in (300, 5000):
        value = opening * deep + "1" + closing * deep
        with pytest.raises(InvalidRequest):
            read(f'{before}"{member}": {value}}}'.encode())


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
    """Return results in parts of one row each."""
    return [(1, memoryview(np.array([row], "<f4").tobytes())) for row in rows]


@pytest.mark.parametrize("form", ["float", "base64"])
def test_vectors_are_written_as_asked_for(form: str) -> None:
    asked = openai.read(orjson.dumps({"input": ["a", "b"], "encoding_format": form}))
    asked.given.counts = [3, 4]
    rendering = openai.EmbeddingsRendering(asked, "m")
    status, body, _ = rendering.render(results([0.5, 1], [2, 0]), "")
    answered = orjson.loads(body)
    vectors = [item["embedding"] for item in answered["data"]]
    if form == "base64":
        vectors = [np.frombuffer(base64.b64decode(one), "<f4").tolist() for one in vectors]
    assert (status, vectors) == (200, [[0.5, 1], [2, 0]])
    assert answered["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


@pytest.mark.parametrize("raw", [False, True])
def test_the_best_text_comes_first_at_any_score(raw: bool) -> None:
    body = {"query": "q", "texts": ["a", "b", "c", "d"], "raw_scores": raw}
    rendering = reranking.RerankingRendering(reranking.read(orjson.dumps(body)), "m")
    _, answer, _ = rendering.render(results(-200, 3, 200, 3), "")
    answered = orjson.loads(answer)
    assert [item["index"] for item in answered] == [2, 1, 3, 0]
    expected = [200, 3, 3, -200] if raw else [1, 0.95257413, 0.95257413, 0]
    np.testing.assert_allclose([item["score"] for item in answered], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("documents", "fields", "texts"),
    [
        ([{"text": "a", "x": "b"}, "c"], None, ["a", "c"]),
        ([{"text": "a", "x": "b"}, "c"], [], ["a", "c"]),
        ([{"text": "a", "x": "b"}], ["x", "text"], ["b\na"]),
        ([{"text": "a", "n": 7}, {"x": "b", "text": None}], ["x", "n"], ["7", "b"]),
        ([{"x": ["a", 1]}], ["x"], ['["a",1]']),
    ],
)
def test_of_documents_that_are_objects_fields_count_in_their_order(
    documents: Any, fields: Any, texts: list[str]
) -> None:
    body = {"query": "q", "documents": documents, "rank_fields": fields}
    more = {"max_chunks_per_doc": 10, "max_tokens_per_doc": 4096, "priority": 1}
    asked = reranking.read(orjson.dumps(body | more))
    assert asked.given.texts == [("q", text) for text in texts]
    assert asked.given.document_tokens == 4096


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"documents": [{"x": "a"}]}, '"documents" has an object at place 0'),
        (
            {"documents": [{"text": "a"}], "rank_fields": ["x"]},
            '"documents" has an object at place 0',
        ),
        ({"documents": ["a"], "rank_fields": [1]}, '"rank_fields" has 1 at place 0'),
        ({"documents": ["a"], "max_chunks_per_doc": 0}, '"max_chunks_per_doc" is 0; it must be a'),
        ({"documents": ["a"], "max_tokens_per_doc": "x"}, '"max_tokens_per_doc" is "x"; it must'),
        ({"texts": ["a"], "rank_fields": ["x"]}, 'unknown member "rank_fields"'),
    ],
)
def test_an_impossible_rerank_is_described(members: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        reranking.read(orjson.dumps({"query": "q", **members}))
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [[("b", 0.880797), ("a", 0.119203)]]),
        ({"top_k": 1, "function_to_apply": None}, [[("b", 0.880797)]]),
        ({"function_to_apply": "sigmoid"}, [[("b", 0.880797), ("a", 0.5)]]),
        ({"function_to_apply": "none", "top_k": None}, [[("b", 2.0), ("a", 0.0)]]),
        (None, [("b", 0.880797), ("a", 0.119203)]),
    ],
)
def test_classification_takes_the_parameters_of_huggingface_hub(
    parameters: Any, expected: Any
) -> None:
    asked = classifying.read(orjson.dumps({"inputs": "x", "parameters": parameters}))
    output = Tensor("logits", "FP32", [2], labels=["a", "b"])
    _, answer, _ = classifying.ClassifyingRendering(asked, output).render(results([0, 2]), "")

    def plain(answered: Any) -> Any:
        if isinstance(answered, list):
            return [plain(one) for one in answered]
        return answered["label"], pytest.approx(answered["score"], abs=1e-5)

    assert plain(orjson.loads(answer)) == expected


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ([], '"parameters" is a list; it must be an object'),
        ({"top_k": 0}, '"top_k" is 0; it must be a whole number from 1'),
        ({"function_to_apply": "max"}, '"function_to_apply" is "max"; it must be one of softmax, '),
        ({"topk": 1}, 'unknown member "topk"; known are top_k, function_to_apply'),
    ],
)
def test_impossible_parameters_are_described(parameters: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        classifying.read(orjson.dumps({"inputs": "x", "parameters": parameters}))
    assert str(refused.value).startswith(words)


NAN, INF = float("nan"), float("inf")


def rendering_of(path: str, **members: Any) -> Any:
    """Return the rendering for a request of two texts, by a model of two numbers or a score."""
    if path == openai.PATH:
        asked = openai.read(orjson.dumps({"input": ["a", "b"], **members}))
        return openai.EmbeddingsRendering(asked, "m")
    if path == classifying.PATH:
        body = {"inputs": [["a"], ["b"]], **members}
        logits = Tensor("logits", "FP32", [2])
        return classifying.ClassifyingRendering(classifying.read(orjson.dumps(body)), logits)
    texts = "documents" if path == "/v2/rerank" else "texts"
    asked_for = {"query": "q", texts: ["a", "b"], **members}
    return reranking.RerankingRendering(reranking.read(orjson.dumps(asked_for)), "m")


@pytest.mark.parametrize("number", [NAN, INF, -INF])
@pytest.mark.parametrize(
    ("path", "members"),
    [
        (openai.PATH, {}),
        (openai.PATH, {"dimensions": 1}),
        (classifying.PATH, {"raw_scores": True}),
        ("/rerank", {"raw_scores": True}),
        ("/v2/rerank", {"raw_scores": True, "top_n": 1}),
    ],
)
def test_a_value_that_json_cannot_carry_is_the_models_failure(
    path: str, members: dict[str, Any], number: float
) -> None:
    wide = path in (openai.PATH, classifying.PATH)
    found = results([1, 2], [number, 3]) if wide else results(1, number)
    with pytest.raises(ModelFailed, match=NOT_FINITE):
        rendering_of(path, **members).render(found, "")


@pytest.mark.parametrize("number", [NAN, INF])
def test_scores_that_cannot_add_up_to_1_are_the_models_failure(number: float) -> None:
    with pytest.raises(ModelFailed, match=NOT_FINITE):
        rendering_of(classifying.PATH).render(results([1, 2], [number, 3]), "")


@pytest.mark.parametrize(
    ("path", "members", "found", "answered"),
    [
        ("/rerank", {}, results(-INF, INF), [{"index": 1, "score": 1.0}, {"index": 0, "score": 0}]),
        (
            classifying.PATH,
            {},
            results([0, -INF]),
            [[{"score": 1.0, "label": "LABEL_0"}, {"score": 0.0, "label": "LABEL_1"}]],
        ),
    ],
)
def test_infinite_scores_are_finite_probabilities(
    path: str, members: dict[str, Any], found: Any, answered: Any
) -> None:
    _, body, _ = rendering_of(path, **members).render(found, "")
    assert orjson.loads(body) == answered


@pytest.mark.parametrize("dimensions", [{}, {"dimensions": 1}])
def test_base64_carries_every_number(dimensions: dict[str, int]) -> None:
    rendering = rendering_of(openai.PATH, encoding_format="base64", **dimensions)
    _, body, _ = rendering.render(results([1, 2], [INF, NAN]), "")
    (_, second) = orjson.loads(body)["data"]
    vector = np.frombuffer(base64.b64decode(second["embedding"]), "<f4")
    np.testing.assert_array_equal(vector, [NAN] if dimensions else [INF, NAN])


def test_no_score_at_all_is_the_models_failure() -> None:
    with pytest.raises(ModelFailed, match=NOT_FINITE):
        rendering_of("/rerank").render(results(1, NAN), "")


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
    answered = orjson.loads(body)["error"]
    assert (found, answered["type"], answered["code"]) == (status, kind, code)
    assert answered["message"]
    assert ("retry-after", "7") in headers or status != 503
