"""CPU time for which the largest bodies and answers hold the event loop."""

import gc
import gzip
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final

import orjson
import pytest
from frontend_harness import FrontendHarness, typed, untyped
from fuzz.requests import request
from fuzz.sides import LIMIT_BYTES, GrpcSide, HttpSide, Side, converse
from fuzz.turns import MOST_S, Turns
from grpc_harness import INFER
from http2_harness import GREETING, USUAL, block, data, headers
from tiers import exhaustive

from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.falcon.text_resources import EmbeddingsCodec, TextFraming
from ringbatch.frontend.grpc.inference import Framing, Inference
from ringbatch.frontend.grpc.message_reader import framed
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.http2.frames import END_STREAM
from ringbatch.frontend.request.offload_process import OtherProcess
from ringbatch.frontend.request.service import Service
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import TEXT, Tokens

pytestmark = exhaustive

TRIES: Final = 3
_CHANCE: Final = random.Random(0)
READ_BYTES: Final = 256_000
"""Bytes that an event loop reads at once."""
_TYPED: Final = replace(typed(), max_batch_size=4096)
_UNTYPED: Final = untyped("double", max_batch_size=4096)
_LARGE: Final = replace(_TYPED, max_batch_size=1 << 21)
"""Model that takes the largest body as one batch."""
_TEXTS: Final = untyped(
    "double",
    inputs=(TEXT,),
    outputs=(Tensor("embedding", "FP32", [64]),),
    max_batch_size=4096,
    max_batch_elements=256,
    length_buckets=(8, 256),
    tokens=Tokens("/none", "", 256, truncate=True, pairs=False, vocabulary=9),
)


@pytest.fixture(autouse=True)
def _no_garbage_of_others() -> None:
    # As a frontend does at its start: what other tests have left is not gone through.
    gc.collect()
    gc.freeze()


Ask = Callable[[Turns, Service, list[Any]], Side | None]
"""Function that sends a request to a service, turn by turn.

Answers go into the list, or out of the connection.
"""


def filled(front: bytes, item: bytes, back: bytes, most: int = 1 << 40) -> bytes:
    """A body as large as the limit allows, or with the most items."""
    count = min((LIMIT_BYTES - len(front) - len(back)) // (len(item) + 1), most)
    return front + b",".join([item] * count) + back


def v1_body(item: bytes) -> bytes:
    return filled(b'{"instances":[', item, b"]}", 4096 * 1024)


def v1(item: bytes) -> Ask:
    body = v1_body(item)
    return lambda turns, service, answers: turns.call(
        service.predict, "double", body, answers.append
    )


def v2_front(rows: int, binary_bytes: int | None = None) -> bytes:
    front = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d,2],' % rows
    if binary_bytes is None:
        return front + b'"data":['
    return front + b'"parameters":{"binary_data_size":%d}}]}' % binary_bytes


def v2(turns: Turns, service: Service, answers: list[Any]) -> None:
    rows = LIMIT_BYTES // 9
    body = v2_front(rows) + b",".join([b"2.5"] * 2 * rows) + b"]}]}"
    turns.call(service.infer, "double", body, None, answers.append)


def grpc_message(*, raw: bool) -> bytes:
    message = inference("ModelInferRequest")(model_name="double")
    rows = LIMIT_BYTES // 8 - 100
    given = message.inputs.add(name="x", datatype="FP32", shape=[rows, 2])
    if raw:
        message.raw_input_contents.append(bytes(8 * rows))
    else:
        # Of few values, which come again in no order: slow to expand.
        values = [_CHANCE.getrandbits(9) / 4 for _ in range(1 << 14)]
        given.contents.fp32_contents.extend((values * (rows >> 12))[: 2 * rows])
    found: bytes = message.SerializeToString()
    return found


def grpc(turns: Turns, service: Service, answers: list[Any]) -> None:
    message = grpc_message(raw=False)
    turns.call(Inference(service).start, message, 0, Framing(), answers.append)


def embeddings(turns: Turns, service: Service, answers: list[Any]) -> None:
    body = filled(b'{"input":[', b"[" + b",".join([b"5"] * 200) + b"]", b"]}", 16_000)
    codec = EmbeddingsCodec(service)
    turns.call(service.pipeline.start, codec, "", body, TextFraming(), answers.append)


# Whole connections

V1, V2 = b"/v1/models/double:predict", b"/v2/models/double/infer"


def over_http(sent: bytes) -> Ask:
    """The bytes of a connection of HTTP."""

    def ask(turns: Turns, service: Service, answers: list[Any]) -> Side:
        side = HttpSide(turns, create_app(service, LIMIT_BYTES), service)
        converse(turns, side, sent, READ_BYTES, patient=True)
        return side

    return ask


def over_grpc(body: bytes, *fields: tuple[bytes, bytes]) -> Ask:
    """A call of ModelInfer."""
    sent = stream(INFER.encode(), body, (b"content-type", b"application/grpc"), *fields)

    def ask(turns: Turns, service: Service, answers: list[Any]) -> Side:
        side = GrpcSide(turns, lambda _: Inference(service))
        converse(turns, side, sent, READ_BYTES, patient=True)
        return side

    return ask


def stream(path: bytes, body: bytes, *fields: tuple[bytes, bytes]) -> bytes:
    """A connection of HTTP/2 with one request."""
    usual = (*USUAL[:2], (b":path", path), *USUAL[3:])
    pieces = (body[at : at + (1 << 14)] for at in range(0, len(body), 1 << 14))
    frames = b"".join(data(1, piece) for piece in pieces)
    first = headers(1, 0, block(*fields, fields=usual))
    return GREETING + first + frames + data(1, b"", END_STREAM)


