"""Cost of ids, Server-Timing, the access log, traces and the payload log.

As in `steps.py`, the steps of all roles are called by hand, and nothing sleeps or waits. Here they
go from the bytes of requests on the fast lane to those of their answers. Only sockets are missing,
which would make every share smaller. The settings take turns, batch by batch, and the best of many
counts.

A sample of 1 % draws no request in most batches. Of these batches the better half counts. To that
is added 1 % of the additional cost of batches in which every request is drawn.

The log's lines are made, which counts, but written nowhere. The control process's work on traces
and payloads does not count, as no request waits for it. Not compiled, the payload log's variants
look worse than they are: the interpreter is tuned to the connections of the other variants, which
are of another class.
"""

import argparse
import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from report.record import Report
from report.rounds import table
from steps import MAX_RATIO, REPETITIONS, SIZES, Engine
from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.access.line_writer import Writer
from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_settings import FastLaneSettings
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.http.kept_lane import KeptLane
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.payloads.recorder import PayloadRecorder
from ringbatch.frontend.payloads.settings import ALL, EventSettings, Keeping
from ringbatch.shm.host.log_lines import LineFormatter
from ringbatch.shm.host.process import settle
from ringbatch.shm.layout import TRACED_REQUESTS

BODY = b'{"instances":[[%b]]}' % b",".join(b"%f" % (number / 7) for number in range(16))
REQUEST = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)
NOTHING = "off"
SHARE = 0.01
"""Share of the requests that a sample has."""
VARIANTS = {
    NOTHING: AccessSettings("off"),
    "failures, the default": AccessSettings("failures"),
    "sampled 1 %": AccessSettings("all", SHARE),
    "Server-Timing": AccessSettings("off", server_timing=True),
    "both": AccessSettings("all", SHARE, server_timing=True),
    "all logged": AccessSettings("all"),
    "traced 1 %": AccessSettings("off", trace_sample=SHARE),
    "all traced": AccessSettings("off", trace_sample=1.0),
    "payloads 1 %": AccessSettings("off"),
    "all payloads": AccessSettings("off"),
}
PAYLOADS = {"payloads 1 %": SHARE, "all payloads": 1.0}
"""Shares of the requests that the payload log keeps."""
SAMPLES = {
    "sampled 1 %": "all logged",
    "both": "all logged",
    "traced 1 %": "all traced",
    "payloads 1 %": "all payloads",
}
"""Variants that record samples, and those that record everything."""
LIMITED = {
    "failures, the default": MAX_RATIO,
    "sampled 1 %": MAX_RATIO,
    "Server-Timing": MAX_RATIO,
    "traced 1 %": 1.05,
    "payloads 1 %": 1.03,
}


class Transport:
    """Takes what is written."""

    def __init__(self, written: Callable[[bytes], None]) -> None:
        self.write = written

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        """Return the client's address, as asyncio's transport does."""
        return "127.0.0.1", 1


class Connections:
    """Connections to an engine of their own, one for each request of a batch.

    Attributes:
        engine: receives their requests.
        lanes: the connections.

    Args:
        settings: of the access log, the headers and traces.
        size: of a batch.
        payloads: the share of the requests that the payload log keeps; None without one.
    """

    def __init__(self, settings: AccessSettings, size: int, payloads: float | None = None) -> None:
        traced = TRACED_REQUESTS if settings.trace_sample else 0
        self.engine = engine = Engine(size, traced)
        self._answers: list[bytes] = []
        state = ServerState()
        state.default_headers = [(b"date", b"Sun, 06 Nov 1994 08:49:37 GMT")]
        recorder, self._writer = recorder_of(engine, settings)
        shared = FastLaneSettings(
            predictions=engine.service,
            heads=HeadReader(1 << 20),
            response_heads=ResponseHeads(state, recorder.ids),
            idle_timeout_s=75.0,
            count_hand_over=_nobody,
            stopping=lambda: False,
            leaving=lambda: False,
            close_grace_s=lambda: 0.0,
            budget=BodyBudget.of(1 << 20),
            recorder=recorder,
        )
        config = Config(cast(Any, _nobody), lifespan="off")
        loop = cast(Any, engine.loop)
        made: Callable[..., FastLane] = FastLane
        if payloads is not None:
            made = partial(KeptLane, payload_recorder_of(engine, recorder, payloads))
        self.lanes: list[FastLane] = []
        for _ in range(size):
            lane = made(shared, config, state, {}, loop)
            lane.connection_made(cast(Any, Transport(self._answers.append)))
            self.lanes.append(lane)

    def send(self) -> None:
        """Feed a frontend the bytes of one request of each connection."""
        for lane in self.lanes:
            lane.data_received(REQUEST)
        self.engine.loop.turn()

    def check(self) -> None:
        """Expect an answer on each connection, and forget the answers."""
        assert len(self._answers) == len(self.lanes)
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in self._answers), self._answers
        self._answers.clear()

    def batch(self) -> float:
        """Serve one request of each connection; nanoseconds for each."""
        engine = self.engine
        began_ns = time.perf_counter_ns()
        self.send()
        engine.collect()
        engine.run()
        engine.collect()
        engine.answer()
        self._writer.write_waiting()
        took_ns = time.perf_counter_ns() - began_ns
        self.check()
        return took_ns / len(self.lanes)


