"""ModelInferRequest of the Open Inference Protocol, and its parts for slots.

`inputs` describes each input. Its values stand in `raw_input_contents`, an entry for each input and
in the layout of V2's binary data, or in the one field of its `contents` for its datatype. Or they
are in memory of the client's, and in neither. The rules for a request are the same as over REST,
and the same code checks them.
"""

from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.frontend.codec.defaults import Default
from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.limit_messages import ANY_NUMBER, expect_batches
from ringbatch.frontend.codec.parse_cache import ParseCache
from ringbatch.frontend.codec.part_limits import NO_LIMITS, PartLimits
from ringbatch.frontend.codec.payload import Bytes, LazyBytes, LazyPart, Part
from ringbatch.frontend.codec.request_context import RawHeaders, RequestContext
from ringbatch.frontend.grpc.messages import Message
from ringbatch.frontend.v2.input import Input, Shape
from ringbatch.frontend.v2.requested_outputs import (
    RAW_ONLY,
    RequestedOutput,
    outputs_reader,
)
from ringbatch.frontend.v2.shared_memory import OFF, ClientMemory, RegionSpan, span_of
from ringbatch.frontend.v2.signature import Signature
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.model_spec import ModelSpec

CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The field of `InferTensorContents` that the elements of each datatype stand in, where one has."""

_NOT_RAW: Final = -1
_REMEMBERED: Final = 256
_RAW: Final = "binary_data_output"
_FOR_REST: Final = ("binary_data", _RAW, "binary_data_size")
_SAYS_END: Final = "triton_enable_empty_final_response"
"""The one parameter of that prefix that may be given."""


class GrpcRequestedOutputs(NamedTuple):
    """Requested outputs of an answer.

    Attributes:
        outputs: in the order of the answer.
        typed: True if elements are to stand in `contents` rather than in `raw_output_contents`.
        timeout_ns: how long the request is worth an answer; 0 without a limit.
        level: of its class, as in `RequestedOutputs`.
        says_end: True if an empty response is to follow the last part of an answer in parts.
        limits: of an answer in parts, that the request asks for.
    """

    outputs: tuple[RequestedOutput, ...]
    typed: bool
    timeout_ns: int
    level: int = 0
    says_end: bool = False
    limits: PartLimits = NO_LIMITS

    @property
    def all_raw(self) -> bool:
        """True if every output is wanted in `raw_output_contents`."""
        return not self.typed and all(output.binary is True for output in self.outputs)


class GrpcRequest(NamedTuple):
    """ModelInfer request, read and checked.

    Attributes:
        parts: in order; several where there are more instances than one batch may hold, none
            where there are no instances.
        requested: what the answer is to be.
        as_it_is: whether every raw content is its input's tensor.
    """

    parts: tuple[Part | LazyPart, ...]
    requested: GrpcRequestedOutputs
    as_it_is: bool


class _GivenInput(NamedTuple):
    """Input of a request, as it was given.

    Attributes:
        shape: with the batch dimension.
        dimensions: the sizes that stand for the open dimensions.
        entry: which of the raw contents is its; `_NOT_RAW` where none is.
        tensor: its bytes, where they do not stand there; of an input that the request leaves out
            its `Default`, whose bytes are made for each request, as what is remembered holds none.
        reader: reads these.
    """

    shape: Shape
    dimensions: Shape
    entry: int
    tensor: Bytes | LazyBytes | Default
    reader: Input


class _Described(NamedTuple):
    """Description of a request beside its id and its raw contents.

    Attributes:
        given: each input, in the order of the model's signature.
        shapes: shape of each input.
        dimensions: the sizes for the open dimensions of all of them.
        entries: how many raw contents there are to be, if there are any.
        requested: the requested outputs.
        shared: True if an input is in shared memory.
        as_it_is: True if the values of each input are of its own datatype.
    """

    given: tuple[_GivenInput, ...]
    shapes: list[Shape]
    dimensions: Shape
    entries: int
    requested: GrpcRequestedOutputs
    shared: bool
    as_it_is: bool


class Requests(Protocol):
    """Reads requests to one model."""

    def read(self, request: Message, headers: RawHeaders = ()) -> GrpcRequest:
        """Read a ModelInferRequest, which is taken apart by it.

        Args:
            request: the message.
            headers: the metadata of its call.

        Raises:
            InvalidRequest: naming what was found and what would be right.
            NotSupported: it asks for an extension that is not served.
            RequestError: `ClientMemory` does.
        """

    def outline(self, request: Message, tensor_bytes: int) -> tuple[int, GrpcRequestedOutputs]:
        """Return the instances and the requested outputs of a request without its raw tensor.

        Args:
            request: without that tensor, to a model with one input of fixed size.
            tensor_bytes: bytes of the tensor.

        Raises:
            RequestError: it does not say that, or these bytes will not be the payload of one slot
                as they are; `read` finds the fault, if there is one.
        """


def requests_of(
    spec: ModelSpec, memory: ClientMemory = OFF, max_in_flight: int = ANY_NUMBER
) -> Requests:
    """Return the reader of requests to this model.

    Args:
        spec: the model.
        memory: the clients' memory that requests may use.
        max_in_flight: batches that one request may make.
    """
    return GrpcRequests(spec, memory, max_in_flight) if spec.typed else NoRequests(spec)


class NoRequests:
    """Refusal of requests for a model without declared inputs, which has no tensors.

    Args:
        spec: the model.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._name = spec.name

    def read(self, request: Message, headers: RawHeaders = ()) -> NoReturn:
        """As in `Requests`."""
        raise InvalidRequest(
            f'model "{self._name}" declares no inputs, so that there are no tensors to send it; '
            "use /v1/models/NAME:predict over HTTP"
        )

    def outline(self, request: Message, tensor_bytes: int) -> NoReturn:
        """As in `Requests`."""
        self.read(request)


