"""The decision which requests are traced, and the records that they leave."""

import random

import pytest
from frontend_harness import FrontendHarness, untyped

from ringbatch.frontend.access.recorder import Exchanged, Recorder, recording
from ringbatch.frontend.access.sampling import LOGGED, TRACED, AccessSettings, Draw, Samples
from ringbatch.shm.slow_requests import RequestRecord, slowest
from ringbatch.shm.tallies import Protocol
from ringbatch.shm.traced_requests import TracedReader

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-%b"
SAMPLED, UNSAMPLED = TRACE % b"01", TRACE % b"00"


@pytest.mark.parametrize(
    ("trace", "share", "traced"),
    [
        (SAMPLED, 0.0, True),
        (SAMPLED, 1.0, True),
        (UNSAMPLED, 0.0, False),
        (UNSAMPLED, 1.0, False),
        (TRACE % b"03", 0.0, True),
        (b"", 0.0, False),
        (b"", 1.0, True),
    ],
)
@pytest.mark.parametrize("logged", [None, 0.0, 1.0])
def test_a_request_is_traced_as_its_client_says_or_by_share(
    trace: bytes, share: float, traced: bool, logged: float | None
) -> None:
    log = None if logged is None else Draw(logged, random.random)
    found = Samples(log, Draw(share, random.random)).of(trace)
    assert found == (LOGGED if logged else 0) + (TRACED if traced else 0)


def test_a_sample_has_its_share_beside_clients_that_decide_themselves() -> None:
    samples = Samples(None, Draw(0.01, random.Random(1).random))
    found = [samples.of(UNSAMPLED if number % 2 else b"") for number in range(20_000)]
    assert 80 <= found.count(TRACED) <= 120


def recorder_of(harness: FrontendHarness, settings: AccessSettings) -> Recorder:
    return recording(settings, harness.service.engine, "f")[0]


def end_one(harness: FrontendHarness, recorder: Recorder, trace: bytes = b"") -> None:
    """Have a request answered, and record its end as its connection does."""

    def reply(_answer: object) -> None:
        exchanged = Exchanged(0, b"an-id", trace, "", "", 1, 2)
        drawn = recorder.drawn(trace)
        recorder.record(recorder.outcomes.last(), exchanged, 5, drawn=drawn)

    harness.service.predict(harness.name, b'{"instances":[1, 2]}', reply)
    harness.loop.turn()
    harness.loop.now_ns += 3_000
    harness.answer(harness.taken())
    harness.gateway.collect()


def traced(harness: FrontendHarness) -> list[RequestRecord]:
    return TracedReader(harness.segment).read()


def test_a_traced_request_leaves_its_record() -> None:
    harness = FrontendHarness(untyped(), traced=8)
    end_one(harness, recorder_of(harness, AccessSettings("off", trace_sample=0.0)), SAMPLED)
    (found,) = traced(harness)
    assert (found.trace, found.parent) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert found.span not in ("", found.parent)
    assert (found.request_id, found.code, found.instances) == ("an-id", 200, 2)
    assert (found.protocol, found.found.take, found.found.batch_rows) == (Protocol.V1, 5, 2)
    assert found in slowest(harness.segment, harness.loop.now_ns)


def test_one_without_a_trace_gets_one_and_each_its_own() -> None:
    harness = FrontendHarness(untyped(), traced=8)
    recorder = recorder_of(harness, AccessSettings("off", trace_sample=1.0))
    for _ in range(3):
        end_one(harness, recorder)
    found = traced(harness)
    assert [one.parent for one in found] == [""] * 3
    assert len({one.trace for one in found}) == len({one.span for one in found}) == 3
    assert all(len(one.trace) == 32 and len(one.span) == 16 for one in found)


@pytest.mark.parametrize(("share", "trace"), [(0.0, b""), (1.0, UNSAMPLED)])
def test_one_that_is_not_traced_leaves_nothing(share: float, trace: bytes) -> None:
    harness = FrontendHarness(untyped(), traced=8)
    end_one(harness, recorder_of(harness, AccessSettings("off", trace_sample=share)), trace)
    assert traced(harness) == []


def test_a_probe_is_not_traced_unless_its_client_wants_it() -> None:
    harness = FrontendHarness(untyped(), traced=8)
    recorder = recorder_of(harness, AccessSettings("off", trace_sample=1.0))
    for trace in (b"", SAMPLED):
        harness.service.record_outside(Protocol.HTTP, 200)
        exchanged = Exchanged(0, b"an-id", trace, "GET /v2/health/ready", "", 0, 0)
        recorder.record(recorder.outcomes.last(), exchanged, drawn=recorder.drawn(trace))
    (found,) = traced(harness)
    assert found.trace in SAMPLED.decode()


def test_where_nothing_is_traced_nobody_draws_nor_looks() -> None:
    harness = FrontendHarness(untyped())
    recorder = recorder_of(harness, AccessSettings("failures", trace_sample=1.0))
    assert recorder.outcomes.traced is None
    assert recorder.samples is None
    end_one(harness, recorder, SAMPLED)