def in_chunks(body: bytes, each: int) -> bytes:
    """A request whose body comes in chunks, which say nothing but their length."""
    chunks = (body[at : at + each] for at in range(0, len(body), each))
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (
        V1,
        framed,
    )


def with_binary(text: bytes, rows: int) -> bytes:
    """A request of V2 with a tensor behind its text."""
    line = b"Inference-Header-Content-Length: %d" % len(text)
    return request(line, body=text + bytes(8 * rows), path=V2)


def long_text(rows: int) -> bytes:
    front = v2_front(rows, 8 * rows)
    item = b'"abcdef":1'
    return filled(front[:-1] + b',"parameters":{', item, b"}}", (LIMIT_BYTES - 9 * rows) // 11)


def packed(message: bytes) -> bytes:
    """A compressed message of gRPC."""
    found = gzip.compress(message, 1)
    return b"\1" + len(found).to_bytes(4, "big") + found


GZIP: Final = (b"grpc-encoding", b"gzip")


@cache
def _v1() -> bytes:
    return v1_body(b"[1,2]")


@cache
def _zipped() -> bytes:
    """Return a compressed body with so many rows that none repeats within the coding's window."""
    bits = random.Random(0).getrandbits
    rows = (b"[%d,%d]" % (bits(9), bits(9)) for _ in range(1 << 13))
    return gzip.compress(v1_body(b",".join(rows)), 1)


_CODED: Final = b"content-encoding", b"gzip"
_BINARY_ROWS: Final = LIMIT_BYTES // 8 - 100


def echo(asked: Request) -> bytes:
    """The result of a model that doubles vectors."""
    return bytes(8 * asked.rows)


WAYS: Final[dict[str, tuple[ModelSpec, Callable[[], Ask], Callable[[Request], bytes]]]] = {
    "V1 typed": (_TYPED, lambda: v1(b"[1,2]"), echo),
    "V1 untyped": (_UNTYPED, lambda: v1(b"[1.5]"), lambda asked: orjson.dumps([1.5] * asked.rows)),
    "V2": (_TYPED, lambda: v2, echo),
    "gRPC typed": (_TYPED, lambda: grpc, echo),
    "embeddings": (
        replace(_TEXTS, max_batch_elements=1 << 14),
        lambda: embeddings,
        lambda asked: bytes(4 * 64 * asked.rows),
    ),
    "embeddings in too many batches": (
        _TEXTS,
        lambda: embeddings,
        lambda asked: bytes(4 * 64 * asked.rows),
    ),
    "zeros": (replace(_UNTYPED, max_batch_size=32), lambda: v1(b"0"), echo),
    "HTTP/1.1": (_TYPED, lambda: over_http(request(body=_v1(), path=V1)), echo),
    "HTTP/1.1 in chunks": (_TYPED, lambda: over_http(in_chunks(_v1(), 16)), echo),
    "HTTP/1.1 gzip": (
        _TYPED,
        lambda: over_http(request(b"Content-Encoding: gzip", body=_zipped(), path=V1)),
        echo,
    ),
    "HTTP/2": (_TYPED, lambda: over_http(stream(V1, _v1())), echo),
    "HTTP/2 gzip": (_TYPED, lambda: over_http(stream(V1, _zipped(), _CODED)), echo),
    "HTTP/1.1 tensor": (
        _LARGE,
        lambda: over_http(with_binary(v2_front(_BINARY_ROWS, 8 * _BINARY_ROWS), _BINARY_ROWS)),
        echo,
    ),
    "HTTP/1.1 tensor behind a long text": (
        _LARGE,
        lambda: over_http(with_binary(long_text(1 << 15), 1 << 15)),
        echo,
    ),
    "gRPC tensor": (_LARGE, lambda: over_grpc(framed(grpc_message(raw=True))), echo),
    "gRPC in elements": (_TYPED, lambda: over_grpc(framed(grpc_message(raw=False))), echo),
    "gRPC gzip": (_TYPED, lambda: over_grpc(packed(grpc_message(raw=False)), GZIP), echo),
}


def lead(turns: Turns, spec: ModelSpec, ask: Ask, result: Callable[[Request], bytes]) -> int:
    """Time a request from its first byte to its answer's last; return its number of slots."""
    harness = FrontendHarness(spec, slots=1024, lane_bytes=4 * LIMIT_BYTES)
    # What an engine has used before is there; new pages would be the first request's.
    harness.segment.memory[-4 * LIMIT_BYTES :] = bytes(4 * LIMIT_BYTES)
    other = harness.service.engine.apart = OtherProcess()
    answers: list[Any] = []
    side = ask(turns, harness.service, answers)

    def answered() -> bool:
        return bool(answers) or (side is not None and side.transport.answers > 0)

    turns.until(lambda: harness.lane.in_flight or answered())
    turns.call(harness.loop.turn)
    requests = harness.taken()
    for asked in requests:
        found, start = result(asked), asked.result_offset
        harness.segment.memory[start : start + len(found)] = found
        mark = BatchMark(1, asked.rows, Reason.IDLE, 0)
        harness.engine_slots.answer(asked.ref, Status.OK, len(found), mark, 0)
    harness.engine_slots.flush()
    turns.call(harness.gateway.collect)
    turns.until(answered)
    if side is not None:
        turns.call(side.leave)
    other.close()
    return len(requests)


REFUSED: Final = {"zeros", "embeddings in too many batches"}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_within_the_limits_holds_the_loop(way: str) -> None:
    spec, make, result = WAYS[way]
    ask = make()
    for _ in range(TRIES):
        turns = Turns()
        slots = lead(turns, spec, ask, result)
        turns.close()
        assert bool(slots) != (way in REFUSED)
        if turns.longest_s <= MOST_S:
            return
    pytest.fail(f"a turn took {turns.longest_s * 1e3:.1f} ms")
