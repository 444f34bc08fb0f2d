"""The pieces of a request's way, each by itself: what may be called over and over, and measured.

`instructions.py` counts their instructions, `in_process.py` takes their time. A piece says how many
requests one call serves, and what is to happen around the call that is not measured. The model
takes 16 floats and returns 16, so that nearly all of it is ringbatch's.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
from hpack import Encoder
from observability import NOTHING, VARIANTS, Connections
from steps import BODY, FAR_NS, SPEC, Engine

from ringbatch.engine.collector.batching import Policy, decide
from ringbatch.engine.collector.queue import Queue
from ringbatch.engine.worker.tensors import Gatherer, Scatterer
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    frame,
)
from ringbatch.frontend.v1.answer import NumberAnswers
from ringbatch.frontend.v1.request import requests_of
from ringbatch.shm.account import NOBODY
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import FLAG_BITS, Reason, Status, reference
from ringbatch.shm.strided_view import StridedView
from ringbatch.shm.tensor import Tensor
from ringbatch.shm.uniform_batch import UniformBatch, UniformBatchReader

SIZES = (1, 8, 32)
"""Requests in a batch."""
WAITING = (10, 100, 1_000, 10_000)
"""Requests in the queue of which the collector decides."""
ROW_BYTES = 64
"""Bytes of one instance: 16 floats."""
_HEAD = (
    b"POST /v1/models/double:predict HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"
    b"User-Agent: python-httpx/0.28.1\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    b"Connection: keep-alive\r\nContent-Type: application/json\r\nContent-Length: 96\r\n\r\n"
)
_OWN_HEAD = _HEAD.replace(b"Accept:", b"traceparent: 00-%032x-00f067aa0ba902b7-01\r\nAccept:", 1)
_POLICY = Policy(32, 5_000_000, eager=False)
REPEATS = 64
"""Repetitions of pieces that are too short to be measured alone."""
_MARK = BatchMark(1, 1, Reason.IDLE, 0)


@dataclass(frozen=True)
class Piece:
    """Something that is done with every request.

    Attributes:
        run: the measured code.
        serves: requests, or whatever else its cost is told for, in one run.
        before, after: what must happen around it; not measured.
    """

    run: Callable[[], object]
    serves: int
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None

    def turn(self) -> None:
        """Run everything once."""
        self.before()
        self.run()
        self.after()


class Published:
    """A lane and the engine's end of it, without an engine: requests published, and answered.

    Args:
        requests: so many at once, 64 at most.
        payload: the tensor of each request.
    """

    def __init__(self, requests: int, payload: bytes = bytes(ROW_BYTES)) -> None:
        layout = Layout(
            lanes=1,
            slots=64,
            lane_bytes=-(-64 * 4 * max(PAGE, len(payload)) // PAGE) * PAGE,
            workers=1,
            models=1,
            model_table_bytes=PAGE,
        )
        self.segment = Segment.local(layout, (SPEC,))
        self.lane = Lane(self.segment, 0, _nobody)
        self.engine_slots = EngineSlots(self.segment, 0, _nobody)
        self._requests = requests
        self._payload = payload
        self._slots: list[int] = []
        self._found: list[int] = []

    def publish(self) -> None:
        """Publish as a frontend: each request into a slot, then all of them into the ring."""
        send, payload, size = self.lane.send, self._payload, len(self._payload)
        for _ in range(self._requests):
            slot = send(payload, size, 0, 1, 0, FAR_NS)
            assert slot is not None, "the lane has room for all of them"
            self._slots.append(slot)
        self.lane.submit()

    def references(self) -> list[int]:
        """Return the references of the published requests."""
        words, layout = self.segment.words, self.segment.layout
        return [
            reference(words[layout.slot(slot) + SlotWords.CONTROL] >> FLAG_BITS, slot)
            for slot in self._slots
        ]

    def answer(self) -> None:
        """Answer as the engine does."""
        for ref in self.references():
            self.engine_slots.answer(ref, Status.OK, len(self._payload), _MARK, 0)
        self.engine_slots.flush()

    def collect(self) -> None:
        """Collect as a frontend does."""
        self._found = self.lane.collect()

    def release(self) -> None:
        """Free what was collected."""
        assert len(self._found) == self._requests, self._found
        for slot in self._found:
            self.lane.release(slot)
        self._slots.clear()

    def uniform(self) -> UniformBatch:
        """Return the published requests as a worker reads them."""
        batch = UniformBatchReader(self.segment).read(self.references())
        assert batch is not None, "they are alike"
        return batch


def pieces() -> dict[str, Callable[[], Piece]]:
    """Return the makers of the pieces, by name."""
    found: dict[str, Callable[[], Piece]] = {
        f"read {REPEATS} heads not seen before": _head,
        f"read {REPEATS} heads with a trace of their own": _own_head,
        f"parse {REPEATS} V1 bodies": _body,
        f"write {REPEATS} V1 answers' bodies": _answer_body,
        f"receive {REPEATS} calls over HTTP/2": _calls,
        "publish, batch of 8": partial(_published, "publish"),
        "collect, batch of 8": partial(_published, "collect"),
        "bytes of requests to slots, batch of 8": partial(_connections, "to slots"),
        "answers to bytes, batch of 8": partial(_connections, "to bytes"),
    }
    for size in SIZES:
        found[f"dispatch, batch of {size}"] = partial(_step, size, "dispatch")
        found[f"run and answer, batch of {size}"] = partial(_step, size, "run")
        found[f"take the report, batch of {size}"] = partial(_step, size, "report")
    for size in SIZES[1:]:
        found[f"gather, batch of {size}"] = partial(gather, size)
        found[f"scatter, batch of {size}"] = partial(scatter, size)
    for waiting in WAITING:
        found[f"{REPEATS} decisions, {waiting} waiting"] = partial(decision, waiting)
    return found


def gather(size: int, row_bytes: int = ROW_BYTES) -> Piece:
    """Return the piece that copies the inputs of a batch into one array, as a worker does."""
    published, inputs = _batch(size, row_bytes)
    gatherer = Gatherer(published.segment.memory, StridedView(published.segment.memory), inputs)
    uniform = published.uniform()
    return Piece(lambda: gatherer.gather_uniform(uniform), size)


def scatter(size: int, row_bytes: int = ROW_BYTES) -> Piece:
    """Return the piece that copies the rows of a result into the slots' result memory."""
    published, inputs = _batch(size, row_bytes)
    scatterer = Scatterer(published.segment.memory, StridedView(published.segment.memory), inputs)
    uniform, rows = published.uniform(), [np.zeros((size, row_bytes // 4), np.float32)]
    return Piece(lambda: scatterer.scatter_uniform(rows, uniform), size)


def decision(waiting: int) -> Piece:
    """Return the piece that decides about a queue under ``fixed``, with a worker idle.

    Fewer requests than a batch holds wait for more; of a longer queue a batch is full.
    """
    queue, now_ns = Queue(), time.monotonic_ns()
    requests = [
        Request(number, 0, 1, 64, 0, 64, 0, 0, now_ns, now_ns + FAR_NS) for number in range(waiting)
    ]
    queue.extend(requests, waiting, now_ns + FAR_NS, (NOBODY,))

    def run() -> None:
        pending = queue.pending(_POLICY.max_batch_size, others=False, idle=True)
        decide(pending, now_ns, _POLICY, 1)

    return _repeated(run)


def _repeated(run: Callable[[], object]) -> Piece:
    def often() -> None:
        for _ in range(REPEATS):
            run()

    return Piece(often, REPEATS)


def _batch(size: int, row_bytes: int) -> tuple[Published, tuple[Tensor, ...]]:
    published = Published(size, bytes(row_bytes))
    published.publish()
    return published, (Tensor("x", "FP32", [row_bytes // 4]),)


def _head() -> Piece:
    reader = HeadReader(1 << 20)

    def read() -> None:
        reader.forget()
        reader.read(_HEAD)

    return _repeated(read)


def _own_head() -> Piece:
    """Return the piece that reads heads, each with a trace of its own."""
    reader, numbers = HeadReader(1 << 20), count(1)

    def read() -> None:
        reader.read(_OWN_HEAD % next(numbers))

    return _repeated(read)


def _body() -> Piece:
    requests = requests_of(SPEC)
    return _repeated(lambda: requests.parse(BODY))


def _answer_body() -> Piece:
    answers, row = NumberAnswers(SPEC), np.arange(16, dtype=np.float32).reshape(1, 16) / 7
    return _repeated(lambda: answers.write(row, "0123456789abcdef-1"))


def _calls() -> Piece:
    """Return the piece of a client's calls, whose header table soon holds all repeated fields."""
    core: Connection[None] = Connection(lambda _request: None)
    encoder, numbers = Encoder(), count(1, 2)
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/inference.GRPCInferenceService/ModelInfer",
        ":authority": "127.0.0.1:8081",
        "content-type": "application/grpc",
        "te": "trailers",
        "user-agent": "grpc-python/1.80.0",
    }
    message = frame(DATA, END_STREAM, 1, bytes(128))

    def call() -> bytes:
        number = next(numbers).to_bytes(4, "big")
        head = frame(HEADERS, END_HEADERS, 1, encoder.encode([*fields.items()]))
        return b"".join((one[:5] + number + one[9:]) for one in (head, message))

    came: list[bytes] = []

    def before() -> None:
        came.append(b"".join(call() for _ in range(REPEATS)))

    def run() -> None:
        assert len(core.receive(came.pop())) == REPEATS, "each is a stream"

    def after() -> None:
        for stream in list(core.streams.values()):
            core.end(stream, b"")
        core.take_output()

    core.receive(PREFACE + frame(SETTINGS, 0, 0, b"") + call())
    after()
    return Piece(run, REPEATS, before, after)


def _published(piece: str) -> Piece:
    published = Published(8)
    if piece == "publish":

        def after() -> None:
            published.answer()
            published.collect()
            published.release()

        return Piece(published.publish, 8, after=after)

    def before() -> None:
        published.publish()
        published.answer()

    return Piece(published.collect, 8, before, published.release)


def _connections(piece: str) -> Piece:
    connections = Connections(VARIANTS[NOTHING], 8)
    engine = connections.engine

    def serve() -> None:
        engine.collect()
        engine.run()
        engine.collect()

    def answer() -> None:
        engine.answer()
        connections.check()

    if piece == "to slots":

        def after() -> None:
            serve()
            answer()

        return Piece(connections.send, 8, after=after)

    def before() -> None:
        connections.send()
        serve()

    return Piece(engine.answer, 8, before, connections.check)


def _step(size: int, piece: str) -> Piece:
    """Return a step of the engine that a batch goes through, as a piece."""
    engine = Engine(size)
    steps = [engine.send, engine.collect, engine.run, engine.collect, engine.answer]
    place = {"dispatch": 1, "run": 2, "report": 3}[piece]

    def before() -> None:
        for step in steps[:place]:
            step()

    def after() -> None:
        for step in steps[place + 1 :]:
            step()
        engine.check()

    return Piece(steps[place], size, before, after)


def _nobody(*_: object) -> None:
    """Do nothing, in place of a doorbell."""
