"""Models of models/ behind Triton's Python backend: whole batches at once."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as triton
from numpy.typing import NDArray


def _matmul(size: int) -> Any:
    weights = np.random.RandomState(size).standard_normal((size, 10)).astype(np.float32)
    return lambda x: x @ weights


def _affine(x: NDArray[np.float32]) -> NDArray[np.float32]:
    time.sleep(0.005 + 0.0002 * len(x))
    return 2 * x


PREDICT = {
    "null": lambda x: x,
    "matmul16": _matmul(16),
    "matmul784": _matmul(784),
    "affine": _affine,
    "image": lambda x: x[:, :, 112, 112],
    "one": lambda x: x * 2,
    "two": lambda x: x * 3,
    "three": lambda x: x * 4,
}


class TritonPythonModel:
    """The class by whose name Triton finds a model; which one it is, the repository says."""

    def initialize(self, args: dict[str, str]) -> None:
        """Look up what the model computes."""
        self._predict = PREDICT[args["model_name"]]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Run the requests of one batch as one array and give each its rows."""
        x = [triton.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        y: NDArray[np.float32] = self._predict(np.concatenate(x) if len(x) > 1 else x[0])
        ends = np.cumsum([len(rows) for rows in x])
        return [
            triton.InferenceResponse([triton.Tensor("y", np.ascontiguousarray(rows))])
            for rows in np.split(y, ends[:-1])
        ]
