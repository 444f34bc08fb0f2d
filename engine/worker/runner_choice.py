"""Choice of the runner of a worker's batches, and of the codec that reads and writes them."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ringbatch.engine.models.model import Model
from ringbatch.engine.process.role_commands import BatchShape
from ringbatch.engine.worker.chain_steps import Steps
from ringbatch.engine.worker.codec import Codec
from ringbatch.engine.worker.cost_splitting import CostSplitCodec
from ringbatch.engine.worker.device_codec import DeviceCodec
from ringbatch.engine.worker.device_runner import DeviceRunner
from ringbatch.engine.worker.failure_detection import Failing
from ringbatch.engine.worker.finite_outputs import FiniteCodec
from ringbatch.engine.worker.forwarder import Forwarder
from ringbatch.engine.worker.join_limits import JoinLimits
from ringbatch.engine.worker.json_codec import JsonCodec
from ringbatch.engine.worker.on_device import OnDevice
from ringbatch.engine.worker.padding import PaddedCodec
from ringbatch.engine.worker.parts_runner import PartsRunner
from ringbatch.engine.worker.request_context import RequestContextCodec
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.shaped_model import ShapedModel
from ringbatch.engine.worker.steps_runner import StepsRunner
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment


def runner_for(
    shaped: ShapedModel,
    spec: ModelSpec,
    shape: BatchShape,
    segment: Segment,
    slots: EngineSlots,
    on_device: OnDevice | None,
    run_again: Callable[[int], object],
    failing: Failing,
) -> Runner | Forwarder:
    """Return the runner that a loaded model needs.

    Args:
        shaped: the model.
        spec: of it, as the model table has it.
        shape: the settings of its batches.
        segment: with the chains that the model is a step of.
        slots: of the requests.
        on_device: the model on its device; None if its batches go through the CPU.
        run_again: called before every run of a batch but the first, with the batch's number.
        failing: counts the batches that the model fails entirely.
    """
    model = shaped.model
    if model.remote is not None:
        return Forwarder(model.remote, spec.name, slots, time.monotonic_ns, run_again)
    plain_codec = partial(_plain_codec, shaped, spec, slots)
    codec: Codec | None = plain_codec() if model.inputs else None
    sizes = spec.allowed_batch_sizes
    if on_device is not None:
        model = replace(model, predict=on_device.run.predict)
        sizes = sizes or on_device.sizes
        if type(codec) is TensorCodec:
            codec = DeviceCodec(slots.memory, model, spec.batched)
    plan = None
    if model.cost is not None and shape.max_batch_cost and not model.in_steps:
        codec = CostSplitCodec(slots.memory, model.cost, shape.max_batch_cost, asks=model.asks)
        plan = codec.plan
    if model.asks:
        codec = RequestContextCodec(
            codec or JsonCodec(slots.memory, spec.batched, asks=True, function=model.function),
            slots.wanted,
        )
    setup = RunnerSetup(
        model,
        spec.name,
        slots,
        time.monotonic_ns,
        batched=spec.batched,
        sizes=sizes,
        codec=codec,
        run_again=run_again,
        place=Steps(segment, plain_codec, slots.store_answer_start).place,
        plan=plan,
        failing=failing,
    )
    return _kind(model, shape, on_device)(setup)


def _plain_codec(shaped: ShapedModel, spec: ModelSpec, slots: EngineSlots) -> TensorCodec:
    """Return the codec of a model that declares its inputs, for batches in the CPU's memory."""
    if shaped.padding is not None:
        return PaddedCodec(slots.memory, shaped.model, shaped.padding, finite=spec.refuse_nan)
    if spec.refuse_nan:
        return FiniteCodec(slots.memory, shaped.model, spec.batched)
    return TensorCodec(slots.memory, shaped.model, spec.batched)


def _kind(
    model: Model, shape: BatchShape, on_device: OnDevice | None
) -> Callable[[RunnerSetup], Runner]:
    """Return the class of a model's runner, with the arguments that only this class has."""
    if model.in_steps:
        limits = JoinLimits(
            model.cost,
            asks=model.asks,
            most_cost=shape.max_batch_cost,
            most_joining=shape.max_joining_rows,
        )
        return partial(StepsRunner, pause=time.sleep, limits=limits)
    if model.in_parts:
        return partial(PartsRunner, pause=time.sleep)
    if on_device is not None:
        return partial(DeviceRunner, on_device=on_device.run)
    return Runner
