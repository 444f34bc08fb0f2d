"""Rules for V2 requests to one model, in any protocol.

REST and gRPC differ in the places of names, shapes and values in a request. The rules are the same
and are here: the inputs must be the model's, all of them and of one batch size. So are the parts
for slots.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

from ringbatch.frontend.codec.defaults import Default
from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.limit_messages import ANY_NUMBER, expect_batches
from ringbatch.frontend.codec.payload import (
    Assembly,
    Bytes,
    LazyBytes,
    LazyPart,
    Part,
    framed,
    laid_out,
)
from ringbatch.frontend.v2.converted_input import ConvertedInput, convertible
from ringbatch.frontend.v2.input import Input, Shape
from ringbatch.frontend.v2.requested_outputs import quoted
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.frame import Frame, FrameError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.request_context import NOTHING, as_tensor
from ringbatch.shm.tensor import Tensor

T = TypeVar("T")


class Signature:
    """The inputs of one model.

    Attributes:
        inputs: each, in the order of the model.
        takes: the model and the names of its inputs, for the texts of errors.

    Args:
        spec: the model, with declared inputs.
        max_in_flight: the most batches that one request may make.
    """

    def __init__(self, spec: ModelSpec, max_in_flight: int = ANY_NUMBER) -> None:
        self._by_name = {tensor.name: _input(tensor, spec) for tensor in spec.inputs}
        self.inputs = tuple(self._by_name.values())
        self.takes = f'model "{spec.name}" takes {quoted(self._by_name)}'
        self._name = spec.name
        self._cap = spec.cap
        self._max_in_flight = max_in_flight
        self._frame = Frame(spec.carried)
        self._asks = spec.words is not None
        self._alone = len(spec.inputs) == 1 and self._frame.static
        self._defaults = {
            tensor.name: Default(tensor) for tensor in spec.inputs if tensor.default is not None
        }
        self._answers_nothing = all(tensor.static for tensor in spec.outputs)

    def named(self, name: Any, index: int, taken: Container[str]) -> Input:
        """Return the input that entry `index` of a request is for.

        Args:
            name: as the entry gives it.
            index: of the entry.
            taken: the names of the entries before.

        Raises:
            InvalidRequest: the name is no string, is taken, or is that of no input of several.
        """
        if not isinstance(name, str):
            found = "lacks its name" if name is None else f"has {shown(name)} as its name"
            raise InvalidRequest(f"inputs[{index}] {found}, which is a string")
        wanted = self._by_name.get(name)
        if wanted is None:
            # A model with one input takes it by any name.
            if len(self.inputs) != 1 or index or not name:
                raise InvalidRequest(f"inputs[{index}] is {shown(name)}, but {self.takes}")
            (wanted,) = self.inputs
        if wanted.name in taken:
            raise InvalidRequest(f"input {shown(wanted.name)} stands in the request twice")
        return wanted

    def in_order(self, found: Mapping[str, T]) -> tuple[T, ...]:
        """Return a request's values for each input, in the order of the model.

        Args:
            found: by the names of inputs.

        Raises:
            InvalidRequest: one is missing.
        """
        if len(found) != len(self._by_name):
            missing = next(name for name in self._by_name if name not in found)
            raise InvalidRequest(f'the request lacks input "{missing}"; {self.takes}')
        return tuple(found[name] for name in self._by_name)

    def stand_ins(self, found: Mapping[str, Shape]) -> Iterator[tuple[Input, Shape, Default]]:
        """Yield the inputs that a request may and does leave out, each with its shape and default.

        Args:
            found: the shapes of those that it has, by their names.

        Raises:
            InvalidRequest: as of `rows`, or the instances are too many for that.
        """
        if len(found) == len(self._by_name) or not found:
            return
        rows = self.rows(list(found.values()))
        for name, default in self._defaults.items():
            if name not in found:
                default.expect_room(rows)
                yield self._by_name[name], (rows, *default.shape), default

    def left_out(self, found: Mapping[str, Shape]) -> Iterator[tuple[Input, Shape, Shape, bytes]]:
        """As `stand_ins`, with the sizes for open dimensions and the bytes of each."""
        for reader, shape, default in self.stand_ins(found):
            yield reader, shape, default.dimensions, default.tensor(shape[0])

    def rows(self, shapes: Sequence[Shape]) -> int:
        """Return the number of instances in inputs of these shapes, in the order of the model.

        Raises:
            InvalidRequest: they differ in it, or there are none or too many that have no elements.
            RequestTooLarge: the inputs make too many batches.
        """
        rows = shapes[0][0]
        if any(shape[0] != rows for shape in shapes):
            sizes = ", ".join(str(shape[0]) for shape in shapes)
            raise InvalidRequest(
                f"the first sizes of the shapes differ: {sizes}; the batch dimension of all "
                "inputs is the same"
            )
        if not rows and not self._answers_nothing:
            raise InvalidRequest(
                f'the request has no instances, and what model "{self._name}" would answer to '
                "none has no shape"
            )
        # Where instances have elements, the length of the request bounds their number.
        if rows > self._cap and not any(map(prod, shapes)):
            raise InvalidRequest(
                f"the request has {rows} instances without any element; at most {self._cap} "
                "such are accepted"
            )
        expect_batches(rows, self._cap, self._max_in_flight)
        return rows

    def parts(
        self,
        shapes: Sequence[Shape],
        dimensions: Shape,
        tensors: Sequence[Bytes],
        context: bytes = b"",
    ) -> tuple[Part, ...]:
        """Return the parts for slots: several if one batch cannot hold all instances, or none.

        Args:
            shapes: of each input, in the order of the model.
            dimensions: the sizes of the open dimensions, in that order.
            tensors: the bytes of each input.
            context: the request context, if the model asks for it.

        Raises:
            InvalidRequest: they take more than memory can hold.
        """
        rows = shapes[0][0]
        if 0 < rows <= self._cap:
            return (self._part(rows, dimensions, tensors, context),)
        if not rows:
            return ()
        spans = [(start, min(start + self._cap, rows)) for start in range(0, rows, self._cap)]
        cuts = [
            wanted.cuts(tensor, shape, self._cap)
            for wanted, tensor, shape in zip(self.inputs, tensors, shapes, strict=True)
        ]
        return tuple(
            self._part(
                end - start,
                dimensions,
                [
                    memoryview(tensor)[cut[index] : cut[index + 1]]
                    for tensor, cut in zip(tensors, cuts, strict=True)
                ],
                context,
            )
            for index, (start, end) in enumerate(spans)
        )

    def lazy_parts(
        self,
        shapes: Sequence[Shape],
        dimensions: Shape,
        tensors: Sequence[Bytes | LazyBytes],
        context: bytes = b"",
    ) -> tuple[Part | LazyPart, ...]:
        """As `parts`, for tensors some of which are read only when they are put into their slot.

        Raises:
            InvalidRequest: they take more than memory can hold, or can no longer be read.
        """
        rows = shapes[0][0]
        if rows > self._cap or not rows:
            read = [data.read() if isinstance(data, LazyBytes) else data for data in tensors]
            return self.parts(shapes, dimensions, read, context)
        if self._asks:
            tensors = [*tensors, as_tensor(context or NOTHING, rows)]
        try:
            pieces = laid_out(self._frame, rows, dimensions, tensors)
        except FrameError as error:
            raise InvalidRequest(str(error)) from None
        return (LazyPart(rows, Assembly(pieces), self._frame.key_bytes),)

    def _part(self, rows: int, dimensions: Shape, tensors: Sequence[Bytes], context: bytes) -> Part:
        if self._alone:
            (tensor,) = tensors
            payload = memoryview(tensor) if isinstance(tensor, bytearray) else tensor
            return Part(rows, payload, 0)
        if self._asks:
            tensors = [*tensors, as_tensor(context or NOTHING, rows)]
        try:
            payload = framed(self._frame, rows, dimensions, tensors)
        except FrameError as error:
            raise InvalidRequest(str(error)) from None
        return Part(rows, payload, self._frame.key_bytes)


def _input(tensor: Tensor, spec: ModelSpec) -> Input:
    others = {
        other: ConvertedInput(tensor, other, spec.name, batched=spec.batched, nulls=spec.nulls)
        for other in convertible(tensor.datatype, spec)
    }
    return Input(tensor, spec.name, batched=spec.batched, converted_from=others, nulls=spec.nulls)
