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

from collections.abc import Container
from typing import Any, Final, NoReturn

from orjson import JSONDecodeError, loads

from ringbatch.frontend.codec.bytes_tensor import LENGTH_BYTES
from ringbatch.frontend.codec.json_to_tensor import as_written, may_hold_booleans, shown
from ringbatch.frontend.codec.payload import Bytes
from ringbatch.frontend.v2.input import IN_CLIENT_MEMORY, IN_JSON, LEFT_OUT
from ringbatch.frontend.v2.request_records import Described, GivenInput, InferRequest, Outline
from ringbatch.frontend.v2.request_text_cache import RequestTextCache
from ringbatch.frontend.v2.requested_outputs import outputs_reader
from ringbatch.frontend.v2.shared_memory import ClientMemory
from ringbatch.frontend.v2.signature import Signature
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.host.json_text import why_unreadable
from ringbatch.shm.model_spec import ModelSpec

_OF_V1: Final = "; `instances` are for V1, at /v1/models/NAME:predict"


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


def decoded(text: bytes | bytearray) -> Any:
    """Return the value of a JSON text.

    Raises:
        InvalidRequest: it is no JSON.
    """
    try:
        return loads(text)
    except JSONDecodeError as error:
        raise InvalidRequest(f"the request is no JSON: {why_unreadable(text, error)}") from None
