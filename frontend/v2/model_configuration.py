"""Configuration with which Triton would serve a model alike, for tools that ask for it. Pure.

What Triton's form has no word for is left out, and so is what ringbatch has not. Numbers of 64
bits are JSON numbers, as Triton writes them.
"""

from typing import Any, Final

from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

Json = dict[str, Any]

_CHANNELS: Final = (1, 3)
"""Channels of a picture: grey, or colour."""
_LEAST_PIXELS: Final = 8
"""Least size of a dimension that is taken for the height or the width of a picture."""


def model_configuration(spec: ModelSpec) -> Json:
    """Return a model's configuration, with the names of Triton's ModelConfig.

    Its tensors are without the batch dimension, which `max_batch_size` implies.
    """
    configuration: Json = {
        "name": spec.name,
        "platform": spec.platform,
        "backend": "",
        "version_policy": {"all": {}},
        "max_batch_size": spec.max_batch_size,
        "input": [_input(tensor) for tensor in spec.inputs],
        "output": [_output(tensor) for tensor in spec.outputs],
        "instance_group": [
            {"name": spec.name, "kind": "KIND_MODEL", "count": spec.running, "gpus": []}
        ],
        "default_model_filename": "",
        "metric_tags": {},
        "parameters": {},
        "model_transaction_policy": {"decoupled": spec.in_parts},
    }
    if spec.max_batch_size > 1:
        configuration["dynamic_batching"] = _batching(spec)
    return configuration


def _input(tensor: Tensor) -> Json:
    return {
        "name": tensor.name,
        "data_type": _data_type(tensor),
        "format": _format(tensor),
        "dims": list(tensor.shape),
        "is_shape_tensor": False,
        "allow_ragged_batch": False,
        "optional": tensor.default is not None,
    }


def _output(tensor: Tensor) -> Json:
    return {
        "name": tensor.name,
        "data_type": _data_type(tensor),
        "dims": list(tensor.shape),
        "label_filename": "",
        "is_shape_tensor": False,
    }


def _data_type(tensor: Tensor) -> str:
    name = tensor.datatype.name
    return "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}"


def _format(tensor: Tensor) -> str:
    """Return the place of an image's channels, as far as its shape shows it."""
    if len(tensor.shape) == 3 and tensor.datatype.fixed:
        first, middle, last = tensor.shape
        if first in _CHANNELS and min(middle, last) >= _LEAST_PIXELS:
            return "FORMAT_NCHW"
        if last in _CHANNELS and min(first, middle) >= _LEAST_PIXELS:
            return "FORMAT_NHWC"
    return "FORMAT_NONE"


def _batching(spec: ModelSpec) -> Json:
    return {
        "preferred_batch_size": list(spec.allowed_batch_sizes),
        "max_queue_delay_microseconds": (
            spec.max_latency_ns // 1000 if spec.policy == "fixed" else 0
        ),
        "preserve_ordering": False,
        "priority_levels": 0,
        "default_priority_level": 0,
    }
