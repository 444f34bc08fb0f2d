"""A chain of three models that calculate with three numbers."""

from typing import Any

from chain_harness import Part, chain

from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [3])
Y = Tensor("y", "FP32", [3])


def plus_one(x: Any) -> Any:
    return (x + 1).astype("<f4")


def doubled(x: Any) -> Any:
    return (x * 2).astype("<f4")


def minus_three(x: Any) -> Any:
    return (x - 3).astype("<f4")


LINE = {
    "a": Part([X], [Y], plus_one),
    "b": Part([X], [Y], doubled),
    "c": Part([X], [Y], minus_three),
}
ABC = chain("abc", "a", "b", "c")