def recorder_of(engine: Engine, settings: AccessSettings) -> tuple[Recorder, Writer]:
    """Return a recorder of an engine's requests, and the writer that discards its lines."""
    core = engine.service.engine
    writer = Writer(LineFormatter("frontend"), _nowhere)
    return Recorder(settings, core.outcomes, core.batch_ids, writer), writer


def payload_recorder_of(engine: Engine, recorder: Recorder, share: float) -> PayloadRecorder:
    """Return a recorder of the payloads of an engine's requests, whose messages are discarded."""
    events = EventSettings(ALL, failures=False, attributes={"source": "/ringbatch/b"}, lines=True)
    keeping = Keeping(share, 1 << 16, frozenset(), events)
    lane = engine.service.engine.lane
    return PayloadRecorder(keeping, recorder, _taken, lane, cast(Any, engine.loop))


def _taken(_message: bytes) -> bool:
    """Take the place of the passage to the control process."""
    return True


def _nowhere(_line: bytes) -> None:
    """Do nothing, in place of the log."""


def _nobody(*_: object) -> None:
    """Do nothing, in place of a callback."""


def figures(size: int, repetitions: int) -> dict[str, float]:
    """Return nanoseconds for a request, by variant: the mean of the better half of many."""
    entries = {
        name: Connections(settings, size, PAYLOADS.get(name)) for name, settings in VARIANTS.items()
    }
    found: dict[str, list[float]] = {name: [] for name in entries}
    settle()
    order = list(entries)
    for _ in range(repetitions):
        # Whoever comes behind another finds its data in the caches, and not its own.
        random.shuffle(order)
        for name in order:
            found[name].append(entries[name].batch())
    # Those in which a request is drawn are among the slower ones.
    undrawn = (1 - SHARE) ** size
    best = {
        name: _better_half(took, undrawn if name in SAMPLES else 1.0)
        for name, took in found.items()
    }
    drawn = {name: SHARE * (best[whole] - best[NOTHING]) for name, whole in SAMPLES.items()}
    return {name: ns + drawn.get(name, 0.0) for name, ns in best.items()}


def _better_half(took: list[float], share: float) -> float:
    """Return the mean of the faster half."""
    best = sorted(took)[: math.ceil(len(took) * share / 2)]
    return sum(best) / len(best)


def main() -> int:
    """Measure; the exit status is 1 where a limit is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=4 * REPETITIONS, help="of each batch")
    options = parser.parse_args()
    report = Report("observability", vars(options))
    runs = {size: figures(size, options.repetitions) for size in SIZES}
    for size, found in runs.items():
        report.run(batch=size, result=found)
    lines = [
        [name, *(f"{runs[size][name]:,.0f}" for size in SIZES)]
        + [f"{runs[size][name] / runs[size][NOTHING]:.3f}" for size in SIZES]
        for name in VARIANTS
    ]
    head = ["ns for a request", *(f"batch of {size}" for size in SIZES)]
    report.print_text(table([*head, *(f"/ {NOTHING}, {size}" for size in SIZES)], lines))
    for name, most in LIMITED.items():
        for size in SIZES:
            ratio = runs[size][name] / runs[size][NOTHING]
            report.limit(f"{name}, batch of {size}", ratio, at_most=most)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
