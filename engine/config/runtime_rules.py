"""Rules for settings that only some runtimes have, in words. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ringbatch.engine.config import text_rules
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.kinds import runtime_of
from ringbatch.engine.config.settings import ModelConfig

_BOOSTERS: Final = ("xgboost", "lightgbm", "catboost")
_OF_WORKERS_HERE: Final = ("device", "devices", "headers")
RUNTIMES_OF_KEY: Final = {
    "device": ("generator", "onnx", "python", "text", "torch"),
    "devices": ("generator", "onnx", "python", "text", "torch"),
    "inputs": ("torch",),
    "outputs": ("torch",),
    "autocast": ("openvino", "torch"),
    "channels_last": ("torch",),
    "cuda_graphs": ("torch",),
    "columns": ("sklearn", *_BOOSTERS),
    "answers": ("sklearn", *_BOOSTERS),
    "iterations": _BOOSTERS,
    "class_names": _BOOSTERS,
    "truncate": ("text",),
    "trusted_types": ("sklearn",),
    "trust_pickle": ("sklearn", "torch"),
    "protocol": ("http",),
    "forward_headers": ("http",),
    "headers": ("generator", "python"),
    "isolate_errors": ("http",),
    "ray_address": ("ray",),
    "ray_namespace": ("ray",),
    "ray_cpus": ("ray",),
    "ray_gpus": ("ray",),
    "ray_resources": ("ray",),
    "ray_scheduling": ("ray",),
    "ray_placement_group": ("ray",),
    "ray_keep_s": ("ray",),
    "retry": ("http",),
    "upstream_ca": ("http",),
    "upstream_certificate": ("http",),
    "upstream_key": ("http",),
}
"""The runtimes that read a setting; every runtime reads a setting that is not here."""


def problems(runtime: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a model that its runtime ignores, which its writer would not notice.

    Args:
        runtime: of the model.
        values: by key; a key whose own value is wrong is missing.

    Returns:
        The key that is to be changed, and the words for it.
    """
    known = settings(ModelConfig)
    own = {runtime}
    if runtime == "ray":
        own.add(runtime_of(values["path"]) or "")
        if values.get("worker_memory_bytes") is not None:
            yield "worker_memory_bytes", "is for workers on this host, but this model's are actors"
    if values.get("ray_workers") is not None:
        own.add("ray")
        yield from _beside_ray(runtime, values)
    for key, wanted in RUNTIMES_OF_KEY.items():
        # A model file in an actor does not get these.
        mine = own - {"python"} if runtime == "ray" and key in _OF_WORKERS_HERE else own
        if not mine & {*wanted} and values.get(key, known[key].default) != known[key].default:
            those = f"runtime{'s' * (len(wanted) > 1)} {_listed(wanted)}"
            yield key, f"is for the {those}, but this model's is {runtime}"
    if runtime == "text":
        yield from text_rules.problems(values)
    given = {key: values.get(key) for key in ("inputs", "outputs")}
    for key, other in (("inputs", "outputs"), ("outputs", "inputs")):
        if given[key] and given[other] == ():
            yield other, f"is missing; with {key} there must be {other} as well"


def _beside_ray(runtime: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings that cannot be combined with both local and Ray workers."""
    if runtime == "ray":
        words = "is for actors beside workers on this host, but with the runtime ray all are actors"
        yield "ray_workers", f"{words}; set workers alone"
    if runtime == "http":
        yield "ray_workers", "is for model files, but another server runs this model"
    if values.get("spares"):
        yield "spares", "is for models without ray_workers, which go on where a worker here dies"


def _listed(names: tuple[str, ...]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
