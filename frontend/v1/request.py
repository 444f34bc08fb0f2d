"""The body of a V1 predict request, as what stands in slots for it.

    {"instances": [...]}          row format: one entry an instance
    {"inputs": [...]}             the same
    {"inputs": {"x": [...]}}      column format: the instances of each input; typed models only

An entry for a typed model is the value of its only input, or an object {input name: value}. For a
BYTES input of shape [] that is the only one, {"b64": "..."} is a value. Other members of the body
are ignored; of several members of one name the last counts.
"""

import struct
from collections.abc import Callable, Iterable
from itertools import starmap
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

from orjson import JSONDecodeError, loads

from ringbatch.frontend.codec.defaults import Default
from ringbatch.frontend.codec.json_to_tensor import (
    UNFIT,
    TensorReader,
    as_written,
    may_hold_booleans,
    number_code,
    shown,
)
from ringbatch.frontend.codec.limit_messages import ANY_NUMBER, expect_batches
from ringbatch.frontend.codec.outcome import NO_INSTANCES, UNREADABLE
from ringbatch.frontend.codec.payload import Part, RawPart, framed
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.frame import Frame
from ringbatch.shm.host.json_text import (
    UnsoundText,
    Value,
    decoder_with,
    in_runs,
    members,
    why_unreadable,
)
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.request_context import as_tensor

T = TypeVar("T")

_TENSOR_OF_V2: Final = {"name", "shape", "datatype"}
_OF_V2: Final = "; tensors with a name and a shape are for V2, at /v2/models/NAME/infer"
FINITE: Final = decoder_with(loads)
"""orjson reads a number as Python does, in less time, and refuses what would be infinity."""
_R, _F = b"rf"
"""Letters that every `true` and `false` has; a number is found in bytes five times as fast as
another bytes object."""


Parsed = tuple[tuple[RawPart, ...], bool]
"""The parts of one request in order, several only if there are more instances than one batch may
hold; and whether the answer is wanted in column format."""


_LEFT_OUT: Final = object()
"""Placeholder of a value that the request leaves out: the input's default stands for it."""


class Column(NamedTuple):
    """The instances of one input, and the words in errors for the one with a given index."""

    instances: list[Any]
    describe: Callable[[int], str]


class Requests(Protocol):
    """Reads requests to one model."""

    def parse(self, body: bytes | bytearray) -> Parsed:
        """Read a body; raises `InvalidRequest`."""


def requests_of(spec: ModelSpec, max_in_flight: int = ANY_NUMBER) -> Requests:
    """Return the reader of requests to this model.

    Args:
        spec: the model.
        max_in_flight: the most batches that one request may make.
    """
    if not spec.typed:
        return UntypedRequests(spec, max_in_flight)
    for tensor in spec.inputs:
        if tensor.datatype.name == "BF16":
            return NoRequests(
                f'input "{tensor.name}" of model "{spec.name}" is BF16, which JSON cannot carry'
            )
    first = spec.inputs[0]
    numeric = first.datatype.name not in ("BOOL", "BYTES")
    plain = spec.words is None and numeric
    if len(spec.inputs) == len(first.shape) == 1 and first.shape[0] > 0 and plain:
        return VectorRequests(spec, max_in_flight)
    return TypedRequests(spec, max_in_flight)


