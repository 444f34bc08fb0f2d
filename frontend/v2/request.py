"""The body of a V2 inference request, as what stands in slots for it.

    {"id": "...", "parameters": {...},
     "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}, ...],
     "outputs": [{"name": "y", "parameters": {"binary_data": true}}, ...]}

An input has `data`, flat or nested in any way, or the parameter `binary_data_size`; then its bytes
stand behind the JSON text, in the order of `inputs`, and a header says where the text ends. Where
it ends at once, the whole body is the one tensor of the model. Or the bytes are in memory of the
client's (ringbatch.frontend.v2.shared_memory). Members that are not named here are ignored. After
the Open Inference Protocol and its binary tensor data extension.
"""

import struct
from collections.abc import Callable, Container
from itertools import starmap
from math import prod
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from orjson import JSONDecodeError, loads

from ringbatch.frontend.codec.bytes_tensor import LENGTH_BYTES
from ringbatch.frontend.codec.json_to_tensor import (
    as_written,
    may_hold_booleans,
    number_code,
    shown,
)
from ringbatch.frontend.codec.limit_messages import ANY_NUMBER
from ringbatch.frontend.codec.payload import Bytes, LazyPart, Part
from ringbatch.frontend.v2.input import IN_CLIENT_MEMORY, IN_JSON, LEFT_OUT, Input, Shape
from ringbatch.frontend.v2.request_text_cache import RequestTextCache, around_values
from ringbatch.frontend.v2.requested_outputs import RequestedOutputs, outputs_reader
from ringbatch.frontend.v2.shared_memory import OFF, ClientMemory
from ringbatch.frontend.v2.signature import Signature
from ringbatch.shm.errors import InvalidRequest, RequestError
from ringbatch.shm.host.json_text import why_unreadable
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tuples import unchecked_tuple

_OF_V1: Final = "; `instances` are for V1, at /v1/models/NAME:predict"
_E: Final = ord("e")
"""Letter that every true and false has; it is found in a fifth of the time as a number."""
_QUOTE: Final = ord('"')


class InferRequest(NamedTuple):
    """V2 infer request, read and checked.

    Attributes:
        parts: in order; several if there are more instances than one batch may hold, none
            if there are no instances.
        requested: what the answer is to be.
    """

    parts: tuple[Part | LazyPart, ...]
    requested: RequestedOutputs


class GivenInput(NamedTuple):
    """Input of a request, as it was given.

    Attributes:
        shape: with the batch dimension.
        dimensions: the sizes that stand for the open dimensions.
        size: its bytes behind the JSON text; `IN_JSON` if its values stand in the text,
            `IN_CLIENT_MEMORY` if its bytes are in memory of the client's, `LEFT_OUT` if the
            request does not have it.
        start: where these begin, from the end of the text.
        values: the `data` of the text, the `LazyBytes`, or the `Default` of what was left out,
            whose bytes are made for each request, as texts are remembered that take none.
        reader: reads these.
    """

    shape: Shape
    dimensions: Shape
    size: int
    start: int
    values: Any
    reader: Input


class Described(NamedTuple):
    """Description in the JSON text of a request.

    Attributes:
        given: each input, in the order of the model's signature.
        rows: instances in the request.
        binary_bytes: how many bytes are to follow the text.
        requested: the requested outputs.
        lazy: True if there are inputs in memory of the client's.
    """

    given: tuple[GivenInput, ...]
    rows: int
    binary_bytes: int
    requested: RequestedOutputs
    lazy: bool


class Outline(NamedTuple):
    """A request of which only the values of its one tensor are still to come.

    Attributes:
        rows: instances in it, of one batch.
        binary_bytes: how many bytes are to come; they are the payload of its slot as they are.
        requested: what the answer is to be.
    """

    rows: int
    binary_bytes: int
    requested: RequestedOutputs


