"""A segment with lanes for clients, an engine that answers as a test tells it, threads that ask.

The engine is a holder in the place of collector and worker: it takes what clients have submitted,
and answers one request after the other, without batches.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

import numpy as np
import pytest
from numpy.typing import NDArray
from segment_fixture import spec

from ringbatch.frontend import Client
from ringbatch.shm.counters import Counters, LaneCounter
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout, aligned
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, Status, without_part
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "INT64", [])
GROWING = Tensor("y", "INT64", [-1])
DAY_NS = 24 * 3600 * 10**9
FOREVER_NS = 1 << 50
CAP = 4
MODELS = (
    spec(0, [X], [X], name="same", max_batch_size=CAP, timeout_ns=DAY_NS),
    spec(1, [X], [GROWING], name="growing", max_batch_size=CAP, timeout_ns=DAY_NS),
    spec(2, name="untyped", max_batch_size=CAP, timeout_ns=DAY_NS),
)
CLIENT_LANE = 1
"""Lane of the first client, behind that of the frontend."""
WaitUntil = Callable[..., object]
MARK = BatchMark(1, 1, Reason.IDLE, 1)
Answer = bytes | tuple[Status, str]
Predict = Callable[[bytes, Request], Answer]
"""Function from a payload and its header to a result, or to a failure's status and text."""


def echo(payload: bytes, _request: Request) -> Answer:
    """Return the payload as the result."""
    return payload


_LEFT_AFTER_S: Final = 5.0


class ClientHarness:
    """See the module.

    Attributes:
        segment: the segment, as its maker has it.
        rung: number of rings at the collector.
        again: references that came once more, as their clients cancelled.
        threads_before: threads that ran before any client of this engine.

    Args:
        models: in the model table.
        slots: of each lane.
    """

    def __init__(
        self, models: Sequence[ModelSpec], *, slots: int = 16, lanes: int = 2, pages: int = 64
    ) -> None:
        layout = Layout(
            lanes=1 + lanes,
            slots=slots,
            lane_bytes=pages * PAGE,
            workers=1,
            models=len(models),
            model_table_bytes=aligned(len(dumps(tuple(models))), PAGE),
            client_lanes=lanes,
        )
        self.segment = Segment.create(layout, tuple(models))
        self._bells = [self.segment.lane_doorbell(lane) for lane in range(layout.lanes)]
        self._engine_slots = EngineSlots(self.segment, 0, lambda lane: self._bells[lane].wake())
        self._taken: set[int] = set()
        self.again: list[int] = []
        self._submissions = [
            Consumer(self.segment.words, layout.submission_ring(lane), layout.slots)
            for lane in range(layout.lanes)
        ]
        self._stop = threading.Event()
        self._serving: list[threading.Thread] = []
        self.threads_before = threading.enumerate()
        for model in models:
            publish(self.segment.words, layout.model(model.index), ModelState.SERVING)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._serving:
            # A model of the test's may never return.
            thread.join(_LEFT_AFTER_S)
        for bell in self._bells:
            bell.close()
        self.segment.unlink()
        self.segment.detach()

    def end(self) -> None:
        """Release the life lock, as if the engine's supervisor had ended."""
        self.segment.disown()

    @property
    def name(self) -> str:
        """Name of the segment, for `Client(segment=...)`."""
        return self.segment.name

    def take(self) -> list[int]:
        """References to the requests submitted since the last call, each the first time."""
        submitted = [without_part(ref) for ring in self._submissions for ref in ring.take()]
        self.again += [ref for ref in submitted if ref in self._taken]
        new = dict.fromkeys(ref for ref in submitted if ref not in self._taken)
        self._taken.update(new)
        return [*new]

    def payload(self, ref: int) -> tuple[bytes, Request]:
        """Return the payload of a request and its header."""
        request = self._engine_slots.read(ref)
        assert request is not None, "published before its header"
        start = request.request_offset
        return bytes(self.segment.memory[start : start + request.request_bytes]), request

    def answer(self, references: Sequence[int], predict: Predict = echo) -> None:
        """Answer these requests, those that their client still wants as well as the others."""
        for ref in references:
            payload, request = self.payload(ref)
            result = predict(payload, request)
            if isinstance(result, tuple):
                self._engine_slots.fail(request, *result, MARK, 1)
            elif len(result) > request.result_capacity:
                self._engine_slots.answer(ref, Status.RESULT_TOO_LARGE, len(result), MARK, 1)
            else:
                start = request.result_offset
                self.segment.memory[start : start + len(result)] = result
                self._engine_slots.answer(ref, Status.OK, len(result), MARK, 1)
        self._engine_slots.flush()

    def serve(self, predict: Predict = echo) -> threading.Thread:
        """Answer everything from now on, in a thread of its own; until the end, or until joined
        after `halt`."""
        doorbell = self.segment.collector_doorbell()

        def run() -> None:
            while not self._stop.is_set():
                self.answer(self.take(), predict)
                doorbell.wait(0.05)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._serving.append(thread)
        return thread

    def halt(self, thread: threading.Thread) -> None:
        """End the threads that `serve` began."""
        self._stop.set()
        thread.join()
        self._stop.clear()

    def everything_is_free(self, lane: int) -> bool:
        """Return whether the next owner of a client's lane finds all of it free."""
        assert self.segment.lock_lane(lane), "the lane is held"
        self.answer(self.take())
        heir = Lane(self.segment, lane, lambda: None)
        heir.collect()
        return heir.in_flight == 0


def numbers(*values: int) -> NDArray[Any]:
    """Return an input of the models."""
    return np.array(values, dtype=np.int64)


class Asking(threading.Thread):
    """A thread that asks once, and what came of it."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.answer: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._ask()
        except BaseException as error:
            self.error = error


def taken(harness: ClientHarness, count: int, wait_until: WaitUntil) -> list[int]:
    """References to the next `count` requests."""
    found: list[int] = []

    def enough() -> bool:
        found.extend(harness.take())
        return len(found) >= count

    wait_until(enough, f"{count} requests are submitted")
    assert len(found) == count
    return found


def counted(harness: ClientHarness, counter: LaneCounter) -> int:
    """Return a counter of the first client."""
    layout = harness.segment.layout
    return Counters(harness.segment.words, layout.lane_counters(CLIENT_LANE))[counter]


def own_threads(harness: ClientHarness) -> list[threading.Thread]:
    """Return the threads that clients have started since the engine is there."""
    threads = (each for each in threading.enumerate() if each.name == "ringbatch client")
    return [thread for thread in threads if thread not in harness.threads_before]


def is_asleep(client: Client) -> bool:
    """Return whether a thread of the client sleeps at the doorbell."""
    return client._session.channel._leader is not None


@pytest.fixture
def plain_harness() -> Iterator[ClientHarness]:
    """Yield an engine of `MODELS`."""
    with ClientHarness(MODELS) as made:
        yield made


@pytest.fixture
def usual_client(harness: ClientHarness) -> Iterator[Client]:
    """Yield a client of the file's engine."""
    with Client(segment=harness.name) as made:
        yield made


@pytest.fixture(params=[0, 200], ids=["sleeping", "spinning"])
def client_that_waits(harness: ClientHarness, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Yield a client of the file's engine for each way to wait."""
    with Client(segment=harness.name, spin_us=request.param) as made:
        yield made
