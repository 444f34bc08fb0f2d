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

from ringbatch.engine.runtimes.model import Model
from ringbatch.engine.runtimes.python import import_model
from ringbatch.engine.supervisor.listener import listen
from ringbatch.frontend.codec.outcome import JSON
from ringbatch.frontend.http.fast_lane import FastLaneSettings, Predict
from ringbatch.frontend.request.calls import Body, Call, Reply
from ringbatch.frontend.server import gunicorn_worker
from ringbatch.frontend.v1.protocol import V1Codec
from ringbatch.shm import model_spec
from ringbatch.shm.layout import (
    COLLECTOR_NS,
    MODEL_READY,
    MODEL_SERVED,
    PAGE,
    WORD,
    Layout,
    aligned,
)
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment

BATCH_ID = "00000000-0000-4000-8000-000000000000"


def in_place_predict(model: Model, spec: ModelSpec) -> Predict:
    """Return what takes the place of `Service.predict`, for a model of one vector in and out."""
    (tensor,) = model.inputs
    dtype, columns = np.dtype(tensor.datatype.numpy), tensor.shape[0]
    codec = V1Codec(spec)

    def predict(
        name: str, body: Body, reply: Reply, timeout_ns: int = 0, origin: bytes | None = None
    ) -> Call | None:
        del name, timeout_ns, origin  # there is one model, and nothing waits or is passed on
        parts, by_column = codec.parse(body)
        results = []
        for rows, payload, _ in parts:
            x = np.frombuffer(payload, dtype).reshape(rows, columns)
            results.append((rows, memoryview(model.predict(x)).cast("B")))
        reply(200, codec.render(results, by_column, BATCH_ID), JSON)
        return None

    return predict


def settings_with(predict: Predict) -> Callable[..., FastLaneSettings]:
    """Return what makes the fast lane's settings, but for what it calls with a request."""

    def settings(**given: Any) -> FastLaneSettings:
        return FastLaneSettings(**given | {"predict": predict})

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
        manifest_bytes=aligned(len(model_spec.dumps((spec,))), PAGE),
    )
    segment = Segment.create(layout, (spec,))
    for word in (MODEL_READY, MODEL_SERVED):
        segment.words[(layout.model(0) + word) // WORD] = 1
    # Nobody collects here, and nobody is to be missed.
    segment.words[COLLECTOR_NS // WORD] = 1 << 62
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
    settings = settings_with(in_place_predict(model, spec))
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
