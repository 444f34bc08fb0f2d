"""Decoders of strangers' bytes, as one function each, with the exceptions that they may raise.

Whatever a frontend accepts for a model must be readable in the worker: so what comes out of the
protocols' decoders is put into memory and read back by the engine.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import orjson
from fuzz.connection import MAX_REQUEST_BYTES
from fuzz.corpora import TYPES
from fuzz.limits import Difference
from fuzz.strict import check_head
from google.protobuf.message import DecodeError
from segment_fixture import spec

from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.json_codec import JsonCodec
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.frontend.codec import bytes_tensor
from ringbatch.frontend.codec.asked_events import asks_for_events
from ringbatch.frontend.codec.classification import classes_of
from ringbatch.frontend.codec.limit_messages import ANY_NUMBER
from ringbatch.frontend.codec.payload import LazyBytes
from ringbatch.frontend.codec.request_timeout import timeout_ns_of
from ringbatch.frontend.falcon.meant_model import meant_model
from ringbatch.frontend.generation import completion_bodies
from ringbatch.frontend.generation.text_generator import TextGenerator
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.offloaded_messages import decode_requested as decode_grpc_requested
from ringbatch.frontend.grpc.offloaded_messages import read_grpc, weighed
from ringbatch.frontend.grpc.request import requests_of
from ringbatch.frontend.http.content_coding import (
    CODINGS,
    CodingNotSupported,
    Expander,
    acceptance,
    coding_of,
)
from ringbatch.frontend.http2.flood_budget import FloodBudget
from ringbatch.frontend.http2.frames import ConnectionFault, StreamFault
from ringbatch.frontend.http2.header_reader import HeaderReader
from ringbatch.frontend.offload.messages import Job
from ringbatch.frontend.offload.role import outcome
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.offload import read_generate, read_v1, read_v2
from ringbatch.frontend.texts.offloaded_texts import FORMS, decode_parts, encode_parts, text_model
from ringbatch.frontend.texts.rows import TokenizedTexts
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.generate import infer_request
from ringbatch.frontend.v2.offloaded_answers import decode_requested
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.frontend.v2.request import decoded
from ringbatch.frontend.v2.shared_memory import RegionSpan, object_name, registration, span_of
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.errors import RequestError, RequestTooLarge
from ringbatch.shm.layout import aligned
from ringbatch.shm.model_spec import Forward, ModelSpec, dumps
from ringbatch.shm.region import FIELDS, decode, text_words
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import TEXT, Generator, Tokens

LIMIT_BYTES: Final = 1 << 16
_TEXTS: Final = dumps(
    (
        replace(
            spec(0, [TEXT], [Tensor("embedding", "FP32", [4])], name="texts", max_batch_size=8),
            tokens=Tokens("/none", "", 8, truncate=True, pairs=False, vocabulary=9),
            max_batch_elements=32,
            length_buckets=(4, 8),
        ),
    )
).decode()
_GENERATOR: Final = replace(
    spec(
        0,
        [Tensor("input_ids", "INT64", [-1]), Tensor("seed", "INT32", [], default=0)],
        [Tensor("token", "INT64", [-1])],
        name="generator",
        max_batch_size=1,
    ),
    generator=Generator("/none", "", 16, 9, ()),
)
_MEMORY: Final = memoryview(bytearray(1 << 20))
SPECS: Final = (
    spec(0, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], name="fixed"),
    spec(0, [Tensor("x", "INT64", [-1])], [Tensor("y", "INT64", [-1])], name="open"),
    spec(
        0,
        [Tensor("n", "INT64", [-1]), Tensor("s", "BYTES", [2])],
        [Tensor("s", "BYTES", [2])],
        name="two",
        max_batch_size=2,
    ),
    spec(
        0,
        [Tensor(name.lower(), name, [1]) for name in TYPES],
        [Tensor("y", "FP32", [1])],
        name="all",
    ),
    spec(0, [Tensor("x", "UINT8", [])], [Tensor("y", "UINT8", [])], name="one", max_batch_size=0),
    spec(0, name="untyped"),
    replace(
        spec(0, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], name="asking"), words=()
    ),
    replace(spec(0, name="asking untyped"), words=()),
    replace(spec(0, name="forwarded"), forward=Forward("/v1/models/m:predict", (), any_path=False)),
)


class Region:
    """Clients' memory, of which nothing is ever read."""

    def expect_on(self) -> None:
        """Do nothing: shared memory is on."""

    def source(self, span: RegionSpan) -> LazyBytes:
        """Too large is refused, as by the real one."""
        if span.size > LIMIT_BYTES:
            raise RequestTooLarge
        return _Elsewhere(span.size)

    def target(self, span: RegionSpan) -> Any:
        """Return any target."""
        return span