class GrpcRequests:
    """Requests to one model.

    Args:
        spec: the model, with declared inputs.
        memory: what of clients' memory requests may use.
        max_in_flight: batches that one request may make.
    """

    def __init__(self, spec: ModelSpec, memory: ClientMemory, max_in_flight: int) -> None:
        self._memory = memory
        self._model = spec.name
        self._cap = spec.cap
        self._max_in_flight = max_in_flight
        self._signature = Signature(spec, max_in_flight)
        self._outputs_reader = outputs_reader(spec, memory)
        self._raw_only = {
            index for index, tensor in enumerate(spec.outputs) if tensor.datatype.name in RAW_ONLY
        }
        self._all = self._outputs_reader.all_binary.outputs
        self._known: ParseCache[bytes, _Described] = ParseCache(_REMEMBERED)
        self._context_builder = None if spec.words is None else RequestContext(spec)
        self._context = b""

    def read(self, request: Message, headers: RawHeaders = ()) -> GrpcRequest:
        """As in `Requests`."""
        raw = list(request.raw_input_contents)
        if self._context_builder is not None:
            parameters = _parameters(request.parameters, "the request")
            self._context = self._context_builder.text(headers, request.id, parameters)
            described = self._described(request, typed=not raw)
        elif raw:
            described = self._remembered(request)
        else:
            described = self._described(request, typed=True)
        if raw and len(raw) != described.entries:
            raise InvalidRequest(
                f"the request has {len(raw)} raw_input_contents, but {described.entries} inputs "
                "that are not in shared memory; each of them has one of its own, or none has"
            )
        tensors = [
            _raw_tensor(one.reader, one.shape, raw[one.entry])
            if one.entry != _NOT_RAW
            else one.tensor.tensor(one.shape[0])
            if isinstance(one.tensor, Default)
            else one.tensor
            for one in described.given
        ]
        parts = self._parts(described, tensors)
        return GrpcRequest(parts, described.requested, described.as_it_is)

    def outline(self, request: Message, tensor_bytes: int) -> tuple[int, GrpcRequestedOutputs]:
        """As in `Requests`."""
        described = self._remembered(request)
        (one,) = described.given
        if one.entry == _NOT_RAW or described.entries != 1 or not described.as_it_is:
            raise InvalidRequest("the tensor is to be changed")
        one.reader.expect_bytes(tensor_bytes, one.shape)
        rows = self._signature.rows(described.shapes)
        if not 0 < rows <= self._cap:
            raise InvalidRequest("the tensor is to be cut")
        return rows, described.requested

    def _remembered(self, request: Message) -> _Described:
        """Return the description of a request with raw contents, from memory if it came before.

        Programs mostly send the same description with each request, and reading it takes as long as
        all the rest.
        """
        request.ClearField("id")
        request.ClearField("raw_input_contents")
        head = request.SerializeToString()
        described = self._known.get(head)
        if described is None:
            described = self._described(request, typed=False)
            shared = described.shared or any(
                output.binary is not True for output in described.requested.outputs
            )
            if not shared:
                self._known.put(head, described, len(head))
        return described

    def _described(self, request: Message, *, typed: bool) -> _Described:
        found: dict[str, _GivenInput] = {}
        entries, shared = 0, False
        for index, entry in enumerate(request.inputs):
            wanted = self._signature.named(entry.name, index, found)
            reader = wanted.of_datatype(entry.datatype)
            shape, dimensions = reader.fitted(list(entry.shape))
            expect_batches(shape[0], self._cap, self._max_in_flight)
            span = self._span(entry)
            tensor: Bytes | LazyBytes = b""
            raw_entry = _NOT_RAW
            if span is not None:
                tensor = self._shared_tensor(reader, entry, shape, span)
            elif typed:
                tensor = _typed_tensor(reader, entry, shape)
            else:
                self._expect_no_contents(entry)
                raw_entry = entries
            found[wanted.name] = _GivenInput(shape, dimensions, raw_entry, tensor, reader)
            entries += span is None
            shared |= span is not None
        if len(found) < len(self._signature.inputs):
            known = {name: one.shape for name, one in found.items()}
            for reader, shape, default in self._signature.stand_ins(known):
                dimensions = default.dimensions
                found[reader.name] = _GivenInput(shape, dimensions, _NOT_RAW, default, reader)
        given = self._signature.in_order(found)
        shapes = [one.shape for one in given]
        self._signature.rows(shapes)
        return _Described(
            given,
            shapes,
            tuple(size for one in given for size in one.dimensions),
            entries,
            self._wanted(request),
            shared=shared,
            as_it_is=all(
                wanted is one.reader
                for wanted, one in zip(self._signature.inputs, given, strict=True)
            ),
        )

    def _expect_no_contents(self, entry: Message) -> None:
        if entry.contents.ByteSize():
            # Clients of Triton's look for the first words.
            raise InvalidRequest(
                "contents field must not be specified when using raw_input_contents for "
                f"'{entry.name}' for model '{self._model}'; the values of all inputs stand in the "
                "one or in the other"
            )

    def _span(self, entry: Message) -> RegionSpan | None:
        """Return the place of an input in memory of the client's; None if it is not there."""
        if not entry.parameters:
            return None
        where = f"input {shown(entry.name)}"
        return span_of(_parameters(entry.parameters, where), where, self._memory)

    def _shared_tensor(
        self, wanted: Input, entry: Message, shape: Shape, span: RegionSpan
    ) -> Bytes | LazyBytes:
        if entry.contents.ByteSize():
            raise InvalidRequest(
                f'input "{entry.name}" is in shared memory and has contents as well'
            )
        return wanted.settled(wanted.lazy(span, shape, self._memory), shape)

    def _parts(
        self, described: _Described, tensors: list[Bytes | LazyBytes]
    ) -> tuple[Part | LazyPart, ...]:
        if described.shared:
            return self._signature.lazy_parts(
                described.shapes, described.dimensions, tensors, self._context
            )
        read = [tensor for tensor in tensors if not isinstance(tensor, LazyBytes)]
        return self._signature.parts(described.shapes, described.dimensions, read, self._context)

    def _wanted(self, request: Message) -> GrpcRequestedOutputs:
        outputs, timeout_ns, level, typed, says_end = self._all, 0, 0, False, False
        limits = NO_LIMITS
        if request.outputs or request.parameters:
            parameters = _parameters(request.parameters, "the request")
            typed = not _flag(request.parameters, _RAW, default=True)
            says_end = _flag(request.parameters, _SAYS_END, default=False)
            # No output has to be what JSON can carry.
            parameters[_RAW] = True
            listed = [_output(entry) for entry in request.outputs]
            requested = self._outputs_reader.read({"parameters": parameters, "outputs": listed})
            _, outputs, timeout_ns, level, limits = requested
        carried = {output.output for output in outputs if output.binary is True}
        typed = typed and self._raw_only.isdisjoint(carried)
        return GrpcRequestedOutputs(outputs, typed, timeout_ns, level, says_end, limits)


