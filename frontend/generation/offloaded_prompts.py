"""Long prompts, read and tokenized by the offload process."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ringbatch.frontend.codec.payload import Bytes
from ringbatch.frontend.generation.completion_bodies import Completion, read
from ringbatch.frontend.generation.text_generator import TextGenerator
from ringbatch.shm.model_spec import loads

_MODELS: Final = 8
"""The most models to keep, because each has a tokenizer."""


@lru_cache(_MODELS)
def text_generator(spec: str) -> TextGenerator:
    """Return the side of a model that makes tokens, as the model table has it."""
    (model,) = loads(spec.encode())
    return TextGenerator(model)


def read_prompts(value: Any, data: Sequence[memoryview]) -> tuple[Any, list[Bytes]]:
    """Read a body, and make tokens of its prompts.

    Args:
        value: whether it is of a chat; the models for it by their names, as in the model table.
        data: the body.

    Raises:
        RequestError: the body cannot be read, or `TextGenerator.prompts_of` raises it.
    """
    chat, specs = value
    asked = read(bytes(data[0]), chat=chat)
    name = asked.model or next(iter(specs), "")
    prompts: list[list[int]] = []
    # Otherwise the frontend raises the error about the name.
    if name in specs and (asked.model or len(specs) == 1):
        prompts = text_generator(specs[name]).prompts_of(asked)
    rest = asdict(replace(asked, prompts=[], messages=[]))
    return rest, [np.array(ids, np.int64).tobytes() for ids in prompts]


def decode_prompts(value: Any, data: Sequence[memoryview]) -> tuple[Completion, list[list[int]]]:
    """Return the request that another process has read, and the tokens of its prompts."""
    return Completion(**value), [np.frombuffer(one, np.int64).tolist() for one in data]
