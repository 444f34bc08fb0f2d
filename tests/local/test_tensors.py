"""Tensors out of requests and into results: every datatype, shape and way of returning them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import Array, Client, local_segment, pack, spec, unpack
from tiers import first_of

from ringbatch.engine.models.model import Model
from ringbatch.engine.worker import tensors as tensors_module
from ringbatch.engine.worker.outputs import Checker, WrongResult
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.shm.engine_slots import EngineSlots, Request
from ringbatch.shm.layout import PAGE
from ringbatch.shm.ring import Consumer
from ringbatch.shm.tensor import DATATYPES, Tensor
from ringbatch.shm.uniform_batch import FEW

X = Tensor("x", "FP32", [2])


class Bench:
    """A codec for some tensors, its requests published by a client."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self.outputs = outputs
        self.inputs = inputs
        self.segment = local_segment(spec(0, inputs, outputs))
        self.client = Client(self.segment)
        self.engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        layout = self.segment.layout
        self.submitted = Consumer(self.segment.words, layout.submission_ring(0), layout.slots)
        model = Model(tuple(inputs), tuple(outputs), lambda: None, lambda: None)
        self.codec = TensorCodec(self.segment.memory, model)

    def request(self, *values: Any, rows: int = 1, result_bytes: int = 1024) -> Request:
        payload, key_bytes = pack(self.inputs, values)
        self.client.send(payload, rows, key_bytes=key_bytes, result_bytes=result_bytes)
        (ref,) = self.submitted.take()
        request = self.engine_slots.read(ref)
        assert request is not None
        return request

    def read(self, *requests: Request) -> list[Array]:
        readable, unreadable, arguments = self.codec.read(list(requests))
        assert unreadable == []
        assert readable == list(requests)
        found: list[Array] = arguments
        return found

    def write(self, returned: object, *requests: Request) -> list[list[Array]]:
        """The results that stand in the requests' memory; they are what their parts would be."""
        results = self.codec.check(returned, [request.rows for request in requests])
        sizes = self.codec.write(results, list(requests))
        found = [
            self._unpacked(request, bytes(self.segment.memory[request.result_offset :][:size]))
            for request, size in zip(requests, sizes, strict=True)
            if isinstance(size, int)
        ]
        as_parts = [
            self._unpacked(request, part)
            for request, part in zip(
                requests, self.codec.parts(results, list(requests)), strict=True
            )
            if isinstance(part, bytes)
        ]
        assert str(as_parts) == str(found)
        return found

    def _unpacked(self, request: Request, data: bytes) -> list[Array]:
        return unpack(self.outputs, request.rows, data)


def numbers(tensor: Tensor, shape: tuple[int, ...], first: int) -> Array:
    """Values that every datatype holds exactly, no two alike where it has as many."""
    count = int(np.prod(shape))
    if tensor.datatype.name == "BYTES":
        values: Array = np.empty(count, dtype=object)
        values[:] = [b"\0%d\0" % (first + i) * ((first + i) % 3) for i in range(count)]
        return values.reshape(shape)
    counting = (np.arange(count) + first) % 120
    dtype = {"BOOL": "?", "BF16": "<f4"}.get(tensor.datatype.name, tensor.datatype.numpy)
    return (counting % 2 == 1 if dtype == "?" else counting).astype(dtype).reshape(shape)


SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (0,), (2, 0, 3), (-1,), (-1, 2, -1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", DATATYPES)
@pytest.mark.parametrize("rows", first_of([[1], [2, 1, 4], [1, 1, 1], [3, 3]], 2), ids=str)
def test_every_datatype_and_shape_comes_out_as_it_went_in(
    name: str, shape: tuple[int, ...], rows: list[int]
) -> None:
    tensor = Tensor("x", name, shape)
    bench = Bench([tensor], [tensor])
    own_shape = tuple(4 if size == -1 else size for size in shape)
    values = [numbers(tensor, (n, *own_shape), 10 * i) for i, n in enumerate(rows)]
    requests = [
        bench.request(v, rows=n, result_bytes=PAGE) for v, n in zip(values, rows, strict=True)
    ]
    (gathered,) = bench.read(*requests)
    assert gathered.shape == (sum(rows), *own_shape)
    assert gathered.dtype == values[0].dtype
    assert np.array_equal(gathered, np.concatenate(values))
    for (result,), value in zip(bench.write(gathered, *requests), values, strict=True):
        assert np.array_equal(result, value)


@pytest.mark.parametrize("shape", [(), (3,), (-1,)], ids=str)
def test_results_of_the_same_shapes_have_parts_of_their_own(shape: tuple[int, ...]) -> None:
    """What is kept between two results is no part of either."""
    tensor = Tensor("x", "INT32", shape)
    bench = Bench([tensor], [tensor])
    own_shapes = [tuple(size if size > 0 else left for size in shape) for left in (2, 2, 4, 2, 2)]
    counts = (3, 3, 2, 2, 3)
    sizes = zip(counts, own_shapes, strict=True)
    values = [numbers(tensor, (rows, *own), 9 * n) for n, (rows, own) in enumerate(sizes)]
    requests = [bench.request(np.zeros((1, *own_shapes[0]), np.int32)) for _ in range(max(counts))]
    found = [
        bench.codec.parts(bench.codec.check(value, [1] * len(value)), requests[: len(value)])
        for value in values
    ]
    for value, parts in zip(values, found, strict=True):
        for row, part in zip(value, parts, strict=True):
            assert isinstance(part, bytes)
            (own,) = unpack([tensor], 1, part)
            assert np.array_equal(own[0], row)


def test_gathered_arrays_are_the_models_own() -> None:
    """A model may write into its input; the request must be there unharmed for another run."""
    bench = Bench([X], [X])
    requests = [bench.request([[1.0, 2.0]]), bench.request([[3.0, 4.0]])]
    for batch in (requests, requests[:1]):
        (gathered,) = bench.read(*batch)
        gathered[...] = -1
        assert bench.read(*batch)[0].tolist() == [[1.0, 2.0], [3.0, 4.0]][: len(batch)]


def test_several_inputs_arrive_in_their_order() -> None:
    inputs = [Tensor("a", "INT64", []), Tensor("b", "BYTES", []), Tensor("c", "FP32", [-1])]
    bench = Bench(inputs, [X])
    requests = [
        bench.request([1, 2], [b"p", b""], [[0.5], [1.5]], rows=2),
        bench.request([3], [b"long text"], [[2.5]]),
    ]
    a, b, c = bench.read(*requests)
    assert a.tolist() == [1, 2, 3]
    assert b.tolist() == [b"p", b"", b"long text"]
    assert c.tolist() == [[0.5], [1.5], [2.5]]


TWO = [Tensor("p", "FP32", [2]), Tensor("q", "BYTES", [])]
RETURNED = {
    "tuple": ([[1, 2], [3, 4]], [b"a", b"bc"]),
    "list": [[[1, 2], [3, 4]], [b"a", b"bc"]],
    "dict": {"q": np.array(["a", "bc"]), "p": np.array([[1, 2], [3, 4]])},
}


@pytest.mark.parametrize("returned", RETURNED.values(), ids=RETURNED.keys())
def test_several_outputs_leave_as(returned: object) -> None:
    bench = Bench([X], TWO)
    requests = [bench.request([[0, 0]]), bench.request([[0, 0]])]
    (p1, q1), (p2, q2) = bench.write(returned, *requests)
    assert (p1.tolist(), q1.tolist()) == ([[1.0, 2.0]], [b"a"])
    assert (p2.tolist(), q2.tolist()) == ([[3.0, 4.0]], [b"bc"])


Y = Tensor("y", "FP32", [2])
GOOD = {
    "list-of-lists": (Y, [[1, 2], [3, 4]], [[1.0, 2.0], [3.0, 4.0]]),
    "dict-of-one": (Y, {"y": [[1, 2], [3, 4]]}, [[1.0, 2.0], [3.0, 4.0]]),
    "float64": (Y, np.array([[1, 2], [3, 4.5]]), [[1.0, 2.0], [3.0, 4.5]]),
    "big-endian": (Y, np.array([[1, 2], [3, 4]], ">f4"), [[1.0, 2.0], [3.0, 4.0]]),
    "not-contiguous": (Y, np.array([[1, 3], [2, 4]], "<f4").T, [[1.0, 2.0], [3.0, 4.0]]),
    "every-other": (Y, np.arange(8, dtype="<f4")[::2].reshape(2, 2), [[0.0, 2.0], [4.0, 6.0]]),
    "integers-for-floats": (Y, np.array([[1, 2], [3, 4]]), [[1.0, 2.0], [3.0, 4.0]]),
    "int64-that-fits-int32": (Tensor("y", "INT32", []), np.array([7, -8]), [7, -8]),
    "int64-that-fits-int8": (Tensor("y", "INT8", []), np.array([127, -128]), [127, -128]),
    "bool-for-int": (Tensor("y", "INT8", []), np.array([True, False]), [1, 0]),
    "bytes-keep-their-zeros": (Tensor("y", "BYTES", []), [b"a\0", b"\0"], [b"a\0", b"\0"]),
    "text-for-bytes": (Tensor("y", "BYTES", []), ["ä", ""], ["ä".encode(), b""]),
    "numpy-text-for-bytes": (Tensor("y", "BYTES", []), np.array(["a", "bc"]), [b"a", b"bc"]),
    "open-size": (Tensor("y", "FP32", [-1]), [[], []], [[], []]),
}


@pytest.mark.parametrize("alike", ["", "few", "many"])
@pytest.mark.parametrize(("output", "returned", "values"), GOOD.values(), ids=GOOD.keys())
def test_a_good_result_is_written_as_declared(
    output: Tensor,
    returned: object,
    values: list[Any],
    alike: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tensors_module, "FEW", {"many": 1}.get(alike, FEW))
    bench = Bench([X], [output])
    requests = [bench.request([[0, 0]]), bench.request([[0, 0]])]
    if alike:
        together = bench.engine_slots.read_uniform([request.ref for request in requests])
        assert together is not None
        size = bench.codec.write_uniform(bench.codec.check(returned, [1, 1]), together)
        if size is None:
            assert output.row_bytes is None, "only sizes that are open are written one by one"
            return
        written = [
            unpack([output], 1, bytes(bench.segment.memory[r.result_offset :][:size]))
            for r in requests
        ]
    else:
        written = bench.write(returned, *requests)
    assert [result[0].tolist()[0] for result in written] == values


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1])
@pytest.mark.parametrize("size", [0, 3, 530])
@pytest.mark.parametrize("name", ["FP32", "BF16", "BOOL"])
def test_requests_that_are_alike_are_read_and_written_like_single_ones(
    name: str, size: int, count: int
) -> None:
    kinds = [Tensor("n", "INT16", [2]), Tensor("t", name, [size])]
    bench = Bench(kinds, kinds)
    sent = [[numbers(t, (2, *t.shape), 7 * n) for t in kinds] for n in range(count)]
    requests = [bench.request(*v, rows=2, result_bytes=2 * 64 + 8 * size) for v in sent]
    together = bench.engine_slots.read_uniform([request.ref for request in requests])
    assert together is not None
    gathered = bench.codec.read_uniform(together)
    assert gathered is not None
    for array, values in zip(gathered, zip(*sent, strict=True), strict=True):
        assert np.array_equal(array, np.concatenate(values))
        assert array.flags.writeable
    written = bench.codec.write_uniform(bench.codec.check(tuple(gathered), [2] * count), together)
    assert written is not None
    for request, own in zip(requests, sent, strict=True):
        result = unpack(kinds, 2, bytes(bench.segment.memory[request.result_offset :][:written]))
        assert all(map(np.array_equal, result, own))


