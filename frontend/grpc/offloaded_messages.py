"""Large gRPC messages whose elements the offload process reads and writes."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from ringbatch.frontend.codec.part_limits import PartLimits
from ringbatch.frontend.grpc.answer import GrpcAnswers
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.request import GrpcRequestedOutputs, Requests, requests_of
from ringbatch.frontend.grpc.varints import varint
from ringbatch.frontend.offload.messages import Answer
from ringbatch.frontend.request.offload import decode_headers, offload_memory
from ringbatch.frontend.texts.offloaded_texts import encode_parts
from ringbatch.frontend.v2.requested_outputs import RequestedOutput
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec, loads

MAX_FIELDS: Final = 1024
"""The most fields of a large message, because the event loop goes through them one by one."""
NO_MESSAGE: Final = "the message is no ModelInferRequest"

_MODELS: Final = 64
_Request: Final = inference("ModelInferRequest")
_NAME, _VERSION, _ID, _RAW_INPUT_CONTENTS = 1, 2, 3, 7
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Weighed(NamedTuple):
    """The names and the size of a message, found without parsing it.

    Attributes:
        model_name, model_version, id: as in the message.
        other_bytes: bytes beside the raw contents.
    """

    model_name: str
    model_version: str
    id: str
    other_bytes: int


def weighed(data: bytes) -> Weighed:
    """Scan the fields of a message without parsing them.

    Raises:
        InvalidRequest: the data are no message, or have more than `MAX_FIELDS` fields.
    """
    texts = {_NAME: b"", _VERSION: b"", _ID: b""}
    raw_bytes, at = 0, 0
    for _ in range(MAX_FIELDS):
        if at == len(data):
            try:
                name, version, identity = (text.decode() for text in texts.values())
            except UnicodeDecodeError:
                raise InvalidRequest(NO_MESSAGE) from None
            return Weighed(name, version, identity, len(data) - raw_bytes)
        try:
            key, at = varint(data, at)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                _, at = varint(data, at)
                continue
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind, 0)
            if kind == _BYTES:
                size, at = varint(data, at)
        except IndexError:
            raise InvalidRequest(NO_MESSAGE) from None
        if (not size and kind != _BYTES) or at + size > len(data):
            raise InvalidRequest(NO_MESSAGE)
        if kind == _BYTES and number in texts:
            texts[number] = data[at : at + size]
        elif kind == _BYTES and number == _RAW_INPUT_CONTENTS:
            raw_bytes += size
        at += size
    raise InvalidRequest(f"the message has more than {MAX_FIELDS} fields, which is the most")


def read_grpc(value: Any, data: Sequence[memoryview]) -> Answer:
    """Read a ModelInferRequest.

    Args:
        value: the model, the most batches, and whether clients may have tensors in shared memory,
            as in `read_v2`; the metadata of the call, as `encode_headers` returns it.
        data: the message.

    Raises:
        RequestError: the message is no sound request.
    """
    spec, max_in_flight, shares_memory, headers = value
    model, requests = _requests(spec, max_in_flight, shares_memory)
    parts, wanted, _ = requests.read(parsed(bytes(data[0])), decode_headers(headers))
    texts = model.tokens is not None
    encoded, payloads = encode_parts(spec, max_in_flight, parts, texts=texts)
    return [encoded, encode_requested(wanted)], payloads


def write_grpc(value: Any, data: Sequence[memoryview]) -> Answer:
    """Write a ModelInferResponse.

    Args:
        value: the model, as in the model table; the requested outputs, see `encode_requested`; the
            fields before the outputs; the rows of each part.
        data: the result of each part.

    Raises:
        RequestError: as in `GrpcAnswers.render`.
    """
    spec, asked, fields, rows = value
    parts = [*zip(rows, data, strict=True)]
    answer = _answers(spec).render(parts, decode_requested(asked), fields.encode("latin-1"))
    return None, [answer]


def encode_requested(requested: GrpcRequestedOutputs) -> list[Any]:
    """Return requested outputs in a form for another process, for `decode_requested`."""
    outputs, *rest, limits = requested
    return [[*map(list, outputs)], *rest, [*limits]]


def decode_requested(value: Any) -> GrpcRequestedOutputs:
    """Return the requested outputs that another process has encoded."""
    outputs, typed, timeout_ns, level, says_end, limits = value
    wanted, own = tuple(RequestedOutput(*output) for output in outputs), PartLimits(*limits)
    return GrpcRequestedOutputs(wanted, typed, timeout_ns, level, says_end, own)


def parsed(data: bytes) -> Any:
    """Parse a message.

    Raises:
        InvalidRequest: the data are no message.
    """
    try:
        return _Request.FromString(data)
    except DecodeError:
        raise InvalidRequest(NO_MESSAGE) from None


@lru_cache(_MODELS)
def _answers(spec: str) -> GrpcAnswers:
    (model,) = loads(spec.encode())
    return GrpcAnswers(model)


@lru_cache(_MODELS)
def _requests(spec: str, max_in_flight: int, shares_memory: bool) -> tuple[ModelSpec, Requests]:
    (model,) = loads(spec.encode())
    return model, requests_of(model, offload_memory(on=shares_memory), max_in_flight)
