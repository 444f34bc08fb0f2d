"""ModelInferRequest to slots: both forms of values, every datatype, and what is refused."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from segment_fixture import pack, spec

from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.codec.part_limits import PartLimits
from ringbatch.frontend.codec.payload import Bytes, LazyBytes
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.offloaded_messages import decode_requested, encode_requested
from ringbatch.frontend.grpc.request import GrpcRequest, requests_of
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.frontend.v2.shared_memory import RegionSpan
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

ADDONE = spec(0, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], name="addone")
TWO = spec(
    0,
    [Tensor("n", "INT64", [-1]), Tensor("s", "BYTES", [2])],
    [Tensor("n", "INT64", [-1]), Tensor("h", "FP16", [1]), Tensor("s", "BYTES", [2])],
    name="two",
    max_batch_size=2,
)
ONES = bytes.fromhex("0000803f00000040")


def tensor(name: str, datatype: str, shape: Sequence[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **more}


def read(model: ModelSpec, **fields: Any) -> GrpcRequest:
    return requests_of(model).read(inference("ModelInferRequest")(**fields))


def raw(
    model: ModelSpec, inputs: Sequence[dict[str, Any]], *data: bytes, **more: Any
) -> GrpcRequest:
    return read(model, inputs=inputs, raw_input_contents=data, **more)


def test_raw_contents_are_the_payload() -> None:
    request = raw(ADDONE, [tensor("x", "FP32", [1, 2])], ONES, id="42")
    ((rows, payload, key_bytes),) = request.parts
    assert (rows, bytes(payload), key_bytes) == (1, ONES, 0)
    assert request.requested == (((0, True, 0),), False, 0, 0, False, (0, 0))


def test_typed_contents_are_the_same_payload() -> None:
    request = read(ADDONE, inputs=[tensor("x", "FP32", [1, 2], contents={"fp32_contents": [1, 2]})])
    ((rows, payload, key_bytes),) = request.parts
    assert (rows, bytes(payload), key_bytes) == (1, ONES, 0)
    assert request.requested == (((0, True, 0),), False, 0, 0, False, (0, 0))


def unless_raw(wanted: bool) -> dict[str, Any]:
    return {"binary_data_output": {"bool_param": wanted}}


@pytest.mark.parametrize("wanted", [True, False])
def test_answers_are_typed_where_that_is_asked_for(wanted: bool) -> None:
    """Triton's clients read nothing else than raw answers, whatever they send."""
    raw_x = tensor("x", "FP32", [1, 2])
    typed_x = raw_x | {"contents": {"fp32_contents": [1, 2]}}
    for request in (
        read(ADDONE, inputs=[typed_x], parameters=unless_raw(wanted)),
        read(ADDONE, inputs=[raw_x], raw_input_contents=[ONES], parameters=unless_raw(wanted)),
    ):
        assert request.requested.typed is not wanted
        assert request.requested.all_raw is wanted


def test_a_request_is_the_same_bytes_as_over_rest() -> None:
    """Open dimensions, strings and more instances than a batch holds among it."""
    numbers = np.arange(9, dtype="<i8").reshape(3, 3)
    texts = [[b"a", b""], [b"bc", b"\xff"], [b"", b"d"]]
    data = b"".join(len(text).to_bytes(4, "little") + text for row in texts for text in row)
    # The order of the inputs is the client's affair.
    inputs = [tensor("s", "BYTES", [3, 2]), tensor("n", "INT64", [3, 3])]
    request = raw(TWO, inputs, data, numbers.tobytes())
    expected = [
        pack(TWO.inputs, [numbers[:2], texts[:2]]),
        pack(TWO.inputs, [numbers[2:], texts[2:]]),
    ]
    assert [(bytes(part.payload), part.key_bytes) for part in request.parts] == expected
    over_rest = V2Model(TWO).requests.parse(
        b'{"inputs":[{"name":"n","datatype":"INT64","shape":[1,3],"data":[0,1,2]},'
        b'{"name":"s","datatype":"BYTES","shape":[1,2],"data":["a",""]}],'
        b'"outputs":[{"name":"n"}]}',
        None,
    )
    alone = raw(
        TWO,
        [tensor("n", "INT64", [1, 3]), tensor("s", "BYTES", [1, 2])],
        numbers[:1].tobytes(),
        bytes.fromhex("010000006100000000"),
    )
    assert [bytes(part.payload) for part in over_rest.parts] == [bytes(alone.parts[0].payload)]


