"""A model on a device that is a clock, see `device_clock.py`."""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from models import device_clock

from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]
on_device = True

device_clock.install()


def predict(x: Any) -> Any:
    """Map [batch, 1] to twice that."""
    return 2 * x
