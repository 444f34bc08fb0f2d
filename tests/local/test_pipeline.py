"""Request pipeline of all protocols: each of them reports the same outcomes alike."""

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest
from frontend_harness import SECOND_NS, TIMEOUT_NS, FrontendHarness, untyped

from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.grpc.inference import Framing, GrpcAnswer, Inference
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.request.arrival import LARGE_BYTES
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.pipeline import Pipeline
from ringbatch.frontend.routes.codec import InProcessCodec
from ringbatch.frontend.routes.models import Settled
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor

COUNT = LARGE_BYTES // 4
VALUES = np.arange(COUNT, dtype="<f4")
MODEL = untyped(
    "large", inputs=(Tensor("x", "FP32", [COUNT]),), outputs=(Tensor("y", "FP32", [COUNT]),)
)
INPUT = {"name": "x", "shape": [1, COUNT], "datatype": "FP32"}
BINARY = orjson.dumps(
    {
        "inputs": [INPUT | {"parameters": {"binary_data_size": LARGE_BYTES}}],
        "outputs": [{"name": "y", "parameters": {"binary_data": False}}],
    }
)


class Case:
    """A service of one model, and the answers that came."""

    def __init__(self) -> None:
        self.harness = FrontendHarness(MODEL, lane_bytes=1 << 21)
        self.service = self.harness.service
        self.answers: list[Answer] = []

    @property
    def ends(self) -> list[tuple[int, Any]]:
        """Status and text of each answer."""
        return [(status, orjson.loads(body).get("error", "")) for status, body, _ in self.answers]

    def v1(self, timeout_ns: int) -> RequestHandle | None:
        body = orjson.dumps({"instances": [VALUES.tolist()]})
        return self.service.predict("large", body, self.answers.append, timeout_ns)

    def v2(self, timeout_ns: int) -> RequestHandle | None:
        body = orjson.dumps({"inputs": [INPUT | {"data": VALUES.tolist()}]})
        return self.service.infer("large", body, None, self.answers.append, timeout_ns)

    def v2_binary(self, timeout_ns: int) -> RequestHandle | None:
        body = BINARY + VALUES.tobytes()
        return self.service.infer("large", body, len(BINARY), self.answers.append, timeout_ns)

    def upload(self, timeout_ns: int) -> RequestHandle | None:
        upload = self.service.prepare("large", BINARY, LARGE_BYTES, timeout_ns)
        assert upload is not None
        upload.memory[:] = VALUES.tobytes()
        return upload.arrived(self.answers.append)

    def grpc(self, timeout_ns: int) -> RequestHandle | None:
        fields = {"model_name": "large", "inputs": [INPUT]}
        message = inference("ModelInferRequest")(**fields, raw_input_contents=[VALUES.tobytes()])
        data = message.SerializeToString()
        inferences = Inference(self.service)
        return inferences.start(data, timeout_ns, Framing(), self._reply)

    def _reply(self, answer: GrpcAnswer) -> None:
        error = answer.error
        self.answers.append((200, b'{"error":""}', ()) if error is None else outcome(error))

    def in_process(self, timeout_ns: int) -> RequestHandle | None:
        codec = InProcessCodec(self.service)
        values = VALUES.reshape(1, COUNT)
        return self.service.pipeline.start(codec, "large", values, None, self.settle, timeout_ns)

    def settle(self, settled: Settled) -> None:
        answer, error = settled
        if error is not None:
            self.answers.append(outcome(error))
            return
        assert (answer.shape, answer.dtype) == ((1, COUNT), np.float32)
        self.answers.append((200, b'{"error":""}', ()))


def never_served(case: Case, _: pytest.MonkeyPatch) -> None:
    publish(case.harness.segment.words, case.harness.segment.layout.model(0), ModelState.LOADING)


def too_much_waits(case: Case, _: pytest.MonkeyPatch) -> None:
    word = case.service.model("large").answer_word
    case.harness.segment.words[word] = 2 * TIMEOUT_NS


def breaks(_: Case, patch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> None:
        raise ZeroDivisionError("secret detail")

    patch.setattr(Pipeline, "_expect_time", broken)


WAYS = [Case.v1, Case.v2, Case.v2_binary, Case.upload, Case.grpc, Case.in_process]
NAMES = ["V1", "V2", "V2 binary", "upload", "gRPC", "in process"]
Way = Callable[[Case, int], RequestHandle | None]
Misfortune = Callable[[Case, pytest.MonkeyPatch], None]


LATE = "so many requests wait that an answer would take"


@pytest.mark.parametrize("way", WAYS, ids=NAMES)
@pytest.mark.parametrize(
    ("misfortune", "status", "text", "refused"),
    [
        (never_served, 503, 'model "large" is not ready: no worker holds it yet', 0),
        (too_much_waits, 503, f"{LATE} 120.0 s, too long for timeout_s = 60", 1),
        (breaks, 500, "internal error", 0),
    ],
)
def test_a_request_that_cannot_be_sent_is_refused_alike_and_keeps_nothing(
    way: Way,
    misfortune: Misfortune,
    status: int,
    text: str,
    refused: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    case = Case()
    misfortune(case, monkeypatch)
    way(case, 0)
    assert case.ends == [(status, text)]
    assert case.harness.lane.in_flight == 0
    assert case.harness.count(LaneCounter.REFUSED) == refused
    assert len(caplog.records) == (status == 500)
    slots = [case.harness.lane.claim(8, 8, 0) for _ in range(case.harness.lane.capacity)]
    assert None not in slots, "a slot was kept"


@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_a_request_ends_with_its_answer_at_its_deadline_or_with_an_error(way: Way) -> None:
    case = Case()
    harness = case.harness
    for number, end in enumerate(["answer", "deadline", "failure", "abandoned"]):
        call = way(case, 5 * SECOND_NS)
        assert call is not None
        harness.loop.turn()
        (request,) = harness.taken()
        assert request.deadline_ns - request.accepted_ns == 5 * SECOND_NS
        assert harness.payload(request) == VALUES.tobytes()
        if end == "deadline":
            harness.loop.advance(6 * SECOND_NS)
        if end == "abandoned":
            call.abandon()
        harness.answer([request], Status.MODEL_FAILED if end == "failure" else Status.OK, "no")
        harness.gateway.collect()
        assert len(case.ends) == number + (end != "abandoned")
        assert harness.lane.in_flight == 0
    late = "no answer came within the 5 s it asked for"
    assert case.ends == [(200, ""), (504, late), (500, "no")]


@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_the_model_limits_a_clients_timeout(way: Way) -> None:
    case = Case()
    for timeout_ns in (0, 2 * TIMEOUT_NS):
        assert way(case, timeout_ns) is not None
        case.harness.loop.turn()
        (request,) = case.harness.taken()
        assert request.deadline_ns - request.accepted_ns == TIMEOUT_NS