TYPED = {
    "BOOL": ("bool_contents", [True, False], "?"),
    "INT8": ("int_contents", [-128, 127], "i1"),
    "INT16": ("int_contents", [-32768, 32767], "<i2"),
    "INT32": ("int_contents", [-(1 << 31), (1 << 31) - 1], "<i4"),
    "INT64": ("int64_contents", [-(1 << 63), (1 << 63) - 1], "<i8"),
    "UINT8": ("uint_contents", [0, 255], "u1"),
    "UINT16": ("uint_contents", [0, 65535], "<u2"),
    "UINT32": ("uint_contents", [0, (1 << 32) - 1], "<u4"),
    "UINT64": ("uint64_contents", [0, (1 << 64) - 1], "<u8"),
    "FP32": ("fp32_contents", [0.1, float("-inf")], "<f4"),
    "FP64": ("fp64_contents", [0.1, float("nan")], "<f8"),
}


@pytest.mark.parametrize("datatype", TYPED)
def test_every_datatype_travels_typed(datatype: str) -> None:
    field, values, kind = TYPED[datatype]
    model = spec(0, [Tensor("x", datatype, [])], [Tensor("y", datatype, [])])
    request = read(model, inputs=[tensor("x", datatype, [2], contents={field: values})])
    assert bytes(request.parts[0].payload) == np.array(values, kind).tobytes()


def test_strings_travel_typed_without_their_lengths() -> None:
    model = spec(0, [Tensor("s", "BYTES", [])], [Tensor("s", "BYTES", [])])
    contents = {"bytes_contents": [b"ab", b"", b"\xff\0"]}
    request = read(model, inputs=[tensor("s", "BYTES", [3], contents=contents)])
    assert bytes(request.parts[0].payload) == pack(model.inputs, [[b"ab", b"", b"\xff\0"]])[0]


@pytest.mark.parametrize(
    ("datatype", "field", "value"),
    [
        ("INT8", "int_contents", 128),
        ("INT16", "int_contents", -32769),
        ("UINT8", "uint_contents", 256),
    ],
)
def test_a_value_beyond_its_datatype_is_refused_and_not_cut(
    datatype: str, field: str, value: int
) -> None:
    model = spec(0, [Tensor("x", datatype, [])], [Tensor("y", datatype, [])])
    with pytest.raises(InvalidRequest, match=rf"x\.{field}\[1\] is {value}, but .* {datatype}"):
        read(model, inputs=[tensor("x", datatype, [2], contents={field: [1, value]})])


