"""How long the event loop is held by the largest bodies and answers, by its own CPU time."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import orjson
import pytest
from frontend_harness import FrontendHarness, typed, untyped
from fuzz.growth import CROWDED
from tiers import exhaustive

from ringbatch.frontend.falcon.text_resources import Asked, EmbeddingsCodec
from ringbatch.frontend.grpc.inference import Framing, Inference
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.request.other_process import OtherProcess
from ringbatch.shm.engine_port import BatchMark, Request
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.texts import TEXT, Tokens

pytestmark = exhaustive

MOST_S: Final = 0.02 * CROWDED
TRIES: Final = 3
LIMIT_BYTES: Final = 1 << 24
"""The default of max_request_bytes."""
_TYPED: Final = replace(typed(), max_batch_size=4096)
_UNTYPED: Final = untyped("double", max_batch_size=4096)
_TEXTS: Final = untyped(
    "double",
    inputs=(TEXT,),
    outputs=(Tensor("embedding", "FP32", [64]),),
    max_batch_size=4096,
    max_batch_elements=256,
    length_buckets=(8, 256),
    tokens=Tokens("/none", "", 256, truncate=True, pairs=False, vocabulary=9),
)


class Held:
    """Notes the longest turn of an event loop, but for those of the test's own task."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.what = ""

    def call(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function as the loop would."""
        began = time.thread_time()
        try:
            return function(*arguments)
        finally:
            took_s = time.thread_time() - began
            if took_s > self.longest_s:
                self.longest_s, self.what = took_s, what


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    # As a frontend does at its start: what other tests have left is not gone through.
    gc.collect()
    gc.freeze()
    held, run = Held(), asyncio.Handle._run

    def timed(handle: Any) -> None:
        what = repr(handle)
        if "TaskStep" in what or "task_wakeup" in what:
            run(handle)
        else:
            held.call(what, run, handle)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    yield held
    gc.unfreeze()


def filled(front: bytes, item: bytes, back: bytes, most: int = 1 << 40) -> bytes:
    """A body as large as the limit allows, or with the most items."""
    count = min((LIMIT_BYTES - len(front) - len(back)) // (len(item) + 1), most)
    return front + b",".join([item] * count) + back


def v1(item: bytes) -> Callable[[Any], Callable[..., Any]]:
    body = filled(b'{"instances":[', item, b"]}", 4096 * 1024)
    return lambda service: lambda reply: service.predict("double", body, reply)


def v2(service: Any) -> Callable[..., Any]:
    rows = LIMIT_BYTES // 9
    front = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d,2],"data":[' % rows
    body = front + b",".join([b"2.5"] * 2 * rows) + b"]}]}"
    return lambda reply: service.infer("double", body, None, reply)


def grpc(service: Any) -> Callable[..., Any]:
    message = inference("ModelInferRequest")(model_name="double")
    rows = LIMIT_BYTES // 8 - 100
    given = message.inputs.add(name="x", datatype="FP32", shape=[rows, 2])
    given.contents.fp32_contents.extend([1.5] * 2 * rows)
    data = message.SerializeToString()
    return lambda reply: Inference(service).start(data, 0, Framing(), reply)


def embeddings(service: Any) -> Callable[..., Any]:
    body = filled(b'{"input":[', b"[" + b",".join([b"5"] * 200) + b"]", b"]}", 32_000)
    codec = EmbeddingsCodec(service)
    return lambda reply: service.pipeline.start(codec, "", body, Asked(), reply)


def echo(request: Request) -> bytes:
    """The result of a model that doubles vectors."""
    return bytes(8 * request.rows)


WAYS: Final[dict[str, tuple[ModelSpec, Callable[[Any], Any], Callable[[Request], bytes]]]] = {
    "V1 typed": (_TYPED, v1(b"[1,2]"), echo),
    "V1 untyped": (_UNTYPED, v1(b"[1.5]"), lambda request: orjson.dumps([1.5] * request.rows)),
    "V2": (_TYPED, v2, echo),
    "gRPC typed": (_TYPED, grpc, echo),
    "embeddings": (_TEXTS, embeddings, lambda request: bytes(4 * 64 * request.rows)),
    "zeros": (replace(_UNTYPED, max_batch_size=32), v1(b"0"), echo),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_within_the_limits_holds_the_loop(way: str, held: Held) -> None:
    spec, begin, result = WAYS[way]

    async def asked() -> None:
        harness = FrontendHarness(spec, slots=1024, lane_bytes=2 * LIMIT_BYTES)
        other = harness.service.engine.apart = OtherProcess()
        answers: list[Any] = []
        held.call("start", begin(harness.service), answers.append)
        while not harness.lane.in_flight and not answers:
            await asyncio.sleep(0.001)
        harness.loop.turn()
        requests = harness.taken()
        for request in requests:
            found, start = result(request), request.result_offset
            harness.segment.memory[start : start + len(found)] = found
            mark = BatchMark(1, request.rows, Reason.IDLE, 0)
            harness.port.answer(request.ref, Status.OK, len(found), mark, 0)
        harness.port.flush()
        held.call("collect", harness.gateway.collect)
        while not answers:
            await asyncio.sleep(0.001)
        other.close()

    for _ in range(TRIES):
        held.longest_s = 0.0
        asyncio.run(asked())
        if held.longest_s <= MOST_S:
            return
    pytest.fail(f"{held.what} took {held.longest_s * 1e3:.1f} ms")
