"""The body of a V2 inference request, as what stands in slots for it.

    {"id": "...", "parameters": {...},
     "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}, ...],
     "outputs": [{"name": "y", "parameters": {"binary_data": true}}, ...]}

An input has `data`, flat or nested in any way, or the parameter `binary_data_size`; then its bytes
stand behind the JSON text, in the order of `inputs`, and a header says where the text ends. Where
it ends at once, the whole body is the one tensor of the model. Members that are not named here are
ignored. After the Open Inference Protocol and its binary tensor data extension.
"""

import re
import struct
from collections.abc import Callable, Sequence
from itertools import starmap
from math import prod
from typing import Any, Final, NamedTuple

from orjson import JSONDecodeError, loads

from ringbatch.frontend.bytes_tensor import LENGTH_BYTES
from ringbatch.frontend.json_to_tensor import may_hold_booleans, number_code, shown
from ringbatch.frontend.jsontext import why_unreadable
from ringbatch.frontend.payload import Bytes, framed
from ringbatch.frontend.v1_request import Part, new_tuple
from ringbatch.frontend.v2_input import IN_JSON, Input, Shape
from ringbatch.frontend.v2_wants import RAW_ONLY, Wants, WantsReader, id_member, quoted
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.frame import Frame, FrameError
from ringbatch.shm.manifest import ModelSpec

_WHOLE: Final = {int}
_ID: Final = re.compile(rb'\{"id": ?("[^"\\]*"), ?(?=")')
_REMEMBERED: Final = 256
_REMEMBERED_BYTES: Final = 2048


class Request(NamedTuple):
    """One request.

    Attributes:
        parts: in order; several where there are more instances than one batch may hold, none
            where there are no instances.
        wants: what the answer is to be.
    """

    parts: tuple[Part, ...]
    wants: Wants


class Given(NamedTuple):
    """One input of a request.

    Attributes:
        shape: with the batch dimension.
        dimensions: the sizes that stand for the open dimensions.
        size: its bytes behind the JSON text; `IN_JSON` where its values stand in the text.
        start: where these begin, from the end of the text.
        values: the `data` of the text.
    """

    shape: Shape
    dimensions: Shape
    size: int
    start: int
    values: Any


class Described(NamedTuple):
    """What the JSON text of a request says.

    Attributes:
        given: each input, in the order of the model's signature.
        rows: instances in the request.
        binary_bytes: how many bytes are to follow the text.
        wants: what the answer is to be.
    """

    given: tuple[Given, ...]
    rows: int
    binary_bytes: int
    wants: Wants


def parser(spec: ModelSpec) -> Callable[[bytes | bytearray, int | None], Request]:
    """The function that reads requests to this model, which has declared inputs.

    It takes a body and where the JSON text of that ends, None where the body is nothing else; it
    raises `InvalidRequest` and `NotSupported`.
    """
    first = spec.inputs[0]
    numbers = bool(first.datatype.code) and first.datatype.name != "BOOL"
    if len(spec.inputs) == 1 and numbers and first.static and 0 not in first.shape:
        return NumberRequests(spec).parse
    return InferRequests(spec).parse