X = tensor("x", "FP32", [1, 2])
REFUSED = {
    "short": ([X], [ONES[:7]], "has 7 bytes of binary data, but FP32 of shape [1, 2] takes 8"),
    "long": ([X], [ONES + b"\0"], "has 9 bytes of binary data"),
    "too-many-raw": ([X], [ONES, ONES], "has 2 raw_input_contents, but 1 inputs"),
    "raw-and-typed": (
        [X | {"contents": {"fp32_contents": [1, 2]}}],
        [ONES],
        "contents field must not be specified when using raw_input_contents for 'x' for model "
        "'addone'",
    ),
    "no-values": ([X], [], 'input "x" has no values'),
    "too-few-values": (
        [X | {"contents": {"fp32_contents": [1]}}],
        [],
        'input "x" has 1 elements, but shape [1, 2] has 2',
    ),
    "another-field": (
        [X | {"contents": {"fp64_contents": [1, 2]}}],
        [],
        'input "x" has values in fp64_contents, but those of FP32 stand in fp32_contents',
    ),
    "two-fields": (
        [X | {"contents": {"fp32_contents": [1, 2], "bool_contents": [True]}}],
        [],
        'input "x" has values in bool_contents',
    ),
    "no-inputs": ([], [], 'the request lacks input "x"'),
    "twice": ([X, X], [ONES, ONES], 'input "x" stands in the request twice'),
    "unknown": (
        [X, X | {"name": "z"}],
        [ONES, ONES],
        'inputs[1] is "z", but model "addone" takes "x"',
    ),
    "nameless": ([{"datatype": "FP32", "shape": [1, 2]}], [ONES], 'inputs[0] is ""'),
    "datatype": ([X | {"datatype": "FP64"}], [ONES * 2], 'input "x" is FP64'),
    "no-datatype": (
        [{"name": "x", "shape": [1, 2]}],
        [ONES],
        'has datatype "", which there is not',
    ),
    "shape": ([X | {"shape": [1, 3]}], [ONES], "has shape [1, 3], but"),
    "negative": ([X | {"shape": [1, -2]}], [ONES], "has [1, -2] as its shape; a shape is"),
    "no-batch": ([X | {"shape": [2]}], [ONES], "has shape [2], but"),
    "huge": ([X | {"shape": [1 << 62, 2]}], [ONES], "which is too large"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_is_described(case: str) -> None:
    inputs, data, words = REFUSED[case]
    with pytest.raises(InvalidRequest) as refused:
        raw(ADDONE, inputs, *data)
    assert words in str(refused.value)


def test_each_input_has_an_entry_of_its_own() -> None:
    given = [tensor("n", "INT64", [1, 0]), tensor("s", "BYTES", [1, 2])]
    for entries in ([b""], [b"", bytes(8), b""]):
        with pytest.raises(InvalidRequest, match=f"has {len(entries)} raw_input.*, but 2 inputs"):
            raw(TWO, given, *entries)


def test_a_remembered_request_has_neither_its_id_nor_its_values() -> None:
    """The same in front of other values, twice; then what differs in anything else."""
    read_raw = requests_of(ADDONE).read

    def asked(data: bytes, shape: tuple[int, ...] = (1, 2), **more: Any) -> GrpcRequest:
        tensors = [tensor("x", "FP32", shape)]
        return read_raw(
            inference("ModelInferRequest")(inputs=tensors, raw_input_contents=[data], **more)
        )

    for identity, data in (("a", ONES), ("", bytes(8)), ("b", ONES)):
        request = asked(data, id=identity)
        assert bytes(request.parts[0].payload) == data
    assert asked(ONES * 2, (2, 2)).parts[0].rows == 2
    assert asked(ONES, parameters={"timeout": {"int64_param": 7}}).requested.timeout_ns == 7000
    assert asked(ONES).requested.timeout_ns == 0
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="has 9 bytes"):
            asked(ONES + b"\0")
        with pytest.raises(InvalidRequest, match="has shape"):
            asked(ONES, (1, 3))


def test_any_number_of_different_requests_is_read() -> None:
    model = spec(0, [Tensor("x", "INT8", [-1])], [Tensor("y", "INT8", [])])
    read_raw = requests_of(model).read
    for size in [*range(600), 3]:
        request = read_raw(
            inference("ModelInferRequest")(
                inputs=[tensor("x", "INT8", [1, size])], raw_input_contents=[bytes(size)]
            )
        )
        assert bytes(request.parts[0].payload)[:8] == size.to_bytes(8, "little")


def test_half_floats_are_raw_only_and_make_the_whole_answer_raw() -> None:
    half = spec(0, [Tensor("h", "FP16", [1])], [Tensor("h", "FP16", [1])])
    assert raw(half, [tensor("h", "FP16", [1, 1])], b"\0\x3c").parts[0].payload == b"\0\x3c"
    with pytest.raises(InvalidRequest, match="FP16, which has no typed contents"):
        read(half, inputs=[tensor("h", "FP16", [1, 1], contents={"fp32_contents": [1]})])
    given = [
        tensor("n", "INT64", [1, 1], contents={"int64_contents": [1]}),
        tensor("s", "BYTES", [1, 2], contents={"bytes_contents": [b"", b""]}),
    ]
    typed = unless_raw(False)
    assert not read(TWO, inputs=given, parameters=typed).requested.typed
    assert read(TWO, inputs=given, outputs=[{"name": "n"}], parameters=typed).requested.typed


def test_lengths_of_strings_that_make_no_sense_are_refused() -> None:
    model = spec(0, [Tensor("s", "BYTES", [])], [Tensor("s", "BYTES", [])])
    for data in ("0300000061", "01000000", "0100000061ff"):
        with pytest.raises(InvalidRequest, match="is no BYTES of shape"):
            raw(model, [tensor("s", "BYTES", [1])], bytes.fromhex(data))


def test_empty_tensors_need_no_values() -> None:
    model = spec(0, [Tensor("x", "FP32", [-1])], [Tensor("y", "FP32", [])])
    assert bytes(read(model, inputs=[tensor("x", "FP32", [3, 0])]).parts[0].payload)[:8] == bytes(8)
    assert raw(model, [tensor("x", "FP32", [0, 5])], b"").parts == ()


def test_outputs_are_given_in_the_order_asked_for() -> None:
    wanted = [{"name": "s", "parameters": {"binary_data": {"bool_param": False}}}, {"name": "n"}]
    given = [tensor("n", "INT64", [1, 0]), tensor("s", "BYTES", [1, 2])]
    request = raw(TWO, given, b"", bytes(8), outputs=wanted)
    assert [output.output for output in request.requested.outputs] == [2, 0]
    for names, words in (
        (["n", "n"], "wanted twice"),
        (["y"], 'model "two" gives "n"'),
        ([""], '""'),
    ):
        with pytest.raises(InvalidRequest, match=words):
            raw(TWO, given, b"", bytes(8), outputs=[{"name": name} for name in names])


PARAMETERS: dict[str, tuple[dict[str, Any], int | None]] = {
    "timeout": ({"timeout": {"int64_param": 1500}}, 1_500_000),
    "no-timeout": ({"timeout": {"int64_param": 0}}, 0),
    "priority": ({"priority": {"uint64_param": 1 << 63}}, 0),
    "others": ({"a": {"string_param": "b"}, "c": {"double_param": 0.5}}, 0),
    "no-sequence": ({"sequence_start": {"bool_param": False}}, 0),
    "of-rest": ({"binary_data": {"string_param": "?"}}, 0),
    "no-truth": ({"binary_data_output": {"string_param": "?"}}, None),
    "of-streams": ({"triton_enable_empty_final_response": {"bool_param": True}}, 0),
    "timeout-text": ({"timeout": {"string_param": "1500"}}, None),
    "timeout-negative": ({"timeout": {"int64_param": -1}}, None),
    "sequence": ({"sequence_id": {"string_param": "s"}}, 0),
    "sequence-number": ({"sequence_start": {"int64_param": 1}}, None),
    "reserved": ({"triton_x": {"bool_param": True}}, None),
    "empty": ({"a": {}}, None),
    "double": ({"a": {"double_param": 1e308}}, 0),
    "nan": ({"a": {"double_param": math.nan}}, None),
    "infinity": ({"a": {"double_param": math.inf}}, None),
    "minus-infinity": ({"a": {"double_param": -math.inf}}, None),
}


PRIORITIES: list[tuple[dict[str, Any], int | None]] = [
    ({"int64_param": 0}, 0),
    ({"int64_param": 1}, 1),
    ({"uint64_param": 2}, 2),
    ({"uint64_param": 1 << 63}, 3),
    ({"string_param": "bulk"}, 3),
    ({"int64_param": -1}, None),
    ({"string_param": "1"}, None),
    ({"double_param": 1.0}, None),
    ({"bool_param": True}, None),
]


@pytest.mark.parametrize(("priority", "level"), PRIORITIES)
def test_a_priority_is_a_level_or_a_class(priority: dict[str, Any], level: int | None) -> None:
    parameters = {"priority": priority}
    if level is None:
        with pytest.raises(InvalidRequest, match="nor interactive, normal or bulk"):
            raw(ADDONE, [X], ONES, parameters=parameters)
    else:
        requested = raw(ADDONE, [X], ONES, parameters=parameters).requested
        assert requested.level == level
        assert decode_requested(encode_requested(requested)) == requested


PARTED = replace(ADDONE, in_parts=True)
FIRST, GAP = "first_part_timeout_s", "part_gap_timeout_s"


@pytest.mark.parametrize(
    ("parameters", "limits"),
    [
        ({}, (0, 0)),
        ({FIRST: {"double_param": 0.5}}, (500_000_000, 0)),
        ({GAP: {"int64_param": 2}}, (0, 2_000_000_000)),
        # Triton's client for Python knows no numbers with a fraction.
        ({FIRST: {"string_param": "0.25"}, GAP: {"uint64_param": 1}}, (250_000_000, 10**9)),
    ],
)
def test_limits_of_parts_are_parameters(
    parameters: dict[str, Any], limits: tuple[int, int]
) -> None:
    requested = raw(PARTED, [X], ONES, parameters=parameters).requested
    assert requested.limits == limits
    encoded = orjson.loads(orjson.dumps(encode_requested(requested)))
    assert decode_requested(encoded).limits == PartLimits(*limits)
    assert raw(ADDONE, [X], ONES, parameters=parameters).requested.limits == (0, 0)


@pytest.mark.parametrize("value", [{"string_param": "soon"}, {"bool_param": True}])
@pytest.mark.parametrize("name", [FIRST, GAP])
def test_a_limit_of_parts_that_is_none_is_refused(name: str, value: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=f'parameter "{name}" is .*, not a number of seconds'):
        raw(PARTED, [X], ONES, parameters={name: value})


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters_are_checked_as_over_rest(case: str) -> None:
    parameters, timeout_ns = PARAMETERS[case]
    if timeout_ns is None:
        with pytest.raises(InvalidRequest):
            raw(ADDONE, [X], ONES, parameters=parameters)
    else:
        assert raw(ADDONE, [X], ONES, parameters=parameters).requested.timeout_ns == timeout_ns


def test_shared_memory_is_refused_where_it_is_off() -> None:
    parameters = {
        "shared_memory_region": {"string_param": "r"},
        "shared_memory_byte_size": {"int64_param": 8},
    }
    with pytest.raises(NotSupported, match="shared memory"):
        read(ADDONE, inputs=[X | {"parameters": parameters}])
    with pytest.raises(NotSupported, match="shared memory"):
        raw(ADDONE, [X], ONES, outputs=[{"name": "y", "parameters": parameters}])


class Memory:
    """Shared memory with one region, "r"; a stretch of it is read only when asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def expect_on(self) -> None:
        pass

    def source(self, span: RegionSpan) -> "RegionBytes":
        return RegionBytes(self, span)

    target = source


class RegionBytes(LazyBytes):
    """Bytes of the region."""

    def __init__(self, memory: Memory, span: RegionSpan) -> None:
        self._memory = memory
        self._span = span
        self.size = span.size

    def __len__(self) -> int:
        return self.size

    def read_into(self, memory: memoryview) -> None:
        self._memory.reads += 1
        memory[:] = self._memory.data[self._span.offset :][: self.size]

    def write(self, pieces: Sequence[Bytes]) -> None:
        raise AssertionError("nothing is written here")


def shared(offset: int, size: int) -> dict[str, Any]:
    return {
        "parameters": {
            "shared_memory_region": {"string_param": "r"},
            "shared_memory_offset": {"int64_param": offset},
            "shared_memory_byte_size": {"int64_param": size},
        }
    }


def test_an_input_in_shared_memory_has_no_entry_and_is_read_into_its_slot() -> None:
    memory = Memory(bytes(8) + ONES)
    read_shared = requests_of(TWO, memory).read
    # Whichever of the two is shared, the one entry is the other's.
    numbers, strings = np.array([[5]], "<i8").tobytes(), bytes.fromhex("010000006100000000")
    n, s = tensor("n", "INT64", [1, 1]), tensor("s", "BYTES", [1, 2])
    memory.data = numbers + strings
    expected = pack(TWO.inputs, [[[5]], [[b"a", b""]]])[0]
    for inputs, entry in (([n | shared(0, 8), s], strings), ([n, s | shared(8, 9)], numbers)):
        request = inference("ModelInferRequest")(inputs=inputs, raw_input_contents=[entry])
        (part,) = read_shared(request).parts
        payload = part.payload
        assert (payload.read() if isinstance(payload, LazyBytes) else payload) == expected


def test_an_input_in_shared_memory_is_not_read_before_it_has_its_slot() -> None:
    memory = Memory(ONES)
    request = inference("ModelInferRequest")(
        inputs=[X | shared(0, 8)], outputs=[{"name": "y"} | shared(0, 8)]
    )
    (part,), requested, _ = requests_of(ADDONE, memory).read(request)
    assert memory.reads == 0
    assert isinstance(part.payload, LazyBytes)
    assert part.payload.read() == ONES
    (output,) = requested.outputs
    assert isinstance(output.binary, RegionBytes)
    assert not requested.typed


@pytest.mark.parametrize(
    ("given", "data", "words"),
    [
        (X | shared(0, 7), [], "has 7 bytes of shared memory, but FP32 of shape [1, 2] takes 8"),
        (X | shared(0, 8), [ONES], "has 1 raw_input_contents, but 0 inputs that are not in shared"),
        (
            X | shared(0, 8) | {"contents": {"fp32_contents": [1, 2]}},
            [],
            'input "x" is in shared memory and has contents as well',
        ),
    ],
)
def test_a_fault_of_shared_memory_is_described(
    given: dict[str, Any], data: list[bytes], words: str
) -> None:
    request = inference("ModelInferRequest")(inputs=[given], raw_input_contents=data)
    with pytest.raises(InvalidRequest) as refused:
        requests_of(ADDONE, Memory(ONES)).read(request)
    assert words in str(refused.value)


def test_a_model_without_declared_inputs_has_no_tensors() -> None:
    with pytest.raises(InvalidRequest, match="declares no inputs"):
        raw(spec(name="plain"), [X], ONES)


def test_a_model_without_a_batch_dimension_takes_shapes_without_one() -> None:
    model = spec(0, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], max_batch_size=0)
    ((rows, payload, _),) = raw(model, [tensor("x", "FP32", [2])], ONES).parts
    assert (rows, bytes(payload)) == (1, ONES)