class _Elsewhere(LazyBytes):
    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read_into(self, memory: memoryview) -> None:
        memory[:] = bytes(len(memory))


def _readable(model: ModelSpec) -> Callable[[Any], None]:
    """Checks that the worker can read what a frontend made of a request."""
    loaded = Model(model.inputs, model.outputs, lambda: None, lambda *_: None)
    batched = model.batched
    # Others read the head before their lists: `ringbatch.shm.forward_envelope`, `request_context`.
    sealed = not model.inputs and (model.forward is not None or model.words is not None)
    codec: TensorCodec | JsonCodec = (
        TensorCodec(_MEMORY, loaded, batched) if model.inputs else JsonCodec(_MEMORY, batched)
    )

    def check(parts: Any) -> None:
        for rows, payload, key_bytes in parts:
            assert 1 <= rows <= model.cap
            assert 0 <= key_bytes <= len(payload)
            if isinstance(payload, LazyBytes) or sealed:
                continue
            size = len(payload)
            assert size <= len(_MEMORY) // 2
            _MEMORY[:size] = payload
            room = aligned(size)
            request = Request(0, 0, rows, size, key_bytes, 0, 0, room, 0, 0)
            readable, unreadable, _ = codec.read([request])
            assert (len(readable), len(unreadable)) == (1, 0), "no worker can read it"

    return check


def _alike(here: Callable[[], Any], job: Job, value: Any, data: bytes) -> Any:
    """Return the result of reading here, after another process has read the same large body.

    Raises:
        Difference: it has read something else.
    """
    answer, payloads = outcome(job, orjson.loads(orjson.dumps(value)), [memoryview(data)])
    found, error, defect = orjson.loads(orjson.dumps(answer))
    assert not defect, defect
    try:
        read = here()
    except RequestError as refused:
        if error is None or (error[1], error[2]) != (type(refused).__name__, str(refused)):
            raise Difference(f"refused here, {refused}, and apart {error}") from None
        raise
    if error is not None:
        raise Difference(f"refused apart alone: {error}")
    encoded, _ = found
    parts = decode_parts(encoded, [memoryview(payload) for payload in payloads])
    if [(rows, bytes(own), key) for rows, own, key in parts] != [
        (rows, bytes(own), key) for rows, own, key in read[0]
    ]:
        raise Difference("apart it has other parts")
    return read, found


def _v1(model: ModelSpec) -> Callable[[bytes], None]:
    codec, check = V1Model(model), _readable(model)
    value = dumps((model,)).decode(), ANY_NUMBER, None

    def read(data: bytes) -> None:
        (parts, columns), (_, apart) = _alike(
            lambda: codec.requests.parse(data), read_v1, value, data
        )
        assert columns == apart
        check(parts)

    return read


