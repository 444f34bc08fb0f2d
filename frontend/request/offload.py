"""Offload of large request bodies to another process, and the functions that it runs.

A thread would not help: orjson holds the interpreter's lock while it reads, and so does compiled
code. 16 MB of JSON would stop the event loop for a second or two.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn

from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.offload.messages import Answer, Job, job_of
from ringbatch.frontend.texts.offloaded_texts import encode_parts
from ringbatch.frontend.texts.rows import reordered
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.generate import infer_request
from ringbatch.frontend.v2.offloaded_answers import encode_requested
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.frontend.v2.request import decoded
from ringbatch.frontend.v2.request_records import InferRequest, Requests
from ringbatch.frontend.v2.shared_memory import OFF, ClientMemory, NoMemory
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec, loads

LARGE_BODY_BYTES: Final = 1 << 16
"""The largest body of JSON that the event loop reads. The slowest bodies take 100 ns a byte."""
LARGE_TEXTS_BYTES: Final = 1 << 15
"""The largest body with texts that the event loop reads: at 270 ns a byte in the worst case."""
_MODELS: Final = 64


class Offloaded(Exception):
    """Exception that `Codec.read` raises for a body that is too large for the event loop.

    Attributes:
        job: the function that the other process calls with the value and the body.
        value: the job's first argument, made of plain values.
        finish: takes the result of the job, and returns or raises the same as `Codec.read` would
            for a small body.
        model_timeout_ns: the model's time limit; 0 if only the body names the model.
    """

    def __init__(
        self,
        job: Job,
        value: Any,
        finish: Callable[[Any, Sequence[memoryview]], Any],
        model_timeout_ns: int = 0,
    ) -> None:
        super().__init__()
        self.job = job
        self.value = value
        self.finish = finish
        self.model_timeout_ns = model_timeout_ns


class RefusedMemory(NoMemory):
    """Stand-in for clients' shared memory, which the other process cannot reach."""

    def expect_on(self) -> NoReturn:
        """Raise `InvalidRequest`."""
        raise InvalidRequest(
            f"a request with more than {LARGE_BODY_BYTES} bytes of JSON has no tensors in shared "
            "memory; send their values as binary data, or in shared memory as well"
        )


def write_reordered(value: Any, data: Sequence[memoryview]) -> Answer:
    """Write an answer whose rows came in another order than the request's.

    Args:
        value: the job that writes the answer, and its value; for each row that came, its place in
            the request; the number of rows of each part.
        data: the result of each part.

    Raises:
        RequestError: the job raises it.
    """
    module, name, given, row_order, rows = value
    _, whole = reordered([*zip(rows, data, strict=True)], row_order)
    return job_of(module, name)(given, [whole])


def offload_memory(*, on: bool) -> ClientMemory:
    """Return the stand-in for clients' memory in the other process."""
    return RefusedMemory() if on else OFF


def read_v1(value: Any, data: Sequence[memoryview]) -> Answer:
    """Read a V1 body.

    Args:
        value: the model, as in the model table; the most batches that one request may make; the
            framing of `V1Codec`, as `encode_headers` returns it.
        data: the body.

    Raises:
        RequestError: the body cannot be read.
    """
    spec, max_in_flight, headers = value
    model, v1 = _v1(spec, max_in_flight)
    if headers is None or v1.with_context is None:
        parts, columns = v1.requests.parse(bytes(data[0]))
    else:
        parts, columns = v1.with_context.parse(bytes(data[0]), decode_headers(headers))
    encoded, payloads = encode_parts(spec, max_in_flight, parts, texts=model.tokens is not None)
    return [encoded, columns], payloads


def read_v2(value: Any, data: Sequence[memoryview]) -> Answer:
    """Read a V2 body.

    Args:
        value: the model and the batches, as in `read_v1`; whether clients may have tensors in
            shared memory; the headers, for models that ask; the framing of `V2Codec`.
        data: the body.

    Raises:
        RequestError: the body cannot be read.
    """
    spec, max_in_flight, shares_memory, headers, json_bytes = value
    model, v2 = _v2(spec, max_in_flight, shares_memory)
    request = _requests(v2, headers).parse(bytes(data[0]), json_bytes)
    return _encoded(spec, max_in_flight, model, request)


def read_generate(value: Any, data: Sequence[memoryview]) -> Answer:
    """Read a body of the generate extension.

    Args:
        value: as in `read_v2`, without the framing.
        data: the body.

    Raises:
        RequestError: the body cannot be read.
    """
    spec, max_in_flight, shares_memory, headers = value
    model, v2 = _v2(spec, max_in_flight, shares_memory)
    body = bytes(data[0])
    request = _requests(v2, headers).read(infer_request(decoded(body), model), body)
    return _encoded(spec, max_in_flight, model, request)


def _requests(v2: V2Model, headers: Any) -> Requests:
    return v2.requests if v2.asked is None else v2.asked.with_headers(decode_headers(headers))


def _encoded(spec: str, max_in_flight: int, model: ModelSpec, request: InferRequest) -> Answer:
    parts, requested = request
    texts = model.tokens is not None
    encoded, payloads = encode_parts(spec, max_in_flight, parts, texts=texts)
    return [encoded, encode_requested(requested)], payloads


def encode_headers(headers: RawHeaders | None) -> Any:
    """Return headers in a form for another process; `decode_headers` turns them back."""
    if headers is None or isinstance(headers, bytes):
        return None if headers is None else headers.decode("latin-1")
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]


def decode_headers(encoded: Any) -> RawHeaders:
    """Return the headers that `encode_headers` has put into a form for another process."""
    if isinstance(encoded, str):
        return encoded.encode("latin-1")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in encoded]


@lru_cache(_MODELS)
def _v1(spec: str, max_in_flight: int) -> tuple[ModelSpec, V1Model]:
    (model,) = loads(spec.encode())
    return model, V1Model(model, None, max_in_flight)


@lru_cache(_MODELS)
def _v2(spec: str, max_in_flight: int, shares_memory: bool) -> tuple[ModelSpec, V2Model]:
    (model,) = loads(spec.encode())
    return model, V2Model(model, offload_memory(on=shares_memory), max_in_flight)