class Requests(Protocol):
    """Reads requests to one model."""

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> InferRequest:
        """Read a body.

        Args:
            body: all of it.
            json_bytes: where its JSON text ends; None if it is nothing else.

        Raises:
            InvalidRequest: naming what was found and what would be right.
            NotSupported: it asks for an extension that is not served.
            RequestTooLarge: the request makes too many batches.
            RequestError: `ClientMemory` does.
        """

    def read(self, request: Any, text: bytes | bytearray) -> InferRequest:
        """Read a decoded body that is JSON alone.

        Args:
            request: the body, decoded.
            text: the body.

        Raises:
            InvalidRequest, NotSupported, RequestTooLarge, RequestError: as of `parse`.
        """

    def outline(self, text: bytes, binary_bytes: int) -> Outline | None:
        """Return the outline of a body of which only the binary data is still to come.

        Args:
            text: its JSON text.
            binary_bytes: how many bytes are to follow that.

        Returns:
            None if these bytes will not be the payload of one slot as they are, or there is a
            fault; `parse` says which, once the body is there.
        """


def requests_of(
    spec: ModelSpec, memory: ClientMemory = OFF, max_in_flight: int = ANY_NUMBER
) -> Requests:
    """Return the reader of requests to this model.

    Args:
        spec, memory, max_in_flight: as in `InferRequests`.
    """
    if not spec.typed:
        return NoRequests(spec)
    first = spec.inputs[0]
    numbers = bool(first.datatype.code) and first.datatype.name != "BOOL"
    if len(spec.inputs) == 1 and numbers and first.static and 0 not in first.shape and spec.batched:
        return NumberRequests(spec, memory, max_in_flight)
    return InferRequests(spec, memory, max_in_flight)


