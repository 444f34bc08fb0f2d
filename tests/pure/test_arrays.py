"""Arrays to slots and back, against layouts that segment_fixture.py writes a second time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from segment_fixture import pack, spec, unpack

from ringbatch.frontend.client.arrays import ArrayCodec, RowCodec
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.shm.chain import REQUEST, Chain, Source, Step
from ringbatch.shm.errors import InvalidRequest, ModelFailed
from ringbatch.shm.tensor import DATATYPES, Tensor

NUMBERS = [name for name, datatype in DATATYPES.items() if datatype.fixed and name != "BF16"]


def codec(*inputs: Tensor, outputs: Sequence[Tensor] = (), max_batch_size: int = 4) -> ArrayCodec:
    return ArrayCodec(
        spec(0, inputs, outputs or inputs, max_batch_size=max_batch_size, timeout_ns=1)
    )


def sample(datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    values = np.arange(int(np.prod(shape))).reshape(shape)
    return (values % 2 if datatype == "BOOL" else values).astype(DATATYPES[datatype].numpy)


def payloads(parts: Any) -> list[tuple[int, bytes, int]]:
    return [(part.rows, bytes(part.payload), part.key_bytes) for part in parts]


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_of_every_datatype_go_through_unchanged(datatype: str) -> None:
    tensor = Tensor("x", datatype, [2, 3])
    array = sample(datatype, (4, 2, 3))
    mine = codec(tensor)
    for _ in range(2):  # the second time the shape is known
        (part,) = mine.parse(array)
        payload, key_bytes = pack([tensor], [array])
        assert payloads([part]) == [(4, payload, key_bytes)]
    answer = mine.render([(4, bytearray(payload))])
    assert isinstance(answer, np.ndarray)
    assert (answer == array).all()
    assert answer.dtype == array.dtype
    assert answer.flags.writeable


@pytest.mark.parametrize(
    "spell", [np.asarray, np.asfortranarray, lambda a: np.repeat(a, 2, 0)[::2]]
)
def test_arrays_of_any_order_are_the_same(spell: Any) -> None:
    array = sample("FP32", (3, 2, 2))
    mine = codec(Tensor("x", "FP32", [2, 2]))
    for _ in range(2):
        assert payloads(mine.parse(spell(array))) == [(3, array.tobytes(), 0)]


def test_equal_values_are_the_bytes_of_v2() -> None:
    """Requests of all protocols can share a batch because their values have equal bytes."""
    tensors = [Tensor("a", "FP32", [-1]), Tensor("s", "BYTES", []), Tensor("n", "BOOL", [2])]
    one = spec(0, tensors, tensors, timeout_ns=1)
    body = (
        b'{"inputs":[{"name":"a","datatype":"FP32","shape":[2,3],"data":[1,2,3,4,5,6]},'
        b'{"name":"s","datatype":"BYTES","shape":[2],"data":["x","yz"]},'
        b'{"name":"n","datatype":"BOOL","shape":[2,2],"data":[true,false,false,true]}]}'
    )
    arrays = {
        "n": np.array([[True, False], [False, True]]),
        "s": np.array(["x", b"yz"], dtype=object),
        "a": np.arange(1, 7, dtype=np.float32).reshape(2, 3),
    }
    assert payloads(ArrayCodec(one).parse(arrays)) == payloads(
        V2Model(one).requests.parse(body, None).parts
    )


def test_bits_of_bf16_are_uint16() -> None:
    mine = codec(Tensor("x", "BF16", [2]))
    bits = np.array([[0x3F80, 0x4000]], np.uint16)
    assert payloads(mine.parse(bits)) == [(1, bits.tobytes(), 0)]
    answer = mine.render([(1, bytearray(bits.tobytes()))])
    assert isinstance(answer, np.ndarray)
    assert (answer.tolist(), answer.dtype) == (bits.tolist(), np.dtype(np.uint16))


@pytest.mark.parametrize(
    "array",
    [
        np.array([b"a", "\u00e4", b""], dtype=object),
        np.array(["a", "\u00e4", ""]),
        np.array([b"a", "\u00e4".encode(), b""]),
    ],
    ids=["objects", "str", "bytes"],
)
def test_strings_of_every_kind_become_bytes(array: NDArray[Any]) -> None:
    tensor = Tensor("s", "BYTES", [])
    mine = codec(tensor)
    expected = [b"a", "\u00e4".encode(), b""]
    payload, _ = pack([tensor], [np.array(expected, dtype=object)])
    (part,) = mine.parse(array)
    assert payloads([part]) == [(3, payload, 0)]
    answer = mine.render([(3, bytearray(payload))])
    assert isinstance(answer, np.ndarray)
    assert (answer.tolist(), answer.dtype) == (expected, np.dtype(object))


def test_booleans_that_are_neither_0_nor_1_are_true() -> None:
    mine = codec(Tensor("x", "BOOL", [3]))
    odd = np.array([[0, 2, 1]], np.uint8).view(bool)
    assert payloads(mine.parse(odd)) == [(1, b"\0\1\1", 0)]
    answer = mine.render([(1, bytearray(b"\0\2\1"))])
    assert isinstance(answer, np.ndarray)
    assert answer.view(np.uint8).tolist() == [[0, 1, 1]]


def test_more_rows_than_the_cap_are_split_and_joined() -> None:
    tensors = [Tensor("a", "INT64", []), Tensor("s", "BYTES", [2])]
    mine = codec(*tensors)
    arrays = {
        "a": np.arange(9),
        "s": np.array([[f"{n}", "x" * n] for n in range(9)]),
    }
    parts = mine.parse(arrays)
    assert [part.rows for part in parts] == [4, 4, 1]
    for start, part in zip((0, 4, 8), parts, strict=True):
        a, s = unpack(tensors, part.rows, bytes(part.payload))
        assert a.tolist() == arrays["a"][start : start + part.rows].tolist()
        texts = arrays["s"][start : start + part.rows]
        assert s.tolist() == [[text.encode() for text in row] for row in texts.tolist()]
    answer = mine.render([(part.rows, bytearray(part.payload)) for part in parts])
    assert isinstance(answer, dict)
    assert answer["a"].tolist() == list(range(9))
    assert answer["s"].tolist() == [[b"%d" % n, b"x" * n] for n in range(9)]


def test_open_dimensions_stand_in_front_and_come_back() -> None:
    tensor = Tensor("x", "INT8", [-1, 2, -1])
    mine = codec(tensor)
    array = sample("INT8", (2, 3, 2, 4))
    (part,) = mine.parse(array)
    payload, key_bytes = pack([tensor], [array])
    assert payloads([part]) == [(2, payload, key_bytes)]
    assert key_bytes == 16
    answer = mine.render([(2, bytearray(payload))])
    assert isinstance(answer, np.ndarray)
    assert (answer == array).all()


DIFFER = (
    r'^rows of output "x" differ in shape, such as \[3\] and \[4\], and nothing says how to pad '
    r'them; send each .* own, or .* declare .*: Tensor\("x", ..., padding=0\)$'
)


def test_parts_of_different_shape_are_the_models_fault() -> None:
    tensor = Tensor("x", "INT8", [-1])
    one, _ = pack([tensor], [sample("INT8", (1, 3))])
    other, _ = pack([tensor], [sample("INT8", (1, 4))])
    with pytest.raises(ModelFailed, match=DIFFER):
        codec(tensor).render([(1, bytearray(one)), (1, bytearray(other))])


def test_texts_are_to_be_padded_with_an_empty_one() -> None:
    tensor = Tensor("s", "BYTES", [-1])
    parts = [(1, bytearray(pack([tensor], [[words]])[0])) for words in ([b"a"], [b"a", b"b"])]
    with pytest.raises(ModelFailed, match=r'Tensor\("s", ..., padding=""\)$'):
        codec(tensor).render(parts)
    assert Tensor("s", "BYTES", [-1], padding="").padding == b""


@pytest.mark.parametrize("size", [0, 7, 9])
def test_a_result_of_another_size_is_the_models_fault(size: int) -> None:
    with pytest.raises(ModelFailed, match="does not fit the model's outputs"):
        codec(Tensor("x", "INT64", [])).render([(1, bytearray(size))])


def test_without_a_batch_dimension_arrays_have_the_shape_of_one_instance() -> None:
    mine = codec(Tensor("x", "FP32", [2]), outputs=[Tensor("y", "FP32", [])], max_batch_size=0)
    assert payloads(mine.parse(np.array([1, 2], np.float32))) == [
        (1, np.array([1, 2], np.float32).tobytes(), 0)
    ]
    answer = mine.render([(1, bytearray(np.float32(5).tobytes()))])
    assert isinstance(answer, np.ndarray)
    assert (answer.shape, float(answer)) == ((), 5.0)
    with pytest.raises(InvalidRequest, match=r'has shape \[1, 2\], but model "m" takes FP32 of sh'):
        mine.parse(np.zeros((1, 2), np.float32))


def test_no_instances_have_an_answer_where_its_shape_is_known() -> None:
    mine = codec(Tensor("x", "FP32", [2]), outputs=[Tensor("y", "INT8", [3])])
    assert mine.parse(np.zeros((0, 2), np.float32)) == ()
    answer = mine.render([])
    assert isinstance(answer, np.ndarray)
    assert (answer.shape, answer.dtype) == ((0, 3), np.dtype(np.int8))
    with pytest.raises(InvalidRequest, match="no instances"):
        codec(Tensor("x", "FP32", [2]), outputs=[Tensor("y", "INT8", [-1])]).parse(
            np.zeros((0, 2), np.float32)
        )


def test_arrays_without_elements_are_sound() -> None:
    mine = codec(Tensor("x", "FP32", [0]))
    for _ in range(2):
        assert payloads(mine.parse(np.zeros((3, 0), np.float32))) == [(3, b"", 0)]


TWO = codec(Tensor("a", "FP32", [2]), Tensor("s", "BYTES", []))
GOOD: dict[str, Any] = {"a": np.zeros((1, 2), np.float32), "s": np.array(["x"])}


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (GOOD | {"a": np.zeros((1, 2))}, 'input "a" is FP64, but model "m" takes FP32 of shape'),
        (GOOD | {"a": np.zeros((1, 2), ">f4")}, 'has datatype ">f4", which there is not'),
        (GOOD | {"a": np.zeros((1, 2), "M8[s]")}, "which there is not, but"),
        (GOOD | {"a": np.zeros((1, 3), np.float32)}, r'input "a" has shape \[1, 3\], but model'),
        (GOOD | {"a": np.zeros(2, np.float32)}, r'input "a" has shape \[2\], but model'),
        (GOOD | {"a": np.zeros((2, 2), np.float32)}, "the first sizes of the shapes differ: 2, 1"),
        (GOOD | {"a": [[1.0, 2.0]]}, 'input "a" is a list, not a numpy array'),
        (GOOD | {"s": np.array([1])}, 'input "s" is INT64, but model "m" takes BYTES'),
        (GOOD | {"s": np.array([1.5], object)}, 'input "s" holds a float; the elements of BYTES'),
        (GOOD | {"s": np.array(["\ud800"])}, "half of a surrogate pair"),
        (GOOD | {"b": GOOD["a"]}, r'inputs\[2\] is "b", but model "m" takes "a", "s"'),
        ({"a": GOOD["a"]}, 'the request lacks input "s"'),
        (GOOD["a"], 'the inputs are an ndarray, but model "m" takes "a", "s", which are given as'),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_words(inputs: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        TWO.parse(inputs)


def test_a_shape_found_right_does_not_let_another_dtype_pass() -> None:
    mine = codec(Tensor("x", "FP32", [2]))
    mine.parse(np.zeros((1, 2), np.float32))
    with pytest.raises(InvalidRequest, match="is INT32"):
        mine.parse(np.zeros((1, 2), np.int32))


SHAPES = st.lists(st.sampled_from([-1, 0, 1, 2, 3]), max_size=3)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(DATATYPES)), SHAPES), min_size=1, max_size=3),
    st.integers(1, 9),
    st.data(),
)
def test_decoded_arrays_equal_the_encoded_ones(
    signature: list[tuple[str, list[int]]], rows: int, data: st.DataObject
) -> None:
    tensors = [Tensor(f"t{n}", kind, shape) for n, (kind, shape) in enumerate(signature)]
    sizes = st.integers(0, 3)
    arrays = {}
    for tensor in tensors:
        shape = (rows, *(data.draw(sizes) if d < 0 else d for d in tensor.shape))
        count = int(np.prod(shape))
        if tensor.datatype.fixed:
            dtype = np.dtype("u2" if tensor.datatype.name == "BF16" else tensor.datatype.numpy)
            # Not a number is equal to nothing; bits of 1 and 0 alone are numbers in every datatype.
            raw = data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
            arrays[tensor.name] = np.array(raw, dtype).reshape(shape)
        else:
            texts = data.draw(st.lists(st.binary(max_size=5), min_size=count, max_size=count))
            flat = np.empty(count, object)
            flat[:] = texts
            arrays[tensor.name] = flat.reshape(shape)
    mine = codec(*tensors, max_batch_size=4)
    # Instances without elements cost no bytes, so their number is bounded otherwise.
    assume(rows <= 4 or any(array.size for array in arrays.values()))
    parts = mine.parse(arrays)
    assert sum(part.rows for part in parts) == rows
    answer = mine.render([(part.rows, bytearray(part.payload)) for part in parts])
    if isinstance(answer, np.ndarray):
        answer = {tensors[0].name: answer}
    for name, array in arrays.items():
        assert answer[name].dtype == array.dtype
        assert answer[name].shape == array.shape
        assert (answer[name] == array).all()


def test_rows_are_the_bytes_of_each_instance_whether_batched_or_not() -> None:
    for cap in (0, 4):
        one = spec(0, [Tensor("x", "INT16", [2])], [Tensor("y", "BOOL", [3])], max_batch_size=cap)
        mine = RowCodec(one)
        array = sample("INT16", (5, 2))
        assert [row.tobytes() for row in mine.rows(array)] == [row.tobytes() for row in array]
        results = mine.room(2)
        assert mine.predictions(results).tolist() == [[False] * 3] * 2
        results[1] = b"\0\1\2"
        assert mine.predictions(results).tolist() == [[False] * 3, [False, True, True]]
        assert mine.rows(array[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ([Tensor("x", "INT8", [-1])], [Tensor("y", "INT8", [])]),
        ([Tensor("x", "INT8", [])], [Tensor("y", "BYTES", [])]),
        ([Tensor("x", "INT8", [0])], [Tensor("y", "INT8", [])]),
        ([Tensor("x", "INT8", []), Tensor("z", "INT8", [])], [Tensor("y", "INT8", [])]),
        ([], []),
    ],
)
def test_rows_of_no_fixed_size_are_refused(inputs: list[Tensor], outputs: list[Tensor]) -> None:
    with pytest.raises(InvalidRequest, match="not one input and one output"):
        RowCodec(spec(0, inputs, outputs))


@pytest.mark.parametrize(("size", "sound"), [(2, True), (-1, False)])
def test_rows_of_a_chain_that_keeps_tensors_of_unknown_size_are_refused(
    size: int, sound: bool
) -> None:
    x, kept = Tensor("x", "INT8", []), Tensor("kept", "INT8", [size])
    first = Step("first", "", (x,), (kept,), True, (Source(REQUEST, 0),), (0,))
    last = Step("last", "", (kept,), (x,), True, (Source(0, 0),), ())
    chained = replace(spec(0, [x], [x]), chain=Chain((first, last), (Source(1, 0),)))
    if sound:
        assert RowCodec(chained).input_bytes == 1
    else:
        with pytest.raises(InvalidRequest, match="size depends on the request"):
            RowCodec(chained)


def test_rows_that_do_not_fit_are_refused_in_words() -> None:
    mine = RowCodec(spec(0, [Tensor("x", "INT16", [2])], [Tensor("y", "INT8", [])]))
    for rows, words in (
        (sample("INT32", (1, 2)), 'input "x" is INT32, but model'),
        (sample("INT16", (1, 3)), r'input "x" has shape \[1, 3\]'),
        ([[1, 2]], 'input "x" is a list, not a numpy array'),
    ):
        with pytest.raises(InvalidRequest, match=words):
            mine.rows(rows)


@pytest.mark.parametrize("datatype", ["INT16", "FP32", "BOOL", "BYTES"])
def test_no_mask_is_lost(datatype: str) -> None:
    """Nor is an array refused that could mask elements and masks none."""
    values: Any = sample(datatype, (2, 2)) if datatype != "BYTES" else np.array([[b"a"] * 2] * 2)
    tensor = Tensor("x", datatype, [2])
    parsers: list[Any] = [codec(tensor).parse]
    if datatype != "BYTES":
        parsers.append(RowCodec(spec(0, [tensor], [Tensor("y", "INT8", [])])).rows)
    for parse in parsers:
        # A shape that was found right is no excuse.
        parse(values)
        parse(np.ma.masked_array(values, np.zeros((2, 2), bool)))
        for mask in (np.eye(2, dtype=bool), np.ones((2, 2), bool)):
            with pytest.raises(InvalidRequest, match=r'input "x" is a masked array .* filled\(\)'):
                parse(np.ma.masked_array(values, mask))
    with pytest.raises(InvalidRequest, match="masked"):
        codec(tensor).parse({"x": np.ma.masked_array(values, np.eye(2, dtype=bool))})