def _flag(parameters: Message, name: str, *, default: bool) -> bool:
    """Return a parameter that is true or false."""
    if name not in parameters:
        return default
    if parameters[name].WhichOneof("parameter_choice") != "bool_param":
        raise InvalidRequest(f"parameter {shown(name)} is not true or false")
    found: bool = parameters[name].bool_param
    return found


def _output(entry: Message) -> dict[str, Any]:
    return {
        "name": entry.name,
        "parameters": _parameters(entry.parameters, f"output {shown(entry.name)}"),
    }


def _parameters(given: Message, where: str) -> dict[str, Any]:
    """Return a map of InferParameter as REST has it."""
    found = {}
    for name, parameter in given.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is None:
            raise InvalidRequest(f"parameter {shown(name)} of {where} has no value")
        value = getattr(parameter, kind)
        if isinstance(value, float) and not isfinite(value):
            # Models get parameters as JSON, as over REST, and JSON has no such number.
            raise InvalidRequest(f"parameter {shown(name)} of {where} is no finite number")
        if name not in _FOR_REST and name != _SAYS_END:
            found[name] = value
    return found


def _raw_tensor(wanted: Input, shape: Shape, raw: bytes) -> Bytes:
    wanted.expect_bytes(len(raw), shape)
    return wanted.unpacked(memoryview(raw), shape)


def _typed_tensor(wanted: Input, entry: Message, shape: Shape) -> Bytes:
    contents = entry.contents
    field = CONTENTS.get(entry.datatype)
    used = [descriptor.name for descriptor, _ in contents.ListFields()]
    if not used and 0 not in shape:
        raise InvalidRequest(
            f'input "{entry.name}" has no values: neither contents, nor has the request '
            "raw_input_contents"
        )
    if not used:
        return b""
    if field is None:
        raise InvalidRequest(
            f'input "{entry.name}" is {entry.datatype}, which has no typed contents; send it in '
            "raw_input_contents"
        )
    if used != [field]:
        odd = next(name for name in used if name != field)
        raise InvalidRequest(
            f'input "{entry.name}" has values in {odd}, but those of {entry.datatype} stand in '
            f"{field}"
        )
    values = list(getattr(contents, field))
    if wanted.fixed:
        return wanted.packed(values, shape, booleans=False, where=f"{entry.name}.{field}")
    wanted.expect_elements(len(values), shape)
    return joined(values)
