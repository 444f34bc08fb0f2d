"""A model that is warmed up, with a clock that the test moves."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from segment_fixture import local_segment, spec

from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.codec import Codec
from ringbatch.engine.worker.finite_outputs import FiniteCodec
from ringbatch.engine.worker.padding import PaddedCodec, padding
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.warmup import (
    Wanted,
    warmed_up,
)
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [2])
IDS = Tensor("ids", "INT64", [-1])
TEXT = Tensor("text", "BYTES", [])
SUM = Tensor("sum", "FP32", [])
PATH = Path("/models/m.py")


class Clock:
    """Time that passes when the model runs."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Harness:
    """A runner with a model that is to be warmed up."""

    def __init__(
        self,
        model: ModelSpec,
        predict: Callable[..., Any],
        cost_ns: int = 10,
        *,
        lengths_input: str = "",
        fill: int = 0,
    ) -> None:
        self.spec = model
        self.clock = Clock()
        self.seen: list[Any] = []

        def watched(*arguments: Any) -> Any:
            self.seen.append(arguments)
            self.clock.now_ns += cost_ns * len(arguments[0])
            return predict(*arguments)

        segment = local_segment(model)
        engine_slots = EngineSlots(segment, 0, lambda _lane: None)
        opened = Model(model.inputs, model.outputs, lambda: None, watched)
        codec: Codec | None = FiniteCodec(segment.memory, opened) if model.refuse_nan else None
        if model.pad_variable_length:
            if lengths_input:
                opened = replace(opened, inputs=(*opened.inputs, LENGTH))
            fills = {"ids": fill}
            opened, shaped = padding(opened, model.length_buckets, fills, lengths_input)
            codec = PaddedCodec(segment.memory, opened, shaped, finite=model.refuse_nan)
        self.runner = Runner(
            RunnerSetup(
                opened,
                "m",
                engine_slots,
                self.clock,
                batched=model.batched,
                sizes=model.allowed_batch_sizes,
                codec=codec,
            )
        )

    def warm(
        self, limit_s: float = 1.0, file: Path | None = None, *, required: bool = True
    ) -> list[tuple[int, int, int]]:
        return [
            (trial.rows, trial.length, trial.run_ns)
            for trial in warmed_up(
                self.spec,
                self.runner.try_out,
                Wanted(
                    required=required,
                    limit_s=limit_s,
                    limit=f"warm_up_s = {limit_s:g}",
                    batch_timeout="batch_timeout_s = 1, derived from timeout_s = 3",
                    length=5,
                    file=file,
                ),
                path=PATH,
                title="m/0",
                out=None,
                clock_ns=self.clock,
            )
        ]


def shaped(**more: Any) -> ModelSpec:
    return replace(spec(0, [IDS], [SUM]), **more)


LENGTH = Tensor("length", "INT64", [])