def _v2(model: ModelSpec) -> Callable[[bytes], None]:
    codec, check = V2Model(model, Region()), _readable(model)
    alone = V2Model(model)
    spec = dumps((model,)).decode()

    def read(data: bytes) -> None:
        length, newline, body = data.partition(b"\n")
        json_bytes = int(length) if newline and length.isdigit() and len(length) < 9 else None
        if json_bytes is not None:
            codec.requests.outline(body[:json_bytes], len(body) + 4 - json_bytes)
        if b"shared" not in body:
            value = spec, ANY_NUMBER, False, "", json_bytes
            (_, requested), (_, apart) = _alike(
                lambda: alone.requests.parse(body, json_bytes), read_v2, value, body
            )
            assert requested == decode_requested(apart)
        check(codec.requests.parse(body, json_bytes)[0])

    return read


def _generate(model: ModelSpec) -> Callable[[bytes], None]:
    codec, check = V2Model(model), _readable(model)
    spec: Any = dumps((model,)).decode(), ANY_NUMBER, False, ""

    def read(data: bytes) -> None:
        (_, requested), (_, apart) = _alike(
            lambda: codec.requests.read(infer_request(decoded(data), model), data),
            read_generate,
            spec,
            data,
        )
        assert requested == decode_requested(apart)
        check(codec.requests.read(infer_request(decoded(data), model), data)[0])

    return read


def _grpc(model: ModelSpec) -> Callable[[bytes], None]:
    read, check = requests_of(model, Region()).read, _readable(model)
    message = inference("ModelInferRequest")
    alone = requests_of(model).read
    value: Any = dumps((model,)).decode(), ANY_NUMBER, False, []

    def look(data: bytes) -> None:
        found = message.FromString(data)
        about = weighed(data)
        assert about[:3] == (found.model_name, found.model_version, found.id)
        assert about.other_bytes <= len(data) - sum(map(len, found.raw_input_contents))
        if b"shared" not in data:
            (_, requested, _), (_, apart) = _alike(
                lambda: alone(message.FromString(data)), read_grpc, value, data
            )
            assert requested == decode_grpc_requested(apart)
        check(read(found).parts)

    return look


def read_texts_here(
    form: str, data: bytes, max_in_flight: int = ANY_NUMBER
) -> TokenizedTexts | None:
    """Return a body about texts as tokens, or None if it holds plain texts."""
    given = FORMS[form].read(data).given
    parts = ((len(given), given, 0),)
    if not given.ids:
        assert text_model(_TEXTS, max_in_flight).given(parts) is given
        return None
    encoded, payloads = encode_parts(_TEXTS, max_in_flight, parts, texts=True)
    ((_, made, _),) = decode_parts(encoded, [memoryview(payload) for payload in payloads])
    assert isinstance(made, TokenizedTexts)
    return made


