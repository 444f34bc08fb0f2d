"""Model that answers with each row's request context."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ringbatch.engine import InvalidInput, Tensor

where = ""
died = Path("asker_died")
inputs = [Tensor("x", "FP32", [2]), Tensor("times", "INT64", [], default=1)]
outputs = [Tensor("y", "FP32", [2]), Tensor("context", "BYTES", [])]


def load(device: str) -> None:
    """Keep the name of the device."""
    global where
    where = device


def predict(x: Any, times: Any, request: Any) -> Any:
    """Return each row's request context as JSON."""
    assert len(request) == len(x)
    if any(own.parameters.get("die") for own in request) and not died.exists():
        died.touch()
        os._exit(1)
    for own in request:
        if not isinstance(own.parameters.get("top_k", 1), int):
            raise InvalidInput("top_k must be a whole number")
    context = [
        json.dumps([own.id, own.parameters, own.headers, own.remaining_s > 0, own.cancelled, where])
        for own in request
    ]
    return x * times[:, None].astype(np.float32), np.array([*context, ""], object)[:-1]
