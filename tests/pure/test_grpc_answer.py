"""Results in slots to ModelInferResponse: the recorded bytes, every datatype, and both forms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from segment_fixture import pack, spec

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.frontend.codec.payload import Bytes
from ringbatch.frontend.grpc.answer import GrpcAnswers, batch_field, id_field
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.request import GrpcRequestedOutputs
from ringbatch.frontend.v2.requested_outputs import RequestedOutput
from ringbatch.shm.errors import InvalidRequest, ModelFailed
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import DATATYPES, Tensor

ADDONE = spec(0, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], name="addone")
MANY = [Tensor("n", "INT64", [-1]), Tensor("s", "BYTES", [2]), Tensor("h", "FP16", [1])]
RESULT = memoryview(bytes.fromhex("0000004000004040"))
TYPED_VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False],
    "INT8": [-128, 127],
    "INT16": [-300, 300],
    "INT32": [-(1 << 31), 7],
    "INT64": [-(1 << 63), 7],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, (1 << 32) - 1],
    "UINT64": [0, (1 << 64) - 1],
    "FP32": [0.5, float("inf")],
    "FP64": [0.1, -1.5],
    "BYTES": [b"", b"\xff\0"],
}


def rendered(
    model: ModelSpec, requested: GrpcRequestedOutputs, *parts: tuple[int, bytes], identity: str = ""
) -> Any:
    results = [(rows, memoryview(part)) for rows, part in parts]
    data = GrpcAnswers(model).render(results, requested, id_field(identity))
    return inference("ModelInferResponse").FromString(data)


def requested(*outputs: int, typed: bool = False) -> GrpcRequestedOutputs:
    return GrpcRequestedOutputs(
        tuple(RequestedOutput(output, True) for output in outputs), typed, 0
    )


def test_a_raw_answer_has_the_bytes_of_the_protocol() -> None:
    answer = GrpcAnswers(ADDONE).render([(1, RESULT)], requested(0), id_field("42"))
    assert answer.hex(" ") == (
        "0a 06 61 64 64 6f 6e 65 12 01 31 1a 02 34 32 2a 0d 0a 01 79 12 04 46 50 33 32 1a 02 01 02 "
        "32 08 00 00 00 40 00 00 40 40"
    )


def test_the_batch_is_a_parameter_of_the_answer() -> None:
    batch_id = "0f0e0d0c-0b0a-4909-8807-060504030201"
    for own in (requested(0), requested(0, typed=True)):
        fields = id_field("42") + batch_field(batch_id)
        answer = inference("ModelInferResponse").FromString(
            GrpcAnswers(ADDONE).render([(1, RESULT)], own, fields)
        )
        found = {name: value.string_param for name, value in answer.parameters.items()}
        assert (answer.id, found) == ("42", {"batch_id": batch_id})
    assert batch_field("") == b""


def test_a_typed_answer_has_the_bytes_of_the_protocol() -> None:
    answer = GrpcAnswers(ADDONE).render([(1, RESULT)], requested(0, typed=True), b"")
    assert answer.hex(" ") == (
        "0a 06 61 64 64 6f 6e 65 12 01 31 2a 19 0a 01 79 12 04 46 50 33 32 1a 02 01 02 "
        "2a 0a 32 08 00 00 00 40 00 00 40 40"
    )


@pytest.mark.parametrize("datatype", TYPED_VALUES)
def test_every_datatype_comes_back_typed(datatype: str) -> None:
    values = TYPED_VALUES[datatype]
    model = spec(0, [Tensor("x", "FP32", [])], [Tensor("y", datatype, [])])
    answer = rendered(model, requested(0, typed=True), (2, pack(model.outputs, [values])[0]))
    (output,) = answer.outputs
    ((_, contents),) = output.contents.ListFields()
    assert (list(contents), list(output.shape)) == (values, [2])
    assert not answer.raw_output_contents


def test_raw_outputs_are_as_they_stand_in_the_slot_and_in_the_order_asked_for() -> None:
    model = spec(0, [Tensor("x", "FP32", [])], MANY, max_batch_size=2)
    numbers = np.arange(9, dtype="<i8").reshape(3, 3)
    texts = [[b"a", b""], [b"b", b"cc"], [b"", b"\xff"]]
    halves = np.array([[0.5], [1], [2]], "<f2")
    parts = [
        (rows.stop - rows.start, pack(MANY, [numbers[rows], texts[rows], halves[rows]])[0])
        for rows in (slice(0, 2), slice(2, 3))
    ]
    answer = rendered(model, requested(2, 0, 1), *parts, identity="é")
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "1", "é")
    assert [(o.name, o.datatype, list(o.shape)) for o in answer.outputs] == [
        ("h", "FP16", [3, 1]),
        ("n", "INT64", [3, 3]),
        ("s", "BYTES", [3, 2]),
    ]
    data = b"".join(len(text).to_bytes(4, "little") + text for row in texts for text in row)
    assert list(answer.raw_output_contents) == [halves.tobytes(), numbers.tobytes(), data]
    typed = rendered(model, requested(0, 1, typed=True), *parts)
    assert list(typed.outputs[0].contents.int64_contents) == list(range(9))
    assert list(typed.outputs[1].contents.bytes_contents) == [t for row in texts for t in row]


@pytest.mark.parametrize("size", [127, 128, 16383, 16384, 3 << 20])
def test_results_of_any_length_are_read_back(size: int) -> None:
    """At each of these lengths, or one less, the length itself takes a byte more."""
    model = spec(0, [Tensor("x", "FP32", [])], [Tensor("y", "UINT8", [size])])
    result = bytes(range(256)) * (size // 256 + 1)
    assert rendered(model, requested(0), (1, result[:size])).raw_output_contents == [result[:size]]


@pytest.mark.parametrize("datatype", sorted(name for name, d in DATATYPES.items() if d.fixed))
@pytest.mark.parametrize("cap", [0, 8])
def test_an_answer_in_one_part_is_that_of_its_parts(datatype: str, cap: int) -> None:
    """A single part of known size is written at once; several parts go the long way."""
    tensor = Tensor("y", datatype, [2])
    model = spec(0, [Tensor("x", "FP32", [])], [tensor], max_batch_size=cap)
    answers = GrpcAnswers(model)
    for rows in (1, 2, 1, 3) if cap else (1, 1):
        result = bytes(range(rows * 2 * tensor.datatype.size))
        row = len(result) // rows
        parts = [(1, memoryview(result[at : at + row])) for at in range(0, len(result), row)]
        for identity in (b"", id_field("é" * 100)):
            once = answers.render([(rows, memoryview(result))], requested(0), identity)
            assert once == answers.render([*parts, (0, memoryview(b""))], requested(0), identity)


class Target:
    """Span of a client's shared memory for an answer."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.written = b""

    def write(self, pieces: Sequence[Bytes]) -> None:
        self.written = b"".join(pieces)