def _texts(form: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        made = read_texts_here(form, data)
        assert made is None or sum(part.rows for part in made.parts) == len(made)

    return read


def _completion(*, chat: bool) -> Callable[[bytes], None]:
    """Read a body, and put a prompt of tokens into memory."""
    readable, generator = _readable(_GENERATOR), TextGenerator(_GENERATOR)
    models = cast(Models, SimpleNamespace(by_address={_GENERATOR.name: _GENERATOR}))

    def read(data: bytes) -> None:
        # Metrics and log read a body again that is refused.
        meant = meant_model(models, [_GENERATOR.name], data, MAX_REQUEST_BYTES)
        assert meant is None or cast(object, meant) is _GENERATOR
        asked = completion_bodies.read(data, chat=chat)
        if asked.prompts and all(isinstance(one, list) for one in asked.prompts):
            for ids in generator.prompts_of(asked):
                values = generator.options(asked) | {"max_tokens": generator.max_tokens(asked, 1)}
                readable((generator.prompts.part(ids, values),))

    return read


def _bytes_tensor(data: bytes) -> None:
    count = data[0] if data else 0
    found = bytes_tensor.elements(data, 1, max(len(data) - 1, 0), count)
    again = bytes_tensor.joined(data[start:end] for start, end in found)
    assert again == data[1:]


def _expanded(coding: str) -> Callable[[bytes], None]:
    def expand(data: bytes) -> None:
        expander = Expander(coding, LIMIT_BYTES)
        for start in range(0, len(data), 1000):
            for _ in expander.steps(data[start : start + 1000]):
                pass
        assert len(expander.finish()) <= LIMIT_BYTES

    return expand


def _header_block(data: bytes) -> None:
    """Decode a block of a connection twice, as the table and the memory change in between."""
    memory = HeaderReader(lambda request: request, FloodBudget())
    for _ in range(2):
        memory.request(data)


def _accept_encoding(data: bytes) -> None:
    assert acceptance(data.decode("latin-1")).coding in (None, *CODINGS)


def _content_encoding(data: bytes) -> None:
    assert coding_of(data.decode("latin-1")) in (None, *CODINGS)


def _timeout(data: bytes) -> None:
    assert 0 < timeout_ns_of(data.decode("latin-1")) <= 10**18


def _asked_events(data: bytes) -> None:
    asks = asks_for_events(data, parameters=False)
    assert asks_for_events(data, parameters=True) >= asks
    assert not asks or json.loads(data)["stream"] is True


def _shared_memory(data: bytes) -> None:
    given = registration(data)
    assert "/" not in object_name(given.key, ("/ok_",))


def _parameters(data: bytes) -> None:
    value = json.loads(data)
    if isinstance(value, dict):
        span = span_of(value, "it", Region())
        assert span is None or (span.offset >= 0 and span.size >= 0)


def _region_words(data: bytes) -> None:
    words = memoryview(data[: len(data) & -8]).cast("Q").tolist()
    fields, text = words[:FIELDS], words[FIELDS:]
    if len(fields) == FIELDS and (count := text_words(fields)) and count <= len(text):
        region = decode(fields, text[:count])
        assert region is None or region.size > 0


def _classification(data: bytes) -> None:
    values = np.frombuffer(data[1 : 1 + ((len(data) - 1) & -4)], "<f4") if data else np.empty(0)
    for count in (1, 3, data[0] if data else 1):
        assert len(classes_of(values.reshape(1, -1), count)) <= max(count, 1) * max(len(values), 1)


Target = tuple[Callable[[bytes], object], tuple[type[Exception], ...]]
TARGETS: Final[dict[str, Target]] = {
    **{f"v1 {model.name}": (_v1(model), (RequestError,)) for model in SPECS},
    **{f"v2 {model.name}": (_v2(model), (RequestError,)) for model in SPECS},
    **{f"generate {model.name}": (_generate(model), (RequestError,)) for model in SPECS},
    **{f"grpc {model.name}": (_grpc(model), (RequestError, DecodeError)) for model in SPECS},
    **{f"texts {form}": (_texts(form), (RequestError,)) for form in FORMS},
    "completion": (_completion(chat=False), (RequestError,)),
    "chat": (_completion(chat=True), (RequestError,)),
    "head": (partial(check_head, max_request_bytes=MAX_REQUEST_BYTES), ()),
    "bytes tensor": (_bytes_tensor, (bytes_tensor.Unsound,)),
    **{coding: (_expanded(coding), (RequestError,)) for coding in CODINGS},
    "header block": (_header_block, (ConnectionFault, StreamFault)),
    "accept encoding": (_accept_encoding, ()),
    "content encoding": (_content_encoding, (CodingNotSupported,)),
    "timeout": (_timeout, (RequestError,)),
    "asked events": (_asked_events, (RequestError,)),
    "registration": (_shared_memory, (RequestError,)),
    "parameters": (_parameters, (RequestError, ValueError, RecursionError)),
    "region words": (_region_words, ()),
    "classification": (_classification, ()),
}
"""Decoder of each name, and the exceptions that it may raise."""


def try_one(target: str, data: bytes) -> bool:
    """Return whether a decoder accepts some bytes.

    Raises:
        Exception: any but what it may raise.
    """
    decode_it, allowed = TARGETS[target]
    try:
        decode_it(data)
    except allowed:
        return False
    return True
