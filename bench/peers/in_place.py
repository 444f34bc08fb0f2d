"""ringbatch's own frontends with the model called in place: no engine, no batching.

What it answers is what is left when everything between frontend and model costs nothing, so it is
the measure of that everything. What the fast lane calls with a request is another; reading,
decoding, encoding and writing are ringbatch's. The segment is there because a frontend wants one,
and is not used.
"""

import argparse
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ringbatch.engine.models.model import Model
from ringbatch.engine.runtimes.python import import_model
from ringbatch.engine.supervisor.listener import listen
from ringbatch.frontend.codec.outcome import JSON, NotSupported, outcome
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.http.fast_lane_settings import FastLaneSettings
from ringbatch.frontend.request.calls import Body, PredictionService, Reply
from ringbatch.frontend.server import gunicorn_worker
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.shm import model_spec
from ringbatch.shm.descriptors import HeaderWords, ModelWords
from ringbatch.shm.layout import PAGE, Layout, aligned
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.segment import Segment
from ringbatch.shm.tallies import Protocol

BATCH_ID = "00000000-0000-4000-8000-000000000000"


class InPlace:
    """Replacement of `Service` in the fast lane, for a model of one vector in and out."""

    def __init__(self, model: Model, spec: ModelSpec) -> None:
        (tensor,) = model.inputs
        self._dtype, self._columns = np.dtype(tensor.datatype.numpy), tensor.shape[0]
        self._model = model
        self._v1 = V1Model(spec)

    def predict(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders | None = None,
        account: int = 0,
        in_parts: object = None,
    ) -> None:
        """As in `PredictionService`; there is one model, and nothing waits or is passed on."""
        parts, by_column = self._v1.requests.parse(body)
        results = []
        for rows, payload, _ in parts:
            x = np.frombuffer(payload, self._dtype).reshape(rows, self._columns)
            results.append((rows, memoryview(self._model.predict(x)).cast("B")))
        reply((200, self._v1.answers.render(results, by_column, BATCH_ID), JSON))

    def infer(
        self,
        name: str,
        body: Body,
        json_bytes: int | None,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: object = None,
    ) -> None:
        """As in `PredictionService`."""
        reply(outcome(NotSupported("V2 is not served here")))

    def generate(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: object = None,
    ) -> None:
        """As in `PredictionService`."""
        self.infer(name, body, None, reply)

    def prepare(
        self, name: str, text: bytes, binary_bytes: int, timeout_ns: int = 0, account: int = 0
    ) -> None:
        """As in `PredictionService`."""

    def record_outside(
        self, protocol: Protocol, code: int, name: str = "", accepted_ns: int = 0
    ) -> None:
        """As in `PredictionService`; nobody counts."""


def settings_with(predictions: PredictionService) -> Callable[..., FastLaneSettings]:
    """Return what makes the fast lane's settings, but for what it calls with a request."""

    def settings(**given: Any) -> FastLaneSettings:
        # Nobody notes how requests end here, and what is kept of slow ones has the end of the last.
        given["predictions"].record_outside(Protocol.HTTP, 200)
        return FastLaneSettings(**given | {"predictions": predictions})

    return settings


def make_spec(name: str, model: Model) -> ModelSpec:
    """Return what the segment says of the model."""
    return ModelSpec(
        index=0,
        name=name,
        platform="python",
        inputs=model.inputs,
        outputs=model.outputs,
        max_batch_size=32,
        max_latency_ns=0,
        timeout_ns=60_000_000_000,
        policy="eager",
        workers=(0,),
    )


def make_segment(spec: ModelSpec, lanes: int) -> Segment:
    """Return a segment in which one model stands as ready."""
    layout = Layout(
        lanes=lanes,
        slots=64,
        lane_bytes=1 << 20,
        workers=1,
        models=1,
        model_table_bytes=aligned(len(model_spec.dumps((spec,))), PAGE),
    )
    segment = Segment.create(layout, (spec,))
    segment.words[layout.model(0) + ModelWords.READY] = 1
    publish(segment.words, layout.model(0), ModelState.SERVING)
    # Nobody collects here, and nobody is to be missed.
    segment.words[HeaderWords.COLLECTOR_NS] = 1 << 62
    return segment


def main() -> None:
    """Serve a model file until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--frontends", type=int, required=True)
    options = parser.parse_args()

    model = import_model(options.model)
    model.load()
    spec = make_spec(options.model.stem, model)
    # Type checkers refuse to replace a class, and that is what this script is for.
    settings = settings_with(InPlace(model, spec))
    setattr(gunicorn_worker, "FastLaneSettings", settings)  # noqa: B010
    segment = make_segment(spec, 2 * options.frontends)
    listener = listen("127.0.0.1", options.port)
    sys.argv = [
        "ringbatch.frontend",
        *f"--segment {segment.name} --listen-fd {listener.fileno()}".split(),
        *f"--frontends {options.frontends} --max-request-bytes {16 << 20}".split(),
        *f"--drain-s 5 --log-level warning --parent-pid {os.getppid()}".split(),
    ]
    try:
        runpy.run_module("ringbatch.frontend", run_name="__main__", alter_sys=False)
    finally:
        segment.unlink()


if __name__ == "__main__":
    main()