@pytest.mark.parametrize("typed", [False, True])
def test_an_output_in_shared_memory_is_written_there(typed: bool) -> None:
    outputs = [Tensor("a", "INT8", []), Tensor("b", "INT8", [])]
    model = spec(0, [Tensor("x", "FP32", [])], outputs)
    target = Target(2)
    wanted = GrpcRequestedOutputs((RequestedOutput(0, target), RequestedOutput(1, True)), typed, 0)
    answer = rendered(model, wanted, *((1, pack(outputs, [[n], [n + 4]])[0]) for n in (1, 2)))
    assert target.written == b"\1\2"
    assert [output.name for output in answer.outputs] == ["a", "b"]
    assert list(answer.raw_output_contents) == ([] if typed else [b"", b"\5\6"])
    assert list(answer.outputs[1].contents.int_contents) == ([5, 6] if typed else [])
    target = Target(1)
    with pytest.raises(InvalidRequest, match='output "a" has 2 bytes, more than the 1 of shared'):
        rendered(
            model,
            GrpcRequestedOutputs((RequestedOutput(0, target),), False, 0),
            (2, pack(outputs, [[1, 2], [3, 4]])[0]),
        )
    assert target.written == b""


def test_no_instances_are_answered_with_empty_outputs() -> None:
    answer = rendered(ADDONE, requested(0))
    assert (list(answer.outputs[0].shape), list(answer.raw_output_contents)) == ([0, 2], [b""])
    assert not rendered(ADDONE, requested(0, typed=True)).raw_output_contents


def test_a_result_that_does_not_fit_the_outputs_is_the_models_failure() -> None:
    for rows, result in ((1, bytes(7)), (2, bytes(8)), (1, b"")):
        with pytest.raises(ModelFailed, match="does not fit the model's outputs"):
            rendered(ADDONE, requested(0), (rows, result))
    model = spec(0, [Tensor("x", "FP32", [])], [Tensor("y", "INT8", [-1])])
    parts = [(1, pack(model.outputs, [[row]])[0]) for row in ([1], [1, 2])]
    classes = GrpcRequestedOutputs((RequestedOutput(0, True, 1),), False, 0)
    for wanted in (requested(0), classes):
        with pytest.raises(ModelFailed, match='rows of output "y" differ in shape, such as'):
            rendered(model, wanted, *parts)
    strings = spec(0, [Tensor("x", "FP32", [])], [Tensor("s", "BYTES", [])])
    lying = pack(strings.outputs, [[b"abc"]])[0].replace(b"\3\0\0\0abc", b"\4\0\0\0abc")
    with pytest.raises(ModelFailed, match="lengths of the strings"):
        rendered(strings, requested(0, typed=True), (1, lying))


def test_a_model_without_a_batch_dimension_answers_shapes_without_one() -> None:
    model = spec(0, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], max_batch_size=0)
    answer = rendered(model, requested(0), (1, bytes(RESULT)))
    assert list(answer.outputs[0].shape) == [2]


def test_shapes_are_remembered_but_not_for_ever() -> None:
    model = spec(0, [Tensor("x", "FP32", [])], [Tensor("y", "INT8", [-1])])
    answers = GrpcAnswers(model)
    for size in [*range(600), 3]:
        result = memoryview(pack(model.outputs, [np.zeros((1, size))])[0])
        data = answers.render([(1, result)], requested(0), b"")
        answer = inference("ModelInferResponse").FromString(data)
        assert list(answer.outputs[0].shape) == [1, size]


@pytest.mark.parametrize("typed", [False, True])
def test_the_best_classes_of_an_output_are_strings(typed: bool) -> None:
    tensor = Tensor("y", "FP32", [3], ["ant", "bee", "cat"])
    model = spec(0, [tensor], [tensor])
    wanted = GrpcRequestedOutputs((RequestedOutput(0, True, 2),), typed, 0)
    results = pack([tensor], [[[1, 3, 2], [9, 0, 1]]])[0]
    answer = rendered(model, wanted, (2, results))
    (output,), raw = answer.outputs, list(answer.raw_output_contents)
    expected = [b"3.000000:1:bee", b"2.000000:2:cat", b"9.000000:0:ant", b"1.000000:2:cat"]
    assert (output.name, output.datatype, list(output.shape)) == ("y", "BYTES", [2, 2])
    assert list(output.contents.bytes_contents) == (expected if typed else [])
    assert raw == ([] if typed else [joined(expected)])
