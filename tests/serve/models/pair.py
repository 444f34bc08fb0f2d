"""Model of two inputs and two outputs, of different datatypes and shapes."""

from typing import Any

from numpy.typing import NDArray

from ringbatch.engine import Tensor

inputs = [Tensor("a", "FP32", [2]), Tensor("n", "INT32", [])]
outputs = [Tensor("scaled", "FP32", [2]), Tensor("twice", "INT64", [])]


def predict(a: NDArray[Any], n: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {"twice": n.astype("int64") * 2, "scaled": a * n[:, None]}
