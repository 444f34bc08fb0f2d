"""Models that are asked over gRPC."""

ADD = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [2])]
outputs = [Tensor("y", "FP32", [2], labels=["left", "right"])]
def predict(x):
    return x + 1
"""
ECHO = """
from ringbatch.engine import InvalidInput, Tensor
inputs = [Tensor("n", "INT64", [-1]), Tensor("s", "BYTES", [-1]), Tensor("h", "FP16", [1])]
outputs = inputs
def predict(n, s, h):
    if b"raise" in s:
        raise ValueError("a secret of the model's")
    if b"refuse" in s:
        raise InvalidInput("no mood for <this>: \\u00e4")
    return n, s, h
"""