class NoRequests:
    """Refusal of requests for a model whose inputs JSON cannot carry.

    Args:
        reason: why every request is refused.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def parse(self, body: bytes | bytearray) -> NoReturn:
        """As in `Requests`."""
        raise InvalidRequest(self._reason)


class TypedRequests:
    """Requests to a model with declared inputs, none of them BF16."""

    def __init__(self, spec: ModelSpec, max_in_flight: int) -> None:
        self._cap = spec.cap
        self._max_in_flight = max_in_flight
        self._frame = Frame(spec.carried)
        self._readers = [
            TensorReader(tensor, spec.name, nulls=spec.nulls) for tensor in spec.inputs
        ]
        self._names = {tensor.name for tensor in spec.inputs}
        self._defaults = {
            tensor.name: Default(tensor) for tensor in spec.inputs if tensor.default is not None
        }
        self._left_out = dict.fromkeys(self._defaults, _LEFT_OUT)
        self._takes = f'model "{spec.name}" takes {_quoted([t.name for t in spec.inputs])}'
        self._b64_is_value = len(spec.inputs) == 1 and (
            spec.inputs[0].datatype.name == "BYTES" and not spec.inputs[0].shape
        )

    def parse(self, body: bytes | bytearray) -> Parsed:
        """Read a body.

        Raises:
            InvalidRequest: naming the instance, what was found and what would be right.
            RequestTooLarge: the request makes too many batches.
        """
        try:
            request = loads(body)
        except JSONDecodeError as error:
            raise unreadable(body, error) from None
        return self.read(request, body)

    def read(self, request: Any, body: bytes | bytearray, context: bytes = b"") -> Parsed:
        """Read a decoded body.

        Args:
            request: the body, decoded.
            body: the body.
            context: the request context; empty for a model that does not ask for it.

        Raises:
            InvalidRequest: as `parse`.
        """
        if not isinstance(request, dict):
            raise InvalidRequest(f"{UNREADABLE}it is {shown(request)}, not an object")
        key, value = _choose(request)
        _expect_instances(key, value)
        in_columns = isinstance(value, dict)
        if not in_columns:
            expect_batches(len(value), self._cap, self._max_in_flight)
        columns = self._columns(value) if in_columns else self._rows(key, value)
        try:
            return self._parts(columns, may_hold_booleans(body), context), in_columns
        except InvalidRequest as misfit:
            misfit.args = (as_written(str(misfit), body),)
            raise

    def _columns(self, value: dict[str, Any]) -> list[Column]:
        self._expect_names(value, "`inputs`")
        if len(value) < len(self._readers):
            value = self._completed(value)
        columns = []
        for reader in self._readers:
            instances = value[reader.name]
            if not isinstance(instances, list):
                raise InvalidRequest(
                    f'inputs["{reader.name}"] is {shown(instances)}, '
                    f"but a column is a list with one value an instance"
                )
            columns.append(Column(instances, f'inputs["{reader.name}"][{{}}]'.format))
        lengths = [len(column.instances) for column in columns]
        if len(set(lengths)) > 1:
            raise InvalidRequest(
                f"the columns in `inputs` differ in length: {', '.join(map(str, lengths))}"
            )
        if not lengths[0]:
            raise InvalidRequest(NO_INSTANCES)
        expect_batches(lengths[0], self._cap, self._max_in_flight)
        return columns

    def _rows(self, key: str, entries: list[Any]) -> list[Column]:
        bare = len(self._readers) == 1
        if bare and dict not in set(map(type, entries)):
            return [Column(entries, f"{key}[{{}}]".format)]
        columns: list[list[Any]] = [[] for _ in self._readers]
        for index, entry in enumerate(entries):
            if bare and self._is_value(entry):
                columns[0].append(entry)
                continue
            self._expect_named(entry, f"{key}[{index}]")
            whole = entry if len(entry) == len(columns) else self._left_out | entry
            for reader, column in zip(self._readers, columns, strict=True):
                column.append(whole[reader.name])

        def description_of(name: str) -> Callable[[int], str]:
            return lambda index: (
                f"{key}[{index}]"
                if bare and self._is_value(entries[index])
                else f'{key}[{index}]["{name}"]'
            )

        named = zip(self._readers, columns, strict=True)
        return [Column(column, description_of(reader.name)) for reader, column in named]

    def _is_value(self, entry: Any) -> bool:
        return not isinstance(entry, dict) or (self._b64_is_value and entry.keys() == {"b64"})

    def _expect_named(self, entry: Any, where: str) -> None:
        if not isinstance(entry, dict):
            raise InvalidRequest(
                f"{where} is {shown(entry)}, but {self._takes}: "
                "an instance is an object with a value for each"
            )
        self._expect_names(entry, where)

    def _expect_names(self, named: dict[str, Any], where: str) -> None:
        if named.keys() == self._names:
            return
        hint = _OF_V2 if named.keys() >= _TENSOR_OF_V2 else ""
        for reader in self._readers:
            if reader.name not in named and reader.name not in self._defaults:
                raise InvalidRequest(f'{where} lacks "{reader.name}"; {self._takes}{hint}')
        for name in named:
            if name not in self._names:
                raise InvalidRequest(f"{where} has {shown(name)}, but {self._takes}")

    def _completed(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns with those that were left out, which are as long as the others."""
        count = next((len(one) for one in columns.values() if isinstance(one, list)), 0)
        return {name: [_LEFT_OUT] * count for name in self._defaults} | columns

    def _parts(self, columns: list[Column], booleans: bool, context: bytes) -> tuple[Part, ...]:
        rows = len(columns[0].instances)
        spans = [(start, min(start + self._cap, rows)) for start in range(0, rows, self._cap)]
        read = [
            _read_column(reader, column, spans, booleans)
            if (default := self._defaults.get(reader.name)) is None
            else _read_completed(reader, default, column, spans, booleans)
            for reader, column in zip(self._readers, columns, strict=True)
        ]
        dimensions = tuple(size for sizes, _ in read for size in sizes)
        parts = []
        for index, (start, end) in enumerate(spans):
            tensors = [packed[index] for _, packed in read]
            if context:
                tensors.append(as_tensor(context, end - start))
            payload = framed(self._frame, end - start, dimensions, tensors)
            parts.append(Part(end - start, payload, self._frame.key_bytes))
        return tuple(parts)


