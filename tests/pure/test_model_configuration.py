"""Models as configurations of Triton's: what they say, and that they are its messages."""

from typing import Any

import orjson
import pytest
from segment_fixture import spec

from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.v2.model_configuration import model_configuration
from ringbatch.shm.tensor import DATATYPES, Tensor

X, Y = Tensor("x", "FP32", [2]), Tensor("y", "BYTES", [-1, 3])


def test_tensors_are_without_the_batch_dimension() -> None:
    found = model_configuration(spec(0, [X], [Y], name="m", max_batch_size=8, workers=(0, 1)))
    assert (found["name"], found["platform"], found["max_batch_size"]) == ("m", "python", 8)
    (given,), (gives,) = found["input"], found["output"]
    assert (given["name"], given["data_type"], given["dims"]) == ("x", "TYPE_FP32", [2])
    assert (gives["name"], gives["data_type"], gives["dims"]) == ("y", "TYPE_STRING", [-1, 3])
    (group,) = found["instance_group"]
    assert (group["kind"], group["count"]) == ("KIND_MODEL", 2)
    assert found["model_transaction_policy"] == {"decoupled": False}


@pytest.mark.parametrize(
    ("policy", "size", "delay_us"), [("eager", 8, 0), ("fixed", 8, 5000), ("fixed", 1, None)]
)
def test_batching_is_described_for_a_model_with_batches(
    policy: str, size: int, delay_us: Any
) -> None:
    model = spec(0, [X], [X], max_batch_size=size, policy=policy, max_latency_ns=5_000_000)
    batching = model_configuration(model).get("dynamic_batching")
    assert (batching and batching["max_queue_delay_microseconds"]) == delay_us


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([3, 224, 224], "FORMAT_NCHW"),
        ([1, 28, 28], "FORMAT_NCHW"),
        ([32, 16, 3], "FORMAT_NHWC"),
        ([3, 3, 3], "FORMAT_NONE"),
        ([-1, 224, 224], "FORMAT_NONE"),
        ([16], "FORMAT_NONE"),
    ],
)
def test_pictures_are_recognised_by_their_shape(shape: list[int], expected: str) -> None:
    (found,) = model_configuration(spec(0, [Tensor("x", "FP32", shape)], [X]))["input"]
    assert found["format"] == expected


@pytest.mark.parametrize("size", [0, 1, 8])
def test_it_is_the_message_of_tritons_client(size: int) -> None:
    """Every member is a field of its, and what it writes as JSON from that is the same."""
    from google.protobuf.json_format import ParseDict
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    tensors = [Tensor(name, name, [2, -1]) for name in DATATYPES]
    found = model_configuration(spec(0, tensors, tensors, max_batch_size=size))
    theirs = ParseDict(found, ModelConfig())
    ours = inference("ModelConfig")(**found)
    assert ModelConfig.FromString(ours.SerializeToString()) == theirs
    assert [one.data_type for one in theirs.input] == [
        one.data_type for one in ModelConfig.FromString(theirs.SerializeToString()).output
    ]
    assert b'"dims":[2,-1]' in orjson.dumps(found)
