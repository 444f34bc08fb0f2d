"""models/matmul16.py and models/image.py behind Triton's Python backend: whole batches at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as triton
from numpy.typing import NDArray

W = np.random.RandomState(16).standard_normal((16, 10)).astype(np.float32)

PREDICT = {
    "matmul16": lambda x: x @ W,
    "image": lambda x: x[:, :, 112, 112],
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
