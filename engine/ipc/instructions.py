"""Instructions for a worker beside the file of its model: place, batch shapes, warm-up."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from ringbatch.engine.config.limit_messages import batch_timeout, warm_up_limit
from ringbatch.engine.config.settings import Config, ModelConfig
from ringbatch.engine.models.ray_place import RayPlace
from ringbatch.engine.models.runtime_options import RuntimeOptions
from ringbatch.engine.process.cpu_plan import (
    CpuRequest,
    CpuSet,
    Host,
    Misplaced,
    Plan,
    described,
    plan,
)
from ringbatch.engine.process.role_commands import BatchShape, HeldModel, WarmUp
from ringbatch.shm.errors import StartupError

CpuSetName = tuple[str, str, int]
"""A model, one of its versions, and which of its workers."""
WARM_UP_AGAIN_S: Final = 1.0
"""Seconds of warm-up for a worker that replaces another, as requests wait for it."""


def placed(config: Config, host: Host) -> tuple[Plan, str]:
    """Return the CPU plan of everything, and the same in words.

    Workers come in the order of their models, each model with all that it may ever have. So no
    worker moves, and none has other threads, if the load changes their number.

    Raises:
        StartupError: the configuration names CPUs that cannot be used.
    """
    requests = [
        CpuRequest(
            f"{model.name}/{index}",
            of_worker(model.cpus, index),
            model.threads,
            waits=model.waits(index),
        )
        for model in config.models
        for index in range(model.most_workers)
    ]
    server = config.server
    try:
        found = plan(
            host,
            requests,
            auto=server.placement == "auto",
            frontends=server.frontends,
            frontend_cpus=server.frontend_cpus,
        )
    except Misplaced as error:
        raise StartupError(f"the configuration names CPUs {error}") from None
    return found, described(found, requests, host)


def cpu_set_name(model: ModelConfig, index: int) -> CpuSetName:
    """Return the name of one worker's CPU set: its model, its version, and its index."""
    return model.name, model.version, index


def cpu_sets(config: Config, found: Plan) -> dict[CpuSetName, CpuSet]:
    """Return the CPU sets of a plan for that configuration, by name.

    A spare may replace any of its model's workers, so it runs on all of their CPUs.
    """
    names = [cpu_set_name(model, n) for model in config.models for n in range(model.most_workers)]
    by_name = dict(zip(names, found.workers, strict=True))
    for model in config.models:
        own = [by_name[cpu_set_name(model, n)] for n in range(model.most_workers)]
        cpus = [cpu_set.cpus for cpu_set in own if cpu_set.cpus is not None]
        everywhere = len(cpus) < len(own)
        spare = CpuSet(None if everywhere else tuple(sorted({*chain(*cpus)})), own[0].threads)
        for index in range(model.most_workers, model.most_processes):
            by_name[cpu_set_name(model, index)] = spare
    return by_name


def of_worker(each: Sequence[str], index: int) -> str | None:
    """Return one worker's item of a setting with an item for each; a short list is repeated."""
    return each[index % len(each)] if each else None


def of(model: ModelConfig, index: int, engine: str, *, again: bool) -> HeldModel:
    """Return the instructions for one of a model's workers.

    Args:
        model: as it is configured.
        index: of the worker.
        engine: the name of the engine.
        again: True if the worker takes the place of another.
    """
    in_ray = model.is_in_ray(index)
    options = RuntimeOptions(
        max_batch_size=model.max_batch_size,
        device=of_worker(model.devices, index) or model.device,
        inputs=model.inputs,
        outputs=model.outputs,
        autocast=model.autocast,
        channels_last=model.channels_last,
        cuda_graphs=model.cuda_graphs,
        columns=model.columns,
        answers=model.answers,
        iterations=model.iterations,
        class_names=model.class_names,
        truncate=model.truncate,
        trusted_types=model.trusted_types,
        trust_pickle=model.trust_pickle,
        protocol=model.protocol,
        timeout_s=model.batch_limit_s,
        isolate_errors=model.isolate_errors,
        ray=ray_place(model, index, engine) if in_ray else None,
        retry=model.retry,
        upstream_ca=_text(model.upstream_ca),
        upstream_certificate=_text(model.upstream_certificate),
        upstream_key=_text(model.upstream_key),
        headers=model.headers,
    )
    return HeldModel(
        name=model.name,
        path=str(model.path),
        runtime="ray" if in_ray else model.platform,
        options=options,
        shape=shape(model),
        warm_up=warm_up(model, again=again),
        worker_memory_bytes=0 if in_ray else model.worker_memory_bytes or 0,
    )


def ray_place(model: ModelConfig, index: int, engine: str) -> RayPlace:
    """Return the place of the actor that one of its workers drives."""
    return RayPlace(
        engine=engine,
        version=model.version,
        index=index,
        loader=model.loader,
        threads=model.threads or max(int(model.ray_cpus), 1),
        address=model.ray_address,
        namespace=model.ray_namespace,
        cpus=model.ray_cpus,
        gpus=model.ray_gpus,
        resources=model.ray_resources,
        scheduling=model.ray_scheduling,
        placement_group=model.ray_placement_group or "",
        keep_s=model.ray_keep_s,
        load_timeout_s=model.load_timeout_s,
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def shape(model: ModelConfig) -> BatchShape:
    """Return the padding of its batches."""
    return BatchShape(
        max_batch_elements=model.max_batch_elements,
        pad_variable_length=model.pad_variable_length,
        length_buckets=model.length_buckets,
        padding_values=model.padding_values,
        lengths_input=model.lengths_input or "",
        max_batch_cost=model.max_batch_cost,
        max_joining_rows=model.max_joining_rows,
    )


def warm_up(model: ModelConfig, *, again: bool) -> WarmUp | None:
    """Return its warm-up; None if it has none.

    Args:
        model: another server's is left alone.
        again: True if the worker takes the place of another.
    """
    if model.warm_up == "off" or model.platform == "http":
        return None
    limit_s = min(model.warm_up_s, WARM_UP_AGAIN_S) if again else model.warm_up_s
    return WarmUp(
        required=model.warm_up == "required",
        limit_s=limit_s,
        limit=warm_up_limit(model, limit_s),
        batch_timeout=batch_timeout(model),
        length=model.warm_up_length,
        file=str(model.warm_up_file) if model.warm_up_file else None,
    )
