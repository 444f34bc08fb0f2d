"""V2 requests and answers whose tensors are in memory of the client's, which here is a dictionary.

T18 is a test vector of the protocol, byte for byte.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import pack, spec

from ringbatch.frontend.codec.payload import Bytes, LazyBytes
from ringbatch.frontend.v2.protocol import InferRequest, V2Model
from ringbatch.frontend.v2.shared_memory import RegionSpan
from ringbatch.shm.errors import InvalidRequest, MemoryNotFound
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

REGION, OFFSET, SIZE = (
    "shared_memory_region",
    "shared_memory_offset",
    "shared_memory_byte_size",
)
ONE_TWO = bytes.fromhex("0000803f00000040")
TWO_THREE = bytes.fromhex("0000004000004040")
T18 = (
    b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":'
    b'{"shared_memory_region":"r0","shared_memory_byte_size":8}}],"outputs":[{"name":"y",'
    b'"parameters":{"shared_memory_region":"r0","shared_memory_offset":32,'
    b'"shared_memory_byte_size":8}}]}'
)
T18_ANSWER = (
    b'{"model_name":"addone","model_version":"1","outputs":[{"name":"y","datatype":"FP32",'
    b'"shape":[1,2]}]}'
)


class Memory:
    """Regions by name; counts how often anything was read."""

    def __init__(self, **regions: bytes) -> None:
        self.regions = {name: bytearray(data) for name, data in regions.items()}
        self.reads = 0

    def expect_on(self) -> None:
        pass

    def source(self, span: RegionSpan) -> "RegionBytes":
        if span.region not in self.regions:
            raise MemoryNotFound(span.region)
        return RegionBytes(self, span)

    target = source


class RegionBytes(LazyBytes):
    """Bytes of a region."""

    def __init__(self, memory: Memory, span: RegionSpan) -> None:
        self._memory = memory
        self._span = span
        self.size = span.size

    def __len__(self) -> int:
        return self.size

    def read_into(self, memory: memoryview) -> None:
        self._memory.reads += 1
        start = self._span.offset
        memory[:] = self._memory.regions[self._span.region][start : start + self.size]

    def write(self, pieces: Sequence[Bytes]) -> None:
        data = b"".join(pieces)
        start = self._span.offset
        self._memory.regions[self._span.region][start : start + len(data)] = data


def model(inputs: Sequence[Tensor], outputs: Sequence[Tensor], **more: Any) -> ModelSpec:
    return spec(0, inputs, outputs, name="addone", **more)


ADDONE = model([Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], max_batch_size=2)
STRINGS = model([Tensor("s", "BYTES", [])], [Tensor("t", "BYTES", [])])
MANY = model(
    [Tensor("a", "INT64", [-1]), Tensor("b", "FP32", [-1]), Tensor("c", "BYTES", [])],
    [Tensor("h", "FP16", [2]), Tensor("n", "INT64", []), Tensor("t", "BYTES", [-1])],
)
FLAGS = model([Tensor("f", "BOOL", [3])], [Tensor("g", "BOOL", [3])])


def at(region: str, size: int, offset: int = 0) -> dict[str, Any]:
    return {REGION: region, SIZE: size} | ({OFFSET: offset} if offset else {})


def asked(*inputs: dict[str, Any], **members: Any) -> bytes:
    return json.dumps({"inputs": list(inputs)} | members).encode()


def tensor(name: str, datatype: str, shape: Sequence[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape), **more}


def x(size: int = 8, region: str = "r0", offset: int = 0, **more: Any) -> dict[str, Any]:
    rows = max(1, size // 8)
    return tensor("x", "FP32", [rows, 2], parameters=at(region, size, offset) | more)


def payloads(request: InferRequest) -> list[bytes]:
    return [bytes(part.payload) for part in request.parts]


def refused(
    given: ModelSpec, memory: Memory, body: bytes, kind: type[Exception] = InvalidRequest
) -> str:
    with pytest.raises(kind) as caught:
        V2Model(given, memory).requests.parse(body, None)
    return str(caught.value)


def strings(*texts: bytes) -> bytes:
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def test_t18_is_read_from_the_region_and_written_to_it() -> None:
    memory = Memory(r0=ONE_TWO + bytes(56))
    codec = V2Model(ADDONE, memory)
    (part,), requested = codec.requests.parse(T18, None)
    assert (part.rows, part.key_bytes, len(part.payload)) == (1, 0, 8)
    assert memory.reads == 0, "read before there is a slot for it"
    assert bytes(part.payload) == ONE_TWO
    answer = codec.answers.render([(1, memoryview(TWO_THREE))], requested, "")
    assert answer.body == T18_ANSWER
    assert dict(answer.headers)["content-type"] == "application/json"
    assert memory.regions["r0"] == ONE_TWO + bytes(24) + TWO_THREE + bytes(24)


def test_shared_memory_is_read_late() -> None:
    memory = Memory(r0=bytes(8))
    (part,), _ = V2Model(ADDONE, memory).requests.parse(T18, None)
    memory.regions["r0"][:] = ONE_TWO
    assert bytes(part.payload) == ONE_TWO


def test_the_same_text_means_the_regions_that_there_are_now() -> None:
    memory = Memory(r0=ONE_TWO, out=bytes(8))
    codec = V2Model(ADDONE, memory)
    mixed = asked(
        tensor("x", "FP32", [1, 2], parameters={"binary_data_size": 8}),
        outputs=[{"name": "y", "parameters": at("out", 8)}],
    )
    for text, behind in ((T18, b""), (mixed, ONE_TWO)):
        for region in ("r0", "out"):
            memory.regions[region] = bytearray(40)
        codec.requests.parse(text + behind, len(text))
        codec.requests.parse(text + behind, len(text))
        memory.regions.clear()
        with pytest.raises(MemoryNotFound):
            codec.requests.parse(text + behind, len(text))


def test_inputs_of_all_three_kinds_in_one_request() -> None:
    memory = Memory(r=bytes(3) + (7).to_bytes(8, "little") + strings(b"ab"))
    text = asked(
        tensor("c", "BYTES", [1], parameters=at("r", 6, 11)),
        tensor("b", "FP32", [1, 2], parameters={"binary_data_size": 8}),
        tensor("a", "INT64", [1, 1], parameters=at("r", 8, 3)),
        parameters={"binary_data_output": True},
    )
    (part,), _ = V2Model(MANY, memory).requests.parse(text + ONE_TWO, len(text))
    expected, key_bytes = pack(MANY.inputs, [[[7]], [[1, 2]], [b"ab"]])
    assert (bytes(part.payload), part.key_bytes, part.rows) == (expected, key_bytes, 1)
    text = asked(
        tensor("c", "BYTES", [1], data=["ab"]),
        tensor("b", "FP32", [1, 2], data=[1, 2]),
        tensor("a", "INT64", [1, 1], parameters=at("r", 8, 3)),
        parameters={"binary_data_output": True},
    )
    (part,), _ = V2Model(MANY, memory).requests.parse(text, None)
    assert bytes(part.payload) == expected


def test_outputs_of_all_three_kinds_in_one_answer() -> None:
    memory = Memory(r=bytes(20))
    codec = V2Model(MANY, memory)
    inputs = [
        tensor("a", "INT64", [1, 1], data=[7]),
        tensor("b", "FP32", [1, 2], data=[1, 2]),
        tensor("c", "BYTES", [1], data=["ab"]),
    ]
    outputs = [
        {"name": "t", "parameters": at("r", 10, 4)},
        {"name": "h", "parameters": {"binary_data": True}},
        {"name": "n"},
    ]
    _, requested = codec.requests.parse(asked(*inputs, outputs=outputs, id="7"), None)
    result, _ = pack(MANY.outputs, [[[1, 2]], [5], [[b"ab", b""]]])
    answer = codec.answers.render([(1, memoryview(result))], requested, "")
    size = int(dict(answer.headers)["inference-header-content-length"])
    assert json.loads(answer.body[:size])["outputs"] == [
        {"name": "t", "datatype": "BYTES", "shape": [1, 2]},
        {
            "name": "h",
            "datatype": "FP16",
            "shape": [1, 2],
            "parameters": {"binary_data_size": 4},
        },
        {"name": "n", "datatype": "INT64", "shape": [1], "data": [5]},
    ]
    assert answer.body[size:] == bytes.fromhex("003c0040")
    assert memory.regions["r"] == bytes(4) + strings(b"ab", b"") + bytes(6)


def test_values_that_json_cannot_carry_may_be_in_shared_memory() -> None:
    memory = Memory(r=bytes(8))
    codec = V2Model(MANY, memory)
    inputs = [
        tensor("a", "INT64", [1, 1], data=[7]),
        tensor("b", "FP32", [1, 2], data=[1, 2]),
        tensor("c", "BYTES", [1], data=["ab"]),
    ]
    outputs = [{"name": "h", "parameters": at("r", 4) | {"binary_data": False}}]
    _, requested = codec.requests.parse(asked(*inputs, outputs=outputs), None)
    result, _ = pack(MANY.outputs, [[[1, 2]], [5], [[b"ab", b"\xff"]]])
    codec.answers.render([(1, memoryview(result))], requested, "")
    assert memory.regions["r"] == bytes.fromhex("003c0040") + bytes(4)


def test_more_instances_than_a_batch_are_split_and_put_together() -> None:
    data = ONE_TWO * 2 + TWO_THREE
    memory = Memory(r0=data + bytes(24))
    codec = V2Model(ADDONE, memory)
    text = asked(x(24), outputs=[{"name": "y", "parameters": at("r0", 24, 24)}])
    request = codec.requests.parse(text, None)
    assert payloads(request) == [ONE_TWO * 2, TWO_THREE]
    assert memory.reads == 1
    results = [(2, memoryview(TWO_THREE * 2)), (1, memoryview(ONE_TWO))]
    answer = codec.answers.render(results, request.requested, "")
    assert json.loads(answer.body)["outputs"][0]["shape"] == [3, 2]
    assert memory.regions["r0"] == data + TWO_THREE * 2 + ONE_TWO


def test_no_instances_are_no_bytes() -> None:
    memory = Memory(r0=b"")
    codec = V2Model(ADDONE, memory)
    body = asked(
        tensor("x", "FP32", [0, 2], parameters=at("r0", 0)),
        outputs=[{"name": "y", "parameters": at("r0", 0)}],
    )
    parts, requested = codec.requests.parse(body, None)
    assert parts == ()
    assert json.loads(codec.answers.render((), requested, "").body)["outputs"][0]["shape"] == [0, 2]


def test_strings_are_read_once_and_checked_as_they_were_read() -> None:
    memory = Memory(r=strings(b"ab", b"") + b"rest")
    body = asked(tensor("s", "BYTES", [2], parameters=at("r", 10)))
    request = V2Model(STRINGS, memory).requests.parse(body, None)
    assert memory.reads == 1
    memory.regions["r"][:4] = b"\xff\xff\xff\xff"
    assert strings(b"ab", b"") in payloads(request)[0]
    assert "is no BYTES of shape [2]" in refused(STRINGS, memory, body)


def test_booleans_become_valid_for_a_model() -> None:
    memory = Memory(r=bytes([0, 7, 255]))
    body = asked(tensor("f", "BOOL", [1, 3], parameters=at("r", 3)))
    assert payloads(V2Model(FLAGS, memory).requests.parse(body, None)) == [bytes([0, 1, 1])]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (x(8) | {"shape": [2, 2]}, "has 8 bytes of shared memory, but FP32 of shape [2, 2]"),
        (x(8) | {"data": [1, 2]}, "is in shared memory and has data as well"),
        (x(8, binary_data_size=8), "is in shared memory and has data as well"),
        (x(8, offset=-1), "not a whole number from 0"),
        (x(8) | {"parameters": {REGION: "r0"}}, "has no shared_memory_byte_size"),
        (x(8) | {"parameters": {SIZE: 8}}, "has no shared_memory_region"),
        (x(8) | {"datatype": "FP64"}, "is FP64, but"),
    ],
)
def test_an_input_that_makes_no_sense_is_refused(entry: dict[str, Any], text: str) -> None:
    memory = Memory(r0=ONE_TWO * 2)
    assert text in refused(ADDONE, memory, asked(entry))
    assert memory.reads == 0


@pytest.mark.parametrize(
    ("parameters", "kind", "text"),
    [
        (at("r0", 8) | {"binary_data": True}, InvalidRequest, "shared memory and binary as well"),
        (at("r0", 8) | {"classification": 1}, InvalidRequest, "shared memory and classes as well"),
        ({REGION: "r0"}, InvalidRequest, "has no shared_memory_byte_size"),
        (at("nope", 8), MemoryNotFound, "nope"),
    ],
)
def test_an_output_that_makes_no_sense_is_refused(
    parameters: dict[str, Any], kind: type[Exception], text: str
) -> None:
    body = asked(x(), outputs=[{"name": "y", "parameters": parameters}])
    assert text in refused(ADDONE, Memory(r0=ONE_TWO), body, kind)


def test_an_unknown_region_is_not_found() -> None:
    assert refused(ADDONE, Memory(), asked(x(region="r9")), MemoryNotFound) == "r9"


def test_an_output_larger_than_its_place_is_refused_and_nothing_is_written() -> None:
    memory = Memory(r0=ONE_TWO)
    codec = V2Model(ADDONE, memory)
    body = asked(x(), outputs=[{"name": "y", "parameters": at("r0", 4)}])
    _, requested = codec.requests.parse(body, None)
    with pytest.raises(InvalidRequest) as caught:
        codec.answers.render([(1, memoryview(TWO_THREE))], requested, "")
    assert str(caught.value) == (
        'output "y" has 8 bytes, more than the 4 of shared memory that the request gives for it'
    )
    assert memory.regions["r0"] == ONE_TWO


def test_an_output_smaller_than_its_place_leaves_the_rest() -> None:
    memory = Memory(r0=b"\xaa" * 16)
    codec = V2Model(ADDONE, memory)
    body = asked(x(), outputs=[{"name": "y", "parameters": at("r0", 16)}])
    _, requested = codec.requests.parse(body, None)
    codec.answers.render([(1, memoryview(TWO_THREE))], requested, "")
    assert memory.regions["r0"] == TWO_THREE + b"\xaa" * 8


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=8),
    st.integers(0, 30),
    st.binary(max_size=9),
)
def test_a_tensor_is_the_same_bytes_however_it_came(
    numbers: list[int], offset: int, text: bytes
) -> None:
    ints = b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    memory = Memory(r=bytes(offset) + ints, s=strings(text))
    codec = V2Model(MANY, memory)
    shape = [1, len(numbers)]
    tail = tensor("b", "FP32", [1, 0], data=[])
    shared = asked(
        tensor("a", "INT64", shape, parameters=at("r", len(ints), offset)),
        tail,
        tensor("c", "BYTES", [1], parameters=at("s", len(text) + 4)),
        parameters={"binary_data_output": True},
    )
    head = asked(
        tensor("a", "INT64", shape, parameters={"binary_data_size": len(ints)}),
        tail,
        tensor("c", "BYTES", [1], parameters={"binary_data_size": len(text) + 4}),
        parameters={"binary_data_output": True},
    )
    behind = codec.requests.parse(head + ints + strings(text), len(head))
    assert payloads(codec.requests.parse(shared, None)) == payloads(behind)