ONE = [Tensor("y", "FP32", [2])]
WRONG = {
    "rows-missing": (ONE, [[1, 2]], r"output 'y' has shape \[1, 2\], declared is \[2, 2\]"),
    "rows-too-many": (ONE, np.zeros((3, 2)), r"output 'y' has shape \[3, 2\]"),
    "wrong-shape": (ONE, np.zeros((2, 3)), r"shape \[2, 3\], declared is \[2, 2\]"),
    "no-batch-dimension": (ONE, np.zeros(4), r"shape \[4\], declared is \[2, 2\]"),
    "one-dimension-too-many": (ONE, np.zeros((2, 2, 1)), r"shape \[2, 2, 1\]"),
    "none": (ONE, None, r"output 'y' is None, and no array"),
    "a-number": (ONE, 3.5, r"output 'y' has shape \[\]"),
    "ragged": (ONE, [[1, 2], [3]], r"output 'y' is no array"),
    "texts-for-numbers": (ONE, [["1", "2"], ["3", "4"]], r"output 'y' is <U1, declared is FP32"),
    "objects-for-numbers": (ONE, [[1, None], [3, 4]], r"output 'y' is object, declared is FP32"),
    "complex": (ONE, np.zeros((2, 2), complex), r"is complex128, declared is FP32"),
    "floats-for-integers": ([Tensor("y", "INT64", [])], [1.0, 2.0],
        r"output 'y' is float64, declared is INT64"),
    "numbers-for-bool": ([Tensor("y", "BOOL", [])], [1, 0], r"is int64, declared is BOOL"),
    "one-output-of-two": (TWO, [[1, 2], [3, 4]], r"output 'p' has shape \[2\]"),
    "a-single-array-for-two": (TWO, np.zeros((2, 2)), r"returned one value, declared are 2"),
    "three-outputs-for-two": (TWO, (1, 2, 3), r"returned 3 values, declared are 2 outputs"),
    "dict-with-a-name-missing": (TWO, {"p": 1}, r"outputs \['p'\], declared are \['p', 'q'\]"),
    "dict-with-another-name": (ONE, {"z": 1}, r"returned outputs \['z'\], declared are \['y'\]"),
    "dict-with-odd-names": (ONE, {"z": 1, 3: 1}, r"returned outputs \['3', 'z'\]"),
}  # fmt: skip