class InferRequests:
    """Requests to one model.

    Args:
        spec: the model, with declared inputs.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._cap = spec.max_batch_size
        self._frame = Frame(spec.inputs)
        self._inputs = {tensor.name: Input(tensor, spec.name) for tensor in spec.inputs}
        self._in_order = tuple(self._inputs.values())
        self._takes = f'model "{spec.name}" takes {quoted(self._inputs)}'
        self._name = spec.name
        self._wants = WantsReader(spec)
        self._alone = len(spec.inputs) == 1 and self._frame.static
        self._answers_nothing = all(tensor.static for tensor in spec.outputs)
        self._known: dict[bytes, Described] = {}

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> Request:
        """Read a body.

        Args:
            body: all of it.
            json_bytes: where its JSON text ends; None where it is nothing else.

        Raises:
            InvalidRequest: naming what was found and what would be right.
            NotSupported: it asks for an extension that is not served.
        """
        if json_bytes is None:
            return self._read_json(_decoded(body), booleans=may_hold_booleans(body))
        if json_bytes == 0:
            return self._raw(body)
        if json_bytes > len(body):
            raise InvalidRequest(
                f"Inference-Header-Content-Length is {json_bytes}, but the body has "
                f"{len(body)} bytes"
            )
        text = bytes(body[:json_bytes])
        described = self._known.get(text) or self._read(text)
        if described.binary_bytes != len(body) - json_bytes:
            raise InvalidRequest(
                f"{len(body) - json_bytes} bytes follow the JSON text, but its inputs say "
                f"{described.binary_bytes}"
            )
        return self._filled(
            described, memoryview(body)[json_bytes:], booleans=may_hold_booleans(text)
        )

    def _read_json(self, request: Any, *, booleans: bool) -> Request:
        described = self._described(request)
        if described.binary_bytes:
            raise InvalidRequest(
                f"the request says that {described.binary_bytes} bytes of binary data follow "
                "its JSON text, but has no header Inference-Header-Content-Length"
            )
        return self._filled(described, memoryview(b""), booleans=booleans)

    def _read(self, text: bytes) -> Described:
        """What a text in front of binary data says.

        Programs that send tensors mostly send the same before each, but for an id in the first
        place; so what the rest of it says is remembered.
        """
        opening = _ID.match(text)
        if opening is None:
            return self._remembered(text, self._described(_decoded(text)))
        rest = text[opening.end() :]
        described = self._known.get(rest)
        if described is None:
            described = self._described(_decoded(text))
            # Of several ids the last counts, and an escape may hide one.
            if b'"id"' not in rest and b"\\" not in rest:
                wants = described.wants._replace(id=b"")
                self._remembered(rest, described._replace(wants=wants))
            return described
        identity = id_member(_decoded(opening[1]))
        return described._replace(wants=described.wants._replace(id=identity))

    def _remembered(self, text: bytes, described: Described) -> Described:
        lasting = not described.wants.id and all(given.size != IN_JSON for given in described.given)
        if lasting and len(text) <= _REMEMBERED_BYTES:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[text] = described
        return described

    def _described(self, request: Any) -> Described:
        if not isinstance(request, dict):
            raise InvalidRequest(f"the request is {shown(request)}, not an object")
        entries = request.get("inputs")
        if not isinstance(entries, list):
            found = "lacks `inputs`" if entries is None else f"has {shown(entries)} as `inputs`"
            raise InvalidRequest(f"the request {found}, which is a list of tensors")
        found_inputs: dict[str, Given] = {}
        binary_bytes = 0
        for index, entry in enumerate(entries):
            name, given = self._given(entry, index, binary_bytes)
            if name in found_inputs:
                raise InvalidRequest(f"input {shown(name)} stands in the request twice")
            found_inputs[name] = given
            if given.size > 0:
                binary_bytes += given.size
        if len(found_inputs) != len(self._inputs):
            missing = next(name for name in self._inputs if name not in found_inputs)
            raise InvalidRequest(f'the request lacks input "{missing}"; {self._takes}')
        ordered = tuple(found_inputs[name] for name in self._inputs)
        rows = self._rows(ordered)
        return Described(ordered, rows, binary_bytes, self._wants.read(request))

    def _given(self, entry: Any, index: int, start: int) -> tuple[str, Given]:
        if not isinstance(entry, dict):
            raise InvalidRequest(f"inputs[{index}] is {shown(entry)}, not an object")
        name = entry.get("name")
        wanted = self._inputs.get(name) if isinstance(name, str) else None
        if wanted is None:
            if not isinstance(name, str):
                found = "lacks its name" if name is None else f"has {shown(name)} as its name"
                raise InvalidRequest(f"inputs[{index}] {found}, which is a string")
            raise InvalidRequest(f"inputs[{index}] is {shown(name)}, but {self._takes}")
        wanted.expect_datatype(entry.get("datatype"))
        shape, dimensions = wanted.fitted(entry.get("shape"))
        size, values = wanted.source(entry, shape)
        assert isinstance(name, str)
        return name, Given(shape, dimensions, size, start, values)

    def _rows(self, inputs: tuple[Given, ...]) -> int:
        rows = inputs[0].shape[0]
        if any(given.shape[0] != rows for given in inputs):
            sizes = ", ".join(str(given.shape[0]) for given in inputs)
            raise InvalidRequest(
                f"the first sizes of the shapes differ: {sizes}; the batch dimension of all "
                "inputs is the same"
            )
        if not rows and not self._answers_nothing:
            raise InvalidRequest(
                f'the request has no instances, and what model "{self._name}" would answer to '
                "none has no shape"
            )
        # Where instances have elements, the length of the body bounds their number.
        if rows > self._cap and not any(prod(given.shape) for given in inputs):
            raise InvalidRequest(
                f"the request has {rows} instances without any element; at most {self._cap} "
                "such are accepted"
            )
        return rows

    def _filled(self, described: Described, binary: memoryview, *, booleans: bool) -> Request:
        tensors = [
            wanted.packed(given.values, given.shape, booleans=booleans)
            if given.size == IN_JSON
            else wanted.unpacked(binary[given.start : given.start + given.size], given.shape)
            for wanted, given in zip(self._in_order, described.given, strict=True)
        ]
        shapes = [given.shape for given in described.given]
        dimensions = tuple(size for given in described.given for size in given.dimensions)
        return Request(self._parts(shapes, dimensions, tensors), described.wants)

    def _raw(self, body: bytes | bytearray) -> Request:
        if len(self._in_order) != 1:
            raise InvalidRequest(
                f"a body without JSON text is one tensor, but {self._takes}, which are "
                f"{len(self._in_order)}"
            )
        (wanted,) = self._in_order
        shape, dimensions = wanted.raw_shape(len(body))
        data: Bytes = body
        if not wanted.fixed:
            data = len(body).to_bytes(LENGTH_BYTES, "little") + body
        tensor = wanted.unpacked(memoryview(data), shape)
        return Request(self._parts([shape], dimensions, [tensor]), self._wants.all_binary)

    def _parts(
        self, shapes: list[Shape], dimensions: Shape, tensors: Sequence[Bytes]
    ) -> tuple[Part, ...]:
        rows = shapes[0][0]
        if 0 < rows <= self._cap:
            return (self._part(rows, dimensions, tensors),)
        if not rows:
            return ()
        spans = [(start, min(start + self._cap, rows)) for start in range(0, rows, self._cap)]
        cuts = [
            wanted.cuts(tensor, shape, self._cap)
            for wanted, tensor, shape in zip(self._in_order, tensors, shapes, strict=True)
        ]
        return tuple(
            self._part(
                end - start,
                dimensions,
                [
                    memoryview(tensor)[cut[index] : cut[index + 1]]
                    for tensor, cut in zip(tensors, cuts, strict=True)
                ],
            )
            for index, (start, end) in enumerate(spans)
        )

    def _part(self, rows: int, dimensions: Shape, tensors: Sequence[Bytes]) -> Part:
        if self._alone:
            (tensor,) = tensors
            payload = memoryview(tensor) if isinstance(tensor, bytearray) else tensor
            return Part(rows, payload, 0)
        try:
            payload = framed(self._frame, rows, dimensions, tensors)
        except FrameError as error:
            raise InvalidRequest(str(error)) from None
        return Part(rows, payload, self._frame.key_bytes)


class NumberRequests(InferRequests):
    """Requests to a model whose one input is of numbers and of a fixed shape.

    JSON that fits in one batch and asks for nothing is packed at once; everything else, right or
    wrong, goes the long way.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        (tensor,) = spec.inputs
        self._heading = (tensor.name, tensor.datatype.name, list(tensor.shape))
        self._code = number_code(tensor.datatype)
        self._each = prod(tensor.shape)
        self._row = self._each if len(tensor.shape) == 1 else 0
        self._packs: dict[int, Callable[..., bytes]] = {}
        plain = any(output.datatype.name in RAW_ONLY for output in spec.outputs)
        self._usual = None if plain else self._wants.read({})

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> Request:
        """As in `InferRequests`."""
        if json_bytes is not None:
            return super().parse(body, json_bytes)
        request = _decoded(body)
        booleans = may_hold_booleans(body)
        if not booleans:
            try:
                quick = self._quick(request)
            except (KeyError, TypeError, ValueError, IndexError, struct.error, OverflowError):
                quick = None
            if quick is not None:
                return quick
        return self._read_json(request, booleans=booleans)

    def _quick(self, request: Any) -> Request | None:
        (entry,) = request["inputs"]
        shape, values = entry["shape"], entry["data"]
        rows, *rest = shape
        wants = self._usual
        if (
            wants is None
            or len(entry) != 4
            or (entry["name"], entry["datatype"], rest) != self._heading
            or set(map(type, shape)) != _WHOLE
            or not 0 < rows <= self._cap
        ):
            return None
        if len(request) == 2:
            given = request["id"]
            if type(given) is not str:
                return None
            wants = new_tuple(Wants, (id_member(given), wants.outputs, 0))
        elif len(request) != 1:
            return None
        if self._row and len(values) == rows and type(values[0]) is list:
            payload = b"".join(starmap(self._pack(1), values))
        else:
            payload = self._pack(rows)(*values)
        # Calling the two classes takes twice as long.
        return new_tuple(Request, ((new_tuple(Part, (rows, payload, 0)),), wants))

    def _pack(self, rows: int) -> Callable[..., bytes]:
        pack = self._packs.get(rows)
        if pack is None:
            pack = self._packs[rows] = struct.Struct(f"<{rows * self._each}{self._code}").pack
        return pack


def _decoded(text: bytes | bytearray) -> Any:
    try:
        return loads(text)
    except JSONDecodeError as error:
        raise InvalidRequest(f"the request is no JSON: {why_unreadable(text, error)}") from None
