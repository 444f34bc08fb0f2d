"""Computation of the models of models/ for peers, lists in and lists out, and services' settings.

The settings are environment variables. BENCH_MODELS is `name=model` for each model to serve, with
commas between. BENCH_CAP is the largest batch, and BENCH_WAIT_MS the longest wait of a batch for
further requests. BENCH_TIMEOUT_S is the time after which a request may be given up.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Rows = list[Any]

CAP = int(os.environ.get("BENCH_CAP", "32"))
WAIT_MS = float(os.environ.get("BENCH_WAIT_MS", "1"))
TIMEOUT_S = float(os.environ.get("BENCH_TIMEOUT_S", "30"))


def _matmul(size: int) -> Callable[[Rows], Rows]:
    weights = np.random.RandomState(size).standard_normal((size, 10)).astype(np.float32)
    return lambda rows: (np.array(rows, np.float32) @ weights).tolist()


def _twice(fixed_s: float, row_s: float = 0.0) -> Callable[[Rows], Rows]:
    def predict(rows: Rows) -> Rows:
        time.sleep(fixed_s + row_s * len(rows))
        return (2 * np.array(rows, np.float32)).tolist()

    return predict


WORK: dict[str, Callable[[Rows], Rows]] = {
    "null": lambda rows: rows,
    "matmul16": _matmul(16),
    "matmul784": _matmul(784),
    "affine": _twice(0.005, 0.0002),
    "sleep_20ms": _twice(0.02),
    "sleep_100ms": _twice(0.1),
    "sleep_half": _twice(0.5),
}

SLEEPING = ("affine", "sleep_20ms", "sleep_100ms", "sleep_half")
"""Models that sleep, which would stop an event loop that calls them."""


def blocking() -> set[str]:
    """Return the names of the served models that sleep."""
    pairs = (pair.split("=") for pair in os.environ["BENCH_MODELS"].split(","))
    return {name for name, model in pairs if model in SLEEPING}


def models() -> dict[str, Callable[[Rows], Rows]]:
    """Return the function of each model to serve, by its served name."""
    pairs = (pair.split("=") for pair in os.environ["BENCH_MODELS"].split(","))
    return {name: WORK[model] for name, model in pairs}


def path(name: str) -> str:
    """Return the path of a model's requests."""
    return f"/v1/models/{name}:predict"