class VectorRequests(TypedRequests):
    """Requests to a model whose one input is a vector of numbers of a fixed size.

    Instances that fit, in row format, are packed at once; everything else, right or wrong, goes
    the long way.
    """

    def __init__(self, spec: ModelSpec, max_in_flight: int) -> None:
        super().__init__(spec, max_in_flight)
        (vector,) = spec.inputs
        self._pack_vector = struct.Struct(f"<{vector.shape[0]}{number_code(vector.datatype)}").pack

    def parse(self, body: bytes | bytearray) -> Parsed:
        """As in `TypedRequests`."""
        try:
            request = loads(body)
            if _R not in body and _F not in body and len(request) == 1:
                rows = request["instances"]
                count = len(rows)
                if count == 1:
                    payload = self._pack_vector(*rows[0])
                elif 1 < count <= self._cap:
                    payload = b"".join(starmap(self._pack_vector, rows))
                else:
                    return self.read(request, body)
                return ((count, payload, 0),), False
        except JSONDecodeError as error:
            raise unreadable(body, error) from None
        except (KeyError, TypeError, struct.error, OverflowError):
            pass
        return self.read(request, body)


def _read_column(
    reader: TensorReader, column: Column, spans: list[tuple[int, int]], booleans: bool
) -> tuple[tuple[int, ...], list[bytes]]:
    """Return the open dimensions of one input, and its tensor for each span of instances."""
    try:
        dimensions, items, width = reader.open(column.instances, booleans=booleans)
        each = len(items) // len(column.instances)
        packed = [reader.pack(items[start * each : end * each], width) for start, end in spans]
    except UNFIT:
        raise InvalidRequest(reader.fault(*column)) from None
    return dimensions, packed