class NoRequests:
    """Refusal of requests for a model without declared inputs, which has no tensors.

    Args:
        spec: the model.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._name = spec.name

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> NoReturn:
        """As in `Requests`."""
        self.read(None, body)

    def read(self, request: Any, text: bytes | bytearray) -> NoReturn:
        """As in `Requests`."""
        raise InvalidRequest(
            f'model "{self._name}" declares no inputs, so that V2 has no tensors to send it; '
            "use /v1/models/NAME:predict"
        )

    def outline(self, text: bytes, binary_bytes: int) -> Outline | None:
        """As in `Requests`."""
        return None


class InferRequests:
    """Requests to one model.

    Args:
        spec: the model, with declared inputs.
        memory: where clients may have tensors.
        max_in_flight: the most batches that one request may make.
    """

    remembers = True

    def __init__(self, spec: ModelSpec, memory: ClientMemory, max_in_flight: int) -> None:
        self._signature = Signature(spec, max_in_flight)
        self._memory = memory
        self._outputs_reader = outputs_reader(spec, memory)
        self._texts: RequestTextCache[Described] = RequestTextCache()

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> InferRequest:
        """As in `Requests`."""
        if json_bytes is None:
            return self._read_json(body)
        if json_bytes == 0:
            return self._raw(body)
        if json_bytes > len(body):
            raise InvalidRequest(
                f"Inference-Header-Content-Length is {json_bytes}, but the body has "
                f"{len(body)} bytes"
            )
        text = bytes(body[:json_bytes])
        described = self._read(text)
        if described.binary_bytes != len(body) - json_bytes:
            raise InvalidRequest(
                f"{len(body) - json_bytes} bytes follow the JSON text, but its inputs say "
                f"{described.binary_bytes}"
            )
        return self._filled(described, memoryview(body)[json_bytes:], text)

    def read(self, request: Any, text: bytes | bytearray) -> InferRequest:
        """As in `Requests`."""
        return self._filled(self._described_alone(request), memoryview(b""), text)

    def outline(self, text: bytes, binary_bytes: int) -> Outline | None:
        """As in `Requests`."""
        return None

    def _read_json(self, body: bytes | bytearray) -> InferRequest:
        return self._filled_json(self._described_json(body), body)

    def _described_json(self, body: bytes | bytearray) -> Described:
        return self._described_alone(decoded(body))

    def _described_alone(self, request: Any) -> Described:
        described = self._described(request)
        if described.binary_bytes:
            raise InvalidRequest(
                f"the request says that {described.binary_bytes} bytes of binary data follow "
                "its JSON text, but has no header Inference-Header-Content-Length"
            )
        return described

    def _filled_json(self, described: Described, body: bytes | bytearray) -> InferRequest:
        return self._filled(described, memoryview(b""), body)

    def _read(self, text: bytes) -> Described:
        """Return the description in a text before binary data."""
        recalled = self._texts.recall(text)
        if recalled is not None:
            described, identity = recalled
            if not identity:
                return described
            return described._replace(requested=described.requested._replace(id=identity))
        described = self._described(decoded(text))
        # A region may be another one by the time of the next request.
        lasting = not (described.lazy or described.requested.shared) and self._as_it_is(described)
        if self.remembers and lasting and all(given.size != IN_JSON for given in described.given):
            requested = described.requested
            without_id = described._replace(requested=requested._replace(id=b""))
            self._texts.learn(text, without_id, requested.id)
        return described

    def _described(self, request: Any) -> Described:
        if not isinstance(request, dict):
            raise InvalidRequest(f"the request is {shown(request)}, not an object")
        entries = request.get("inputs")
        if not isinstance(entries, list):
            found = "lacks `inputs`" if entries is None else f"has {shown(entries)} as `inputs`"
            hint = _OF_V1 if entries is None and "instances" in request else ""
            raise InvalidRequest(f"the request {found}, which is a list of tensors{hint}")
        found_inputs: dict[str, GivenInput] = {}
        binary_bytes, lazy = 0, False
        for index, entry in enumerate(entries):
            given = self._given(entry, index, binary_bytes, found_inputs)
            found_inputs[given.reader.name] = given
            if given.size > 0:
                binary_bytes += given.size
            elif given.size == IN_CLIENT_MEMORY:
                lazy = True
        if len(found_inputs) < len(self._signature.inputs):
            shapes = {name: given.shape for name, given in found_inputs.items()}
            for reader, shape, default in self._signature.stand_ins(shapes):
                dimensions = default.dimensions
                found_inputs[reader.name] = GivenInput(
                    shape, dimensions, LEFT_OUT, 0, default, reader
                )
        ordered = self._signature.in_order(found_inputs)
        rows = self._signature.rows([given.shape for given in ordered])
        return Described(ordered, rows, binary_bytes, self._outputs_reader.read(request), lazy)

    def _given(self, entry: Any, index: int, start: int, taken: Container[str]) -> GivenInput:
        if not isinstance(entry, dict):
            raise InvalidRequest(f"inputs[{index}] is {shown(entry)}, not an object")
        wanted = self._signature.named(entry.get("name"), index, taken)
        reader = wanted.of_datatype(entry.get("datatype"))
        shape, dimensions = reader.fitted(entry.get("shape"))
        size, values = reader.source(entry, shape, self._memory)
        return GivenInput(shape, dimensions, size, start, values, reader)

    def _as_it_is(self, described: Described) -> bool:
        """Return whether every value is of its input's own datatype."""
        pairs = zip(self._signature.inputs, described.given, strict=True)
        return all(wanted is given.reader for wanted, given in pairs)

    def _filled(
        self, described: Described, binary: memoryview, text: bytes | bytearray
    ) -> InferRequest:
        booleans = may_hold_booleans(text)
        try:
            # Lazy ones only where `described` says so.
            tensors: list[Any] = [
                given.reader.packed(given.values, given.shape, booleans=booleans)
                if given.size == IN_JSON
                else given.reader.unpacked(
                    binary[given.start : given.start + given.size], given.shape
                )
                if given.size >= 0
                else given.values.tensor(described.rows)
                if given.size == LEFT_OUT
                else given.reader.settled(given.values, given.shape)
                for given in described.given
            ]
        except InvalidRequest as misfit:
            misfit.args = (as_written(str(misfit), text),)
            raise
        shapes = [given.shape for given in described.given]
        dimensions = tuple(size for given in described.given for size in given.dimensions)
        if described.lazy:
            lazy_parts = self._signature.lazy_parts(
                shapes, dimensions, tensors, self._context_bytes()
            )
            return InferRequest(lazy_parts, described.requested)
        parts = self._signature.parts(shapes, dimensions, tensors, self._context_bytes())
        return InferRequest(parts, described.requested)

    def _context_bytes(self) -> bytes:
        """Return the request context; empty for a model that does not ask for it."""
        return b""

    def _raw(self, body: bytes | bytearray) -> InferRequest:
        inputs = self._signature.inputs
        if len(inputs) != 1:
            raise InvalidRequest(
                f"a body without JSON text is one tensor, but {self._signature.takes}, which are "
                f"{len(inputs)}"
            )
        (wanted,) = inputs
        shape, dimensions = wanted.raw_shape(len(body))
        data: Bytes = body
        if not wanted.fixed:
            data = len(body).to_bytes(LENGTH_BYTES, "little") + body
        tensor = wanted.unpacked(memoryview(data), shape)
        return InferRequest(
            self._signature.parts([shape], dimensions, [tensor], self._context_bytes()),
            self._outputs_reader.all_binary,
        )


