"""A model whose answers prove whose they are, and that misbehaves where a request says so.

An answer is a function of the request and of a key that only this run knows, so nobody's answer
can be taken for another's. The last number of a request is its deed, 0 for none.
"""

from enum import IntEnum
from typing import Final

INPUTS: Final = 4
"""Numbers in a request: client, number, nonce, deed."""
NONCES: Final = 1 << 20
_MASK: Final = (1 << 40) - 1
_FACTORS: Final = (1_000_003, 7_368_787, 48_271)


class Deed(IntEnum):
    """Action that a request makes the model take; none at 1 either, as warm-up sends that."""

    NONE = 0
    RAISES = 2
    EXITS = 3
    ALLOCATES = 4
    SLEEPS = 5
    CRASHES = 6


def keyed(values: tuple[int, int, int, int], key: int) -> list[int]:
    """The right answer to a request."""
    mixed = sum(value * factor for value, factor in zip(values[:3], _FACTORS, strict=True))
    first = (mixed ^ key) & _MASK
    return [first, (first * 97 + values[2]) & _MASK]


def source(key: int, run_s: float, load_s: float = 0.0) -> str:
    """The model file.

    Args:
        key: of this run.
        run_s: seconds that every run takes at least.
        load_s: seconds that loading it takes.
    """
    return f"""
import ctypes
import os
import time

import numpy as np
from ringbatch.engine import Tensor

inputs = [Tensor("x", "INT64", [{INPUTS}])]
outputs = [Tensor("y", "INT64", [2])]
factors = np.array({list(_FACTORS)})


def load():
    time.sleep({load_s})


def predict(x):
    time.sleep({run_s})
    deeds = set(x[:, 3].tolist())
    if {Deed.EXITS.value} in deeds:
        os._exit(3)
    if {Deed.CRASHES.value} in deeds:
        ctypes.string_at(0)
    if {Deed.SLEEPS.value} in deeds:
        time.sleep(1e6)
    if {Deed.ALLOCATES.value} in deeds:
        kept = []
        while True:
            kept.append(np.ones(1 << 21))
    if {Deed.RAISES.value} in deeds:
        raise RuntimeError("asked to")
    first = ((x[:, :3] * factors).sum(axis=1) ^ {key}) & {_MASK}
    return np.stack([first, (first * 97 + x[:, 2]) & {_MASK}], axis=1)
"""


def device_source(key: int, run_s: float, load_s: float = 0.0) -> str:
    """The model file of the same answers, on tensors of torch on a device; it knows no deeds.

    Args:
        key, run_s, load_s: as of `source`.
    """
    return f"""
import time

import torch
from ringbatch.engine import Tensor

inputs = [Tensor("x", "INT64", [{INPUTS}])]
outputs = [Tensor("y", "INT64", [2])]
on_device = True
factors = None


def load(device):
    global factors
    time.sleep({load_s})
    factors = torch.tensor({list(_FACTORS)}, device=device)


def predict(x):
    time.sleep({run_s})
    first = ((x[:, :3] * factors).sum(dim=1) ^ {key}) & {_MASK}
    return torch.stack([first, (first * 97 + x[:, 2]) & {_MASK}], dim=1)
"""


STEPS: Final = ("mixing", "sealing")
"""Names of the models of a chain that answers as the one model does."""


def step_sources(key: int, run_s: float, load_s: float = 0.0) -> dict[str, str]:
    """The model files of a chain that answers as the one of `source` does, by the names of its
    steps. The second takes what the first gives, and the request's own tensor once more, so that
    neither may be another request's.

    Args:
        key, run_s, load_s: as of `source`, of each step.
    """
    start = f"""
import time

import numpy as np
from ringbatch.engine import Tensor

x = Tensor("x", "INT64", [{INPUTS}])
mixed = Tensor("mixed", "INT64", [])


def load():
    time.sleep({load_s})


"""
    mixing = f"""
inputs, outputs = [x], [mixed]


def predict(x):
    time.sleep({run_s})
    return ((x[:, :3] * np.array({list(_FACTORS)})).sum(axis=1) ^ {key}) & {_MASK}
"""
    sealing = f"""
inputs, outputs = [mixed, x], [Tensor("y", "INT64", [2])]


def predict(mixed, x):
    time.sleep({run_s})
    return np.stack([mixed, (mixed * 97 + x[:, 2]) & {_MASK}], axis=1)
"""
    return dict(zip(STEPS, (start + mixing, start + sealing), strict=True))
