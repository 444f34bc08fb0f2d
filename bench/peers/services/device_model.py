"""A program of torch on a device for peers: bytes of rows in, bytes of answers out.

The environment says which: BENCH_FILE, BENCH_DEVICE, BENCH_SHAPE in JSON, BENCH_DTYPE, BENCH_CAP.
It runs under FP16's autocast, as ringbatch's does. Peers have no CUDA graphs.
"""

import json
import os
from typing import Any

import numpy as np
import torch

CAP = int(os.environ["BENCH_CAP"])


class Program:
    """The program."""

    def __init__(self) -> None:
        self._device = os.environ["BENCH_DEVICE"]
        self._shape = json.loads(os.environ["BENCH_SHAPE"])
        self._dtype = os.environ["BENCH_DTYPE"]
        self._module = torch.export.load(os.environ["BENCH_FILE"]).module().to(self._device)

    def rows(self, bodies: list[bytes]) -> list[bytes]:
        """Run the rows of one batch."""
        rows = [np.frombuffer(body, self._dtype).reshape(self._shape) for body in bodies]
        batch: Any = torch.from_numpy(np.stack(rows)).to(self._device)
        kind = self._device.partition(":")[0]
        with torch.inference_mode(), torch.autocast(kind, torch.float16):
            answers = self._module(batch).float().cpu().numpy()
        return [answer.tobytes() for answer in answers]