class Unconvertible:
    def __array__(self, *_arguments: object, **_more: object) -> Array:
        raise RuntimeError("on the wrong device")


@pytest.mark.parametrize(("outputs", "returned", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_result_is_refused_in_words(
    outputs: list[Tensor], returned: object, words: str
) -> None:
    with pytest.raises(WrongResult, match=words):
        Checker(outputs).outputs(returned, 2)


def test_a_value_that_cannot_become_an_array_is_refused_in_words() -> None:
    with pytest.raises(WrongResult, match="output 'y' is no array: on the wrong device"):
        Checker(ONE).outputs(Unconvertible(), 2)


Y8, TEXTS = Tensor("y", "INT8", [2]), Tensor("y", "BYTES", [2])
FAULTS = {
    "numbers-beyond": (Y8, [[1, 127], [128, 1]], "holds numbers beyond the declared INT8"),
    "numbers-below": (Y8, [[1, 2], [-129, 1]], "holds numbers beyond the declared INT8"),
    "numbers-for-texts": (TEXTS, [["a", b"b"], [1, "c"]], "holds an int, declared is BYTES"),
    "nothing-for-a-text": (TEXTS, [["a", "b"], [None, ""]], "holds None, declared is"),
    "a-list-for-a-text": (TEXTS, [["a", "b"], [[], "c"]], "holds a list, declared is BYTES"),
    "half-a-pair": (TEXTS, [["a", "b"], ["\ud800", "c"]], "holds half of a surrogate pair"),
    "masked": (
        Y8,
        np.ma.masked_array([[1, 2], [3, 4]], [[False, False], [True, False]]),
        "holds masked values",
    ),
}


@pytest.mark.parametrize(("output", "returned", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_unencodable_elements_are_a_fault_of_their_own(
    output: Tensor, returned: Any, words: str
) -> None:
    checked = Checker([output]).outputs(returned, 2)
    (array,), (fault,) = checked.arrays, checked.faults
    assert fault.output == 0
    assert fault.elements.tolist() == [[False, False], [True, False]]
    assert str(fault.error).startswith(f"output 'y' {words}")
    good = [b"a", b"b"] if output is TEXTS else np.asarray(returned)[0].tolist()
    assert array[0].tolist() == good


def test_without_a_batch_dimension_a_fault_is_the_only_rows() -> None:
    checked = Checker([Y8], batched=False).outputs([1, 128], 1)
    (array,), (fault,) = checked.arrays, checked.faults
    assert array.shape == (1, 2)
    assert fault.elements.tolist() == [[False, True]]


def test_bf16_is_rounded_to_the_nearest() -> None:
    tensor = Tensor("x", "BF16", [2])
    bench = Bench([X], [tensor])
    nan = np.frombuffer(bytes.fromhex("0100807f"), "<f4")
    ((written,),) = bench.write(
        np.array([[1 + 2**-8 + 2**-20, nan[0]]], np.float32), bench.request([[0, 0]])
    )
    assert written[0, 0] == 1 + 2**-7
    assert np.isnan(written[0, 1])


class Crooked(np.ndarray):
    """Array whose slices have doubled values, and whose bytes are not its values'."""

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key] * 2

    def tobytes(self, *_arguments: Any, **_more: Any) -> bytes:
        return bytes(self.nbytes)


KINDS = {
    "masked": lambda values: np.ma.masked_array(values, np.zeros(values.shape, bool)),
    "matrix": np.asmatrix,
    "crooked": lambda values: values.view(Crooked),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("count", [1, 2, FEW + 1])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_any_kind_of_array_is_written_by_its_values_beside_any_other(kind: Any, count: int) -> None:
    bench = Bench([X], [Tensor("y", "FP32", [2])])
    values = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    requests = [bench.request([[0, 0]]) for _ in range(count)]
    written = bench.write(kind(values), *requests)
    assert [rows.tolist() for (rows,) in written] == [[row] for row in values.tolist()]
    together = bench.engine_slots.read_uniform([request.ref for request in requests])
    assert together is not None
    size = bench.codec.write_uniform(bench.codec.check(kind(values), [1] * count), together)
    assert size == 8
    for request, row in zip(requests, values, strict=True):
        assert bytes(bench.segment.memory[request.result_offset :][:8]) == row.tobytes()


@pytest.mark.parametrize("output", [Tensor("y", "FP32", [4]), Tensor("y", "BYTES", [-1])], ids=str)
def test_a_result_without_room_gives_its_size_and_writes_nothing(output: Tensor) -> None:
    bench = Bench([X], [output])
    values = numbers(output, (2, 4), 1)
    sizes = [len(pack([output], [values[i : i + 1]])[0]) for i in range(2)]
    small = bench.request([[0, 0]], result_bytes=sizes[0] - 1)
    large = bench.request([[0, 0]], result_bytes=sizes[1])
    before = bytes(bench.segment.memory[small.result_offset :][: sizes[0]])
    found = bench.codec.write(bench.codec.check(values, [1, 1]), [small, large])
    assert found == sizes
    assert bytes(bench.segment.memory[small.result_offset :][: sizes[0]]) == before
    (result,) = unpack([output], 1, bytes(bench.segment.memory[large.result_offset :][: sizes[1]]))
    assert np.array_equal(result, values[1:])


def test_bf16_is_float32_to_the_model() -> None:
    tensor = Tensor("x", "BF16", [2])
    bench = Bench([tensor], [tensor])
    request = bench.request([[1.5, -3.0]])
    (gathered,) = bench.read(request)
    assert gathered.dtype == np.float32
    assert gathered.tolist() == [[1.5, -3.0]]


tensors = st.builds(
    Tensor,
    name=st.just("t"),
    datatype=st.sampled_from(list(DATATYPES)),
    shape=st.lists(st.sampled_from([-1, 0, 1, 2, 3]), max_size=3),
)


@given(
    st.lists(tensors, min_size=1, max_size=3),
    st.lists(st.integers(1, 5), min_size=1, max_size=9),
    st.integers(0, 3),
)
def test_an_identity_gives_every_request_its_own_back(
    kinds: list[Tensor], rows: list[int], opened: int
) -> None:
    named = [Tensor(f"t{i}", t.datatype.name, t.shape) for i, t in enumerate(kinds)]
    bench = Bench(named, named)
    sent = []
    for number, own in enumerate(rows):
        shapes = [(own, *(opened if d == -1 else d for d in t.shape)) for t in named]
        values = [numbers(t, s, 7 * number) for t, s in zip(named, shapes, strict=True)]
        sent.append((bench.request(*values, rows=own, result_bytes=PAGE), values))
    requests = [request for request, _ in sent]
    gathered = bench.read(*requests)
    returned = tuple(gathered) if len(gathered) > 1 else gathered[0]
    written = bench.write(returned, *requests)
    for got, (_, wanted) in zip(written, sent, strict=True):
        for result, value in zip(got, wanted, strict=True):
            assert np.array_equal(result, value)