class NumberRequests(InferRequests):
    """Requests to a model whose one input is of numbers and of a fixed shape.

    Where a text came before, but for its values, these alone are read; everything else, right or
    wrong, goes the long way.
    """

    def __init__(self, spec: ModelSpec, memory: ClientMemory, max_in_flight: int) -> None:
        super().__init__(spec, memory, max_in_flight)
        self._around: RequestTextCache[Outline] = RequestTextCache(
            lambda request: request["inputs"][0]["data"]
        )
        self._cap = spec.max_batch_size
        (tensor,) = spec.inputs
        self._code = number_code(tensor.datatype)
        self._each = prod(tensor.shape)
        self._row = self._each if len(tensor.shape) == 1 else 0
        self._packs: dict[int, Callable[..., bytes]] = {}

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> InferRequest:
        """As in `Requests`."""
        if json_bytes:
            recalled = self._texts.recall(bytes(body[:json_bytes]))
            if recalled is not None:
                (_, rows, binary_bytes, requested, _), identity = recalled
                if 0 < binary_bytes == len(body) - json_bytes and rows <= self._cap:
                    return _request(rows, memoryview(body)[json_bytes:], requested, identity)
        elif json_bytes is None:
            return self._read_json(body)
        return super().parse(body, json_bytes)

    def outline(self, text: bytes, binary_bytes: int) -> Outline | None:
        """As in `Requests`."""
        try:
            if text:
                described = self._read(text)
                rows, requested = described.rows, described.requested
                if described.binary_bytes != binary_bytes or described.given[0].size < 0:
                    return None
                if not self._as_it_is(described):
                    return None
            else:
                ((rows, *_), _) = self._signature.inputs[0].raw_shape(binary_bytes)
                requested = self._outputs_reader.all_binary
        except RequestError:
            return None
        return Outline(rows, binary_bytes, requested) if 0 < rows <= self._cap else None

    def _read_json(self, body: bytes | bytearray) -> InferRequest:
        around, values = around_values(body)
        recalled = self._around.recall(around)
        if recalled is not None:
            (rows, _, requested), identity = recalled
            payload = self._packed(values, rows)
            if payload is not None:
                return _request(rows, payload, requested, identity)
        described = self._described_json(body)
        request = self._filled_json(described, body)
        rows, requested = described.rows, described.requested
        one_part = described.given[0].size == IN_JSON and 0 < rows <= self._cap
        one_part = one_part and self._as_it_is(described)
        # Where there is a quote, there may be another member behind the value.
        if one_part and not requested.shared and _QUOTE not in values:
            self._around.learn(around, Outline(rows, 0, requested._replace(id=b"")), requested.id)
        return request

    def _packed(self, text: bytes | bytearray, rows: int) -> bytes | None:
        """Return the payload of so many rows from the text of their values; None if it is none."""
        if _E in text and may_hold_booleans(text):
            return None
        try:
            values = loads(text)
            if self._row and len(values) == rows and type(values[0]) is list:
                return b"".join(starmap(self._pack(1), values))
            return self._pack(rows)(*values)
        except (TypeError, ValueError, IndexError, struct.error, OverflowError):
            return None

    def _pack(self, rows: int) -> Callable[..., bytes]:
        pack = self._packs.get(rows)
        if pack is None:
            pack = self._packs[rows] = struct.Struct(f"<{rows * self._each}{self._code}").pack
        return pack


def _request(
    rows: int, payload: bytes | memoryview, requested: RequestedOutputs, identity: bytes
) -> InferRequest:
    """Return a request of one part. Calls of the classes would take twice as long."""
    if identity:
        requested = unchecked_tuple(RequestedOutputs, (identity, *requested[1:]))
    return unchecked_tuple(InferRequest, ((unchecked_tuple(Part, (rows, payload, 0)),), requested))


def decoded(text: bytes | bytearray) -> Any:
    """Return the value of a JSON text.

    Raises:
        InvalidRequest: it is no JSON.
    """
    try:
        return loads(text)
    except JSONDecodeError as error:
        raise InvalidRequest(f"the request is no JSON: {why_unreadable(text, error)}") from None
