"""Model as its requests see it, once its settings are found to fit it."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ringbatch.engine.ipc.shaping import Unfit
from ringbatch.engine.models.model import Model
from ringbatch.engine.process.role_commands import BatchShape
from ringbatch.engine.worker.padding import Padding, padding
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_spec import MOST_PLACES, ModelSpec
from ringbatch.shm.request_context import REQUEST_CONTEXT


class ShapedModel(NamedTuple):
    """A model with the inputs that requests send.

    Attributes:
        model: with the request context as its last input, if it asks for that.
        padding: of its inputs; None if they are not padded.
    """

    model: Model
    padding: Padding | None


def shaped(model: Model, path: Path | str, shape: BatchShape) -> ShapedModel:
    """Return a model as requests see it.

    Args:
        model: as its file declares it.
        path: of the model file, for messages.
        shape: the settings of its batches.

    Raises:
        StartupError: a setting does not fit the model.
    """
    _expect_limits_fit(model, path, shape)
    if model.asks and model.inputs:
        model = replace(model, inputs=(*model.inputs, REQUEST_CONTEXT))
    if not shape.pad_variable_length:
        return ShapedModel(model, None)
    values = dict(pair.rsplit("=", 1) for pair in shape.padding_values)
    numbers = {name: float(text) if "." in text else int(text) for name, text in values.items()}
    try:
        edges = shape.length_buckets
        if model.tokens is not None:
            edges = model.tokens.edges(edges)
        return ShapedModel(*padding(model, edges, numbers, shape.lengths_input))
    except Unfit as error:
        raise StartupError(f"{path}: pad_variable_length is set, but {error}") from None


def _expect_limits_fit(model: Model, path: Path | str, shape: BatchShape) -> None:
    """Refuse limits of a batch that the model gives no means to keep."""
    if shape.max_batch_elements and not model.inputs:
        raise StartupError(
            f"{path}: max_batch_elements needs a model that declares its inputs, to count them"
        )
    if shape.max_joining_rows and not model.in_steps:
        raise StartupError(
            f"{path}: max_joining_rows is set, but the model does not work in steps; it is for a "
            "model file with begin and step"
        )
    if shape.max_batch_cost and model.in_steps and model.cost is None:
        raise StartupError(
            f"{path}: max_batch_cost needs a function cost in the model file, which takes what "
            "begin takes, of one row, and says what that row costs"
        )
    if shape.max_batch_cost and model.cost is None:
        raise StartupError(
            f"{path}: max_batch_cost needs a model file without inputs and with a function "
            "cost(instance), which says what an instance costs; models that declare inputs have "
            "max_batch_elements"
        )


def expect_steps_fit(spec: ModelSpec, path: str, shape: BatchShape) -> None:
    """Refuse settings that a model in steps cannot follow.

    Args:
        spec: of the model, as the model table has it.
        path: of the model file, for messages.
        shape: the settings of its batches.

    Raises:
        StartupError: one is set.
    """
    if not 0 < spec.places <= MOST_PLACES:
        raise StartupError(
            f"{path}: the model works in steps, so max_batch_size, which is {spec.places}, must be "
            f"the number of rows that a worker runs at once, from 1 to {MOST_PLACES}"
        )
    settings = {
        "allowed_batch_sizes": spec.allowed_batch_sizes,
        "max_batch_elements": shape.max_batch_elements,
        "pad_variable_length": shape.pad_variable_length,
    }
    for name, value in settings.items():
        if value:
            raise StartupError(
                f"{path}: {name} is set, but the model works in steps, whose rows join and end one "
                "by one"
            )
