"""Tokens and answers of texts, as they travel to and from the offload process."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ringbatch.frontend.codec.outcome import JSON, Answer
from ringbatch.frontend.codec.payload import Bytes, LazyBytes, Part, SlotPart
from ringbatch.frontend.codec.rendering import (
    LARGE_RESULT_BYTES,
    LONG_ROWS,
    OffloadJob,
    Rendering,
    Results,
)
from ringbatch.frontend.texts import classifying, cohere, openai, reranking, tei
from ringbatch.frontend.texts.rows import GivenTexts, TokenizedTexts
from ringbatch.frontend.texts.tokenizing import TextModel
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import loads
from ringbatch.shm.tensor import Tensor

_MODELS: Final = 8
"""The most models to keep, because each has a tokenizer."""


class Form(NamedTuple):
    """The bodies and answers of a route of texts.

    Attributes:
        read: reads bodies.
        asked: the type that it returns, a dataclass.
        rendering: makes the rendering of the answer, of a request and of `TextsRendering`'s about.
    """

    read: Callable[[bytes | bytearray], Any]
    asked: type
    rendering: Callable[[Any, Any], Any]


def _classified(asked: classifying.Classifying, about: Any) -> classifying.ClassifyingRendering:
    return classifying.ClassifyingRendering(asked, Tensor(**about))


FORMS: Final = {
    "openai": Form(openai.read, openai.Embeddings, openai.EmbeddingsRendering),
    "tei": Form(tei.read, tei.Embedding, tei.EmbeddingRendering),
    "cohere-v1": Form(cohere.read_v1, cohere.Embedding, cohere.EmbeddingRendering),
    "cohere-v2": Form(cohere.read_v2, cohere.Embedding, cohere.EmbeddingRendering),
    "reranking": Form(reranking.read, reranking.Reranking, reranking.RerankingRendering),
    "classification": Form(classifying.read, classifying.Classifying, _classified),
}
"""Forms of requests by the names that processes send each other."""


@lru_cache(_MODELS)
def text_model(spec: str, max_in_flight: int) -> TextModel:
    """Return the tokenizing side of a model, as the model table has it."""
    (model,) = loads(spec.encode())
    return TextModel(model, max_in_flight)


def encode_parts(
    spec: str, max_in_flight: int, parts: Sequence[SlotPart], *, texts: bool
) -> tuple[dict[str, Any], list[Bytes]]:
    """Return the parts of a request in a form for another process; `decode_parts` turns them back.

    Args:
        spec: the model, as in the model table.
        max_in_flight: the most batches that one request may make.
        parts: the parts as a protocol has read them.
        texts: whether they are texts, to be turned into tokens.

    Raises:
        RequestError: `TextModel.tokenized` raises it.
    """
    if not texts or not parts:
        return {"parts": [[rows, key] for rows, _, key in parts]}, [_here(d) for _, d, _ in parts]
    model = text_model(spec, max_in_flight)
    given = model.given(parts)
    own, row_order = model.tokenized(given)
    encoded = {"parts": [[rows, key] for rows, _, key in own], "counts": given.counts}
    return encoded | {"row_order": row_order}, [payload for _, payload, _ in own]


def decode_parts(encoded: dict[str, Any], data: Sequence[memoryview]) -> tuple[SlotPart, ...]:
    """Return the parts of a request that another process has read."""
    parts = tuple(
        Part(rows, payload, key)
        for (rows, key), payload in zip(encoded["parts"], data, strict=True)
    )
    if "counts" not in encoded:
        return parts
    made = TokenizedTexts(encoded["counts"], parts, encoded["row_order"])
    return ((len(made), made, 0),)


def read_texts(value: Any, data: Sequence[memoryview]) -> tuple[Any, list[Bytes]]:
    """Read a body of one of the routes of texts, and make tokens of its texts.

    Args:
        value: the name of the form; the models for it by their names, as in the model table; the
            most batches that one request may make.
        data: the body.

    Raises:
        RequestError: the body cannot be read, or `TextModel.tokenized` raises it.
    """
    form, specs, max_in_flight = value
    asked = FORMS[form].read(bytes(data[0]))
    given: GivenTexts = asked.given
    encoded = _encode_asked(asked)
    name = asked.model or next(iter(specs), "")
    if name not in specs or (len(specs) > 1 and not asked.model):
        # The frontend raises the error about the name.
        return [encoded, {"parts": [], "counts": [], "row_order": None}], []
    parts, payloads = encode_parts(
        specs[name], max_in_flight, ((len(given), given, 0),), texts=True
    )
    return [encoded, parts], payloads


def decode_asked(form: str, value: Any, data: Sequence[memoryview]) -> Any:
    """Return the request that another process has read from a body."""
    encoded, parts = value
    ((_, made, _),) = decode_parts(parts, data)
    assert isinstance(made, GivenTexts), "it has tokens"
    return _asked(form, encoded, made)


class TextsRendering(Rendering[Answer]):
    """Rendering of answers on the routes of texts; another process writes the large ones.

    Args:
        form: the name of the route's form.
        asked: the request.
        about: the model's name, or its output as `Tensor.to_json` returns it.
    """

    def __init__(self, form: str, asked: Any, about: Any) -> None:
        self._form = form
        self._asked = asked
        self._about = about
        self._rendering = FORMS[form].rendering(asked, about)

    def render(self, results: Results, batch_id: str) -> Answer:
        """Return the answer, as in `Rendering`."""
        answer: Answer = self._rendering.render(results, batch_id)
        return answer

    def apart(self, rows: Sequence[int], size: int, batch_id: str) -> OffloadJob | None:
        """Return the job that writes a large answer in another process, as in `Rendering`."""
        if size <= LARGE_RESULT_BYTES and sum(rows) <= LONG_ROWS:
            return None
        counts = self._asked.given.counts
        encoded = _encode_asked(self._asked)
        return write_texts, [self._form, encoded, counts, self._about, [*rows], batch_id]

    def written(self, value: Any, data: Sequence[memoryview]) -> Answer:
        """Return the answer that another process has written, as in `Rendering`."""
        return 200, bytes(data[0]), JSON

    def render_error(self, error: RequestError, batch_id: str) -> Answer:
        """Return the answer to a request that has failed, as in `Rendering`."""
        answer: Answer = self._rendering.render_error(error, batch_id)
        return answer


def write_texts(value: Any, data: Sequence[memoryview]) -> tuple[Any, list[Bytes]]:
    """Write an answer of one of the routes of texts.

    Args:
        value: the name of the form; the request; the tokens of each text; the `about` of
            `TextsRendering`; the number of rows of each part; the batch id.
        data: the result of each part.

    Raises:
        ModelFailed: JSON cannot carry the results.
    """
    form, encoded, counts, about, rows, batch_id = value
    asked = _asked(form, encoded, TokenizedTexts(counts, (), None))
    results = [*zip(rows, data, strict=True)]
    _, body, _ = FORMS[form].rendering(asked, about).render(results, batch_id)
    return None, [body]


def _encode_asked(asked: Any) -> dict[str, Any]:
    encoded = {field.name: getattr(asked, field.name) for field in fields(asked)}
    del encoded["given"]
    if encoded.get("texts") and not encoded["returns_texts"]:
        encoded["texts"] = []
    return encoded


def _asked(form: str, encoded: dict[str, Any], given: GivenTexts) -> Any:
    return FORMS[form].asked(given=given, **encoded)


def _here(data: Bytes | LazyBytes) -> Bytes:
    assert not isinstance(data, LazyBytes), "this process knows no memory of clients"
    return data
