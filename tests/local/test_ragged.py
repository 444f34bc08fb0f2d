"""Rows of unequal length: from what a model returns through slots to each protocol's answer."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import Client, local_segment, pack, spec

from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.codec import Codec
from ringbatch.engine.worker.finite_outputs import FiniteCodec
from ringbatch.engine.worker.outputs import WrongResult
from ringbatch.engine.worker.padding import PaddedCodec, padding
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.frontend.client.arrays import ArrayCodec
from ringbatch.frontend.grpc.answer import GrpcAnswers
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.request import GrpcRequestedOutputs
from ringbatch.frontend.v1.answer import answers_of as v1_answers_of
from ringbatch.frontend.v2.answer import answers_of as v2_answers_of
from ringbatch.frontend.v2.requested_outputs import RequestedOutput, RequestedOutputs
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.layout import PAGE
from ringbatch.shm.model_spec import dumps, loads
from ringbatch.shm.ring import Consumer
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "INT64", [])
TOKENS = Tensor("tokens", "INT32", [-1], padding=-1)
WORDS = Tensor("words", "BYTES", [-1], padding="-")
BARE = Tensor("bare", "INT32", [-1])


class Answered:
    """Answers made of a model's returned value, for requests of so many rows each.

    Args:
        outputs: of the model.
        returned: by it, for the rows of all requests.
        rows: of each request.
        finite: whether NaN and infinity are refused.
        lengths: of the rows of each request's input, which is padded; None where it is not.
    """

    def __init__(
        self,
        outputs: list[Tensor],
        returned: object,
        rows: list[int],
        *,
        finite: bool = False,
        lengths: list[int] | None = None,
    ) -> None:
        inputs = [X] if lengths is None else [Tensor("x", "INT64", [-1])]
        self.spec = spec(0, inputs, outputs)
        segment = local_segment(self.spec)
        client = Client(segment)
        engine_slots = EngineSlots(segment, 0, lambda _lane: None)
        submitted = Consumer(segment.words, segment.layout.submission_ring(0), 64)
        requests = []
        for number, count in enumerate(rows):
            value = [0] * count if lengths is None else [[0] * lengths[number]] * count
            payload, key_bytes = pack(inputs, [value])
            client.send(payload, count, key_bytes=key_bytes, result_bytes=PAGE)
            (ref,) = submitted.take()
            request = engine_slots.read(ref)
            assert request is not None
            requests.append(request)
        model = Model(tuple(inputs), tuple(outputs), lambda: None, lambda: None)
        codec: Codec = (FiniteCodec if finite else TensorCodec)(segment.memory, model)
        if lengths is not None:
            codec = PaddedCodec(segment.memory, *padding(model, (), {}, ""), finite=finite)
        readable, _, _ = codec.read(requests)
        results = codec.check(returned, rows)
        written = codec.write(results, readable)
        parts = codec.parts(results, readable)
        self.faults = [str(one) if isinstance(one, WrongResult) else "" for one in written]
        self.parts = [
            (request.rows, segment.memory[request.result_offset :][:size])
            for request, size in zip(requests, written, strict=True)
            if isinstance(size, int)
        ]
        wrong = [str(one) for one in parts if isinstance(one, WrongResult)]
        assert wrong == [fault for fault in self.faults if fault]
        assert [one for one in parts if isinstance(one, bytes)] == [
            bytes(memory) for _, memory in self.parts
        ]

    def v1(self, *parts: int, columns: bool = False) -> Any:
        wanted = [self.parts[part] for part in parts]
        answer = orjson.loads(v1_answers_of(self.spec).render(wanted, columns, "b"))
        return answer["outputs" if columns else "predictions"]

    def v2(self, *parts: int) -> list[tuple[list[int], list[Any]]]:
        every = tuple(RequestedOutput(i, False) for i in range(len(self.spec.outputs)))
        wanted = [self.parts[part] for part in parts]
        body = v2_answers_of(self.spec).render(wanted, RequestedOutputs(b"", every, 0), "b").body
        outputs = orjson.loads(body)["outputs"]
        return [(output["shape"], output["data"]) for output in outputs]

    def grpc(self, *parts: int) -> list[tuple[list[int], bytes]]:
        every = tuple(RequestedOutput(i, True) for i in range(len(self.spec.outputs)))
        wanted = [self.parts[part] for part in parts]
        data = GrpcAnswers(self.spec).render(wanted, GrpcRequestedOutputs(every, False, 0), b"")
        response = inference("ModelInferResponse").FromString(data)
        shapes = [list(output.shape) for output in response.outputs]
        return list(zip(shapes, response.raw_output_contents, strict=True))

    def arrays(self, *parts: int) -> Any:
        wanted = [(rows, bytearray(memory)) for rows, memory in map(self.parts.__getitem__, parts)]
        return ArrayCodec(self.spec).render(wanted)


def test_no_number_in_the_padding_is_nobodys() -> None:
    nan = float("nan")
    returned = np.array([[1, nan], [nan, 1]], "f4")
    outputs = [Tensor("y", "FP32", [-1])]
    found = Answered(outputs, returned, [1, 1], finite=True, lengths=[1, 2])
    assert found.faults == ["", "output 'y' holds NaN or infinity"]


def test_v1_has_rows_of_their_own_lengths_and_the_others_a_padded_array() -> None:
    words = [["a", "b"], [], ["c"]]
    found = Answered([TOKENS, WORDS], ([[1, 2, 3], [], [4]], words), [3])
    assert found.v1(0) == [
        {"tokens": [1, 2, 3], "words": ["a", "b"]},
        {"tokens": [], "words": []},
        {"tokens": [4], "words": ["c"]},
    ]
    assert found.v1(0, columns=True) == {"tokens": [[1, 2, 3], [], [4]], "words": words}
    tokens = [1, 2, 3, -1, -1, -1, 4, -1, -1]
    assert found.v2(0) == [
        ([3, 3], tokens),
        ([3, 2], ["a", "b", "-", "-", "c", "-"]),
    ]
    assert found.grpc(0)[0] == ([3, 3], np.array(tokens, "<i4").tobytes())
    arrays = found.arrays(0)
    assert arrays["tokens"].reshape(-1).tolist() == tokens
    assert arrays["words"].tolist() == [[b"a", b"b"], [b"-", b"-"], [b"c", b"-"]]


def test_requests_of_one_batch_see_nothing_of_each_others_lengths() -> None:
    """Also without a padding: what differs from request to request needs none."""
    for output in (TOKENS, BARE):
        found = Answered([output], [[1], [2, 3, 4], [5, 6, 7]], [1, 2])
        assert found.faults == ["", ""]
        assert found.v1(0) == [[1]]
        assert found.v2(0) == [([1, 1], [1])]
        assert found.v2(1) == [([2, 3], [2, 3, 4, 5, 6, 7])]


def test_rows_of_one_request_that_nothing_pads_fail_it_alone() -> None:
    found = Answered([BARE], [[1], [2], [3, 4], [5]], [1, 2, 1])
    assert found.faults[0] == found.faults[2] == ""
    assert "rows of output 'bare' for one request have shapes [1], [2]" in found.faults[1]
    assert "padding=0" in found.faults[1]


def test_parts_of_a_request_are_padded_to_the_longest_of_all() -> None:
    found = Answered([TOKENS, WORDS], ([[1, 2], [3], []], [["a"], ["b", "c"], []]), [2, 1])
    assert found.v1(0, 1)[2] == {"tokens": [], "words": []}
    assert found.v2(0, 1) == [
        ([3, 2], [1, 2, 3, -1, -1, -1]),
        ([3, 2], ["a", "-", "b", "c", "-", "-"]),
    ]
    assert found.grpc(0, 1)[0] == ([3, 2], np.array([1, 2, 3, -1, -1, -1], "<i4").tobytes())
    arrays = found.arrays(0, 1)
    assert arrays["tokens"].tolist() == [[1, 2], [3, -1], [-1, -1]]
    arrays["tokens"][0, 0] = 9


@pytest.mark.parametrize("name", ["FP32", "BF16", "FP16", "BOOL", "UINT8", "BYTES"])
def test_every_datatype_is_padded_with_its_padding_value(name: str) -> None:
    wanted = {"BOOL": True, "BYTES": "z"}.get(name, 3)
    own: list[list[Any]] = [["a"], ["b", "c"]] if name == "BYTES" else [[0], [1, 0]]
    dtype = {"BYTES": "O", "BOOL": "?", "UINT8": "u1"}.get(name, "f2")
    rows = [np.array(row, dtype) for row in own]
    found = Answered([Tensor("y", name, [-1], padding=wanted)], rows, [2])
    assert found.v1(0) == own
    padded = found.arrays(0)[0, 1]
    if name == "BF16":
        assert padded == 0x4040, "the upper half of 3 as FP32"
    else:
        assert padded == (b"z" if name == "BYTES" else wanted)


def test_rows_may_differ_in_several_dimensions() -> None:
    output = Tensor("y", "FP32", [-1, 2, -1], padding=-1)
    rows = [np.ones((1, 2, 3), "f4"), np.zeros((2, 2, 1), "f4"), np.ones((0, 2, 0), "f4")]
    found = Answered([output], rows, [3])
    assert found.v1(0) == [row.tolist() for row in rows]
    assert found.v2(0)[0][0] == [3, 2, 2, 3]
    assert found.arrays(0)[1, :, :, 0].tolist() == [[0, 0], [0, 0]]
    assert (found.arrays(0)[1, :, :, 1:] == -1).all()


RETURNED = {
    "lists": [[1], [2, 3]],
    "tuples": ((1,), (2, 3)),
    "arrays": [np.array([1], "i4"), np.array([2, 3], "i8")],
    "an-array-of-objects": np.array([np.array([1]), [2, 3]], dtype=object),
}


@pytest.mark.parametrize("returned", RETURNED.values(), ids=RETURNED)
def test_rows_are_returned_as(returned: object) -> None:
    assert Answered([TOKENS], returned, [2]).v1(0) == [[1], [2, 3]]


def test_an_array_is_taken_as_it_is() -> None:
    found = Answered([TOKENS], np.array([[1, -1], [2, 3]]), [2])
    assert found.v1(0) == [[1, -1], [2, 3]]


WRONG: dict[str, tuple[Tensor, Any, str]] = {
    "too-few": (TOKENS, [[1], [1, 2]], "output 'tokens' has 2 rows for 3 instances"),
    "too-deep": (TOKENS, [[1], [[1]], [1, 2]], r"a row of output 'tokens' has shape \[1, 1\]"),
    "a-number": (TOKENS, [[1], 1, [1, 2]], r"a row of output 'tokens' has shape \[\]"),
    "floats": (TOKENS, [[1.5], [1, 2], []], "output 'tokens' is float64, declared is INT32"),
    "of-other-sizes": (
        Tensor("y", "INT32", [-1, 2], padding=0),
        [[[1, 2]], [[1, 2, 3]], [[1, 2]]],
        r"a row of output 'y' has shape \[1, 3\], declared is \[-1, 2\]",
    ),
}


@pytest.mark.parametrize(("output", "returned", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_result_is_described(output: Tensor, returned: Any, words: str) -> None:
    with pytest.raises(WrongResult, match=words):
        Answered([output], returned, [1, 1, 1])


def test_a_number_beyond_its_type_costs_its_request_alone() -> None:
    found = Answered([TOKENS], [[1], [2, 1 << 40], [3, 4]], [1, 1, 1])
    assert found.faults == ["", "output 'tokens' holds numbers beyond the declared INT32", ""]


def test_a_masked_value_costs_its_request_alone() -> None:
    masked = np.ma.masked_array([2, 3], [False, True])
    found = Answered([TOKENS], [[1], masked], [1, 1])
    assert found.faults == ["", "output 'tokens' holds masked values"]


def test_a_masked_value_among_rows_of_one_length_does_so_too() -> None:
    masked = np.ma.masked_array([2, 3], [False, True])
    found = Answered([TOKENS], [[1, 4], masked], [1, 1])
    assert found.faults == ["", "output 'tokens' holds masked values"]


@pytest.mark.parametrize("rows", [[[]], [[], []], [[], [[1, 2]]]])
def test_empty_rows_are_as_deep_as_declared(rows: list[Any]) -> None:
    pairs = Tensor("pairs", "INT32", [-1, 2], padding=0)
    found = Answered([pairs], rows, [len(rows)])
    assert found.v1(0) == rows
    longest = max(map(len, rows))
    assert found.v2(0)[0][0] == [len(rows), longest, 2]


def test_a_value_that_is_not_finite_costs_its_request_alone() -> None:
    output = Tensor("y", "FP32", [-1], padding=0)
    rows = [[1.0], [2.0, float("nan")], [3.0]]
    found = Answered([output], rows, [1, 1, 1], finite=True)
    assert found.faults == ["", "output 'y' holds NaN or infinity", ""]


def test_with_inputs_padded_an_output_with_a_padding_keeps_lengths_of_its_own() -> None:
    found = Answered([TOKENS], [[1], [2, 3, 4]], [1, 1], lengths=[2, 5])
    assert (found.v1(0), found.v1(1)) == ([[1]], [[2, 3, 4]])
    with pytest.raises(WrongResult, match=r"cut to the lengths of an input.*padding=0"):
        Answered([BARE], [[1], [2, 3, 4]], [1, 1], lengths=[2, 5])


def test_a_padding_survives_the_model_table() -> None:
    entry = spec(0, [X], [TOKENS, WORDS])
    assert loads(dumps((entry,))) == (entry,)
    assert [tensor.padding for tensor in entry.outputs] == [-1, b"-"]


@pytest.mark.parametrize(
    ("datatype", "shape", "value", "words"),
    [
        ("FP32", [2], 0, r"is for dimensions of any size \(-1\), but its shape is \[2\]"),
        ("INT8", [-1], 300, "the padding does not fit: it has 300, which is no INT8"),
        ("FP32", [-1], float("nan"), "no finite FP32"),
        ("INT32", [-1], [0], "no INT32"),
        ("BYTES", [-1], 0, "where a text is right"),
    ],
)
def test_a_padding_that_does_not_fit_is_refused(
    datatype: str, shape: list[int], value: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Tensor("y", datatype, shape, padding=value)


@given(
    st.lists(
        st.lists(st.lists(st.integers(-5, 5), max_size=4), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_every_request_gets_its_own_rows(requests: list[list[list[int]]]) -> None:
    rows = [row for request in requests for row in request]
    found = Answered([TOKENS], rows, list(map(len, requests)))
    for number, request in enumerate(requests):
        assert found.v1(number) == request
        longest = max(map(len, request))
        assert found.arrays(number).tolist() == [
            row + [-1] * (longest - len(row)) for row in request
        ]
    every = range(len(requests))
    longest = max(map(len, rows))
    assert found.v1(*every) == rows
    assert found.arrays(*every).tolist() == [row + [-1] * (longest - len(row)) for row in rows]