def _read_completed(
    reader: TensorReader,
    default: Default,
    column: Column,
    spans: list[tuple[int, int]],
    booleans: bool,
) -> tuple[tuple[int, ...], list[bytes]]:
    """Read as `_read_column`, with the default for missing values.

    They are filled in as bytes, because values for each row of a small body could take seconds to
    read.
    """
    instances, describe = column
    rows = [row for row, value in enumerate(instances) if value is not _LEFT_OUT]
    if len(rows) == len(instances):
        return _read_column(reader, column, spans, booleans)
    default.expect_room(len(instances) - len(rows))
    packed = [default.row] * len(instances)
    if rows:
        given = Column([instances[row] for row in rows], lambda index: describe(rows[index]))
        singly = [(index, index + 1) for index in range(len(rows))]
        dimensions, own = _read_column(reader, given, singly, booleans)
        if dimensions != default.dimensions:
            pair = (instances.index(_LEFT_OUT), rows[0])
            values = [default.value, instances[rows[0]]]
            raise InvalidRequest(reader.fault(values, lambda index: describe(pair[index])))
        for row, tensor in zip(rows, own, strict=True):
            packed[row] = tensor
    return default.dimensions, [b"".join(packed[start:end]) for start, end in spans]


class UntypedRequests:
    """Requests to a model that takes lists of JSON values; these pass as they were written."""

    def __init__(self, spec: ModelSpec, max_in_flight: int) -> None:
        self._cap = spec.cap
        self._max_in_flight = max_in_flight

    def parse(self, body: bytes | bytearray) -> Parsed:
        """Read a body.

        Raises:
            InvalidRequest: it is no sound JSON object with a list of instances.
            RequestTooLarge: the request makes too many batches.
        """
        text, request, key = self.read(body)
        return self.parts(text, request[key]), False

    def read(self, body: bytes | bytearray) -> tuple[str, dict[str, Value], str]:
        """Return the text of a body, its members, and the name of the instances' member.

        It raises the errors of `parse`.
        """
        try:
            text = body.decode()
            request = self._members(text)
        except (UnicodeDecodeError, UnsoundText) as error:
            raise InvalidRequest(f"{UNREADABLE}{why_unreadable(body, error)}") from None
        key, value = _choose(request)
        if key == "inputs" and isinstance(value.decoded, dict):
            raise InvalidRequest("a model without declared inputs takes `instances`, a list")
        _expect_instances(key, value.decoded)
        return text, request, key

    def _members(self, text: str) -> dict[str, Value]:
        return members(text, FINITE)

    def parts(self, text: str, value: Value) -> tuple[Part, ...]:
        """Return the parts for slots, in order, of instances in a text."""
        rows, cap = len(value.decoded), self._cap
        own = text[value.start : value.end].encode()
        if rows <= cap:
            return (Part(rows, own, 0),)
        expect_batches(rows, cap, self._max_in_flight)
        runs = in_runs(own, cap)
        last = len(runs) - 1
        return tuple(
            Part(cap if number < last else rows - last * cap, run, 0)
            for number, run in enumerate(runs)
        )


def _choose(request: dict[str, T]) -> tuple[str, T]:
    """Return the member with the instances, and its name."""
    if "instances" in request and "inputs" in request:
        raise InvalidRequest("`instances` and `inputs` exclude each other: a request has one")
    for key in ("instances", "inputs"):
        if key in request:
            return key, request[key]
    raise InvalidRequest(f"{NO_INSTANCES}: it has neither `instances` nor `inputs`")


def _expect_instances(key: str, value: Any) -> None:
    if not isinstance(value, list) and not (key == "inputs" and isinstance(value, dict)):
        if value is None:
            raise InvalidRequest(f"{NO_INSTANCES}: `{key}` is null")
        raise InvalidRequest(f"{UNREADABLE}`{key}` is {shown(value)}, not a list")
    if not value:
        raise InvalidRequest(NO_INSTANCES)


def unreadable(body: bytes | bytearray, error: JSONDecodeError) -> InvalidRequest:
    """Return the error that a body is no JSON."""
    return InvalidRequest(f"{UNREADABLE}{why_unreadable(body, error)}")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
