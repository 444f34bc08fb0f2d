"""Input of a V2 request: checks that the given values fit the model, and returns their bytes."""

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.codec.bytes_tensor import Unsound, elements
from ringbatch.frontend.codec.json_to_tensor import UNFIT, Misfit, TensorReader, flattened, shown
from ringbatch.frontend.codec.payload import Bytes, LazyBytes
from ringbatch.frontend.v2.requested_outputs import RAW_ONLY, parameters_of
from ringbatch.frontend.v2.shared_memory import ClientMemory, RegionSpan, span_of
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.layout import MAX_BYTES
from ringbatch.shm.tensor import ANY, DATATYPES, Tensor

IN_JSON: Final = -1
"""Mark in the place of a size: the values stand in the JSON text."""
IN_CLIENT_MEMORY: Final = -2
"""Mark in the place of a size: the bytes are in memory of the client's."""
LEFT_OUT: Final = -3
"""Mark in the place of a size: the request leaves the input out, and its default stands for it."""

_WHOLE: Final = {int}
_STRINGS: Final = {str}
_SHAPES_KEPT: Final = 256
_SHOWN_SIZES: Final = 8

Shape = tuple[int, ...]


class Input:
    """Reader of one input by its signature.

    Args:
        tensor: the input.
        model: the model's name, for the texts of errors.
        batched: True if shapes have a batch dimension in front. If they have none, each stands
            for one instance, and the shapes that are given out here have a 1 there.
        converted_from: readers of its values in other datatypes, by these.
        nulls: as in `ModelSpec`.
    """

    def __init__(
        self,
        tensor: Tensor,
        model: str,
        *,
        batched: bool = True,
        converted_from: "Mapping[str, Input] | None" = None,
        nulls: bool = False,
    ) -> None:
        self.name = tensor.name
        self.fixed = tensor.datatype.fixed
        self._tensor = tensor
        self._datatype = tensor.datatype
        self._owner = f'input "{tensor.name}" of model "{model}"'
        self._batched = batched
        self._converted_from = converted_from or {}
        shape = [ANY, *tensor.shape] if batched else [*tensor.shape]
        self._takes = f'model "{model}" takes {tensor.datatype.name} of shape {shape}'
        self._raw_only = tensor.datatype.name in RAW_ONLY
        self._texts = _STRINGS | {type(None)} if nulls else _STRINGS
        self._reader = None if self._raw_only else TensorReader(tensor, model, nulls=nulls)
        self._fitting: dict[Shape, Shape] = {}

    def of_datatype(self, datatype: Any) -> "Input":
        """Return the reader for values of the datatype that a request gives.

        Raises:
            InvalidRequest: it is another than the declared one, and cannot be converted to it.
        """
        converted = self._converted_from.get(datatype) if isinstance(datatype, str) else None
        if converted is not None:
            return converted
        self.expect_datatype(datatype)
        return self

    def expect_datatype(self, datatype: Any) -> None:
        """Refuse another datatype than the declared one.

        Raises:
            InvalidRequest
        """
        if datatype == self._datatype.name:
            return
        if datatype is None:
            found = "has no datatype"
        elif not isinstance(datatype, str) or datatype not in DATATYPES:
            found = f"has datatype {shown(datatype)}, which there is not"
        else:
            found = f"is {datatype}"
        raise InvalidRequest(f'input "{self._tensor.name}" {found}, but {self._takes}')

    def fitted(self, sizes: Any) -> tuple[Shape, Shape]:
        """Return the shape that a request gives, and its sizes for the open dimensions.

        Raises:
            InvalidRequest: it is no shape, or not one that the model takes.
        """
        if type(sizes) is not list or not set(map(type, sizes)) <= _WHOLE:
            raise self._no_shape(sizes)
        shape = tuple(sizes) if self._batched else (1, *sizes)
        dimensions = self._fitting.get(shape)
        if dimensions is None:
            dimensions = self._fit(shape)
            if len(self._fitting) >= _SHAPES_KEPT:
                self._fitting.clear()
            self._fitting[shape] = dimensions
        return shape, dimensions

    def _no_shape(self, sizes: Any) -> InvalidRequest:
        found = "has no shape" if sizes is None else f"has {_shown_shape(sizes)} as its shape"
        return InvalidRequest(
            f'input "{self._tensor.name}" {found}; a shape is a list of whole numbers from 0'
        )

    def _fit(self, shape: Shape) -> Shape:
        if min(shape, default=0) < 0:
            raise self._no_shape(list(shape if self._batched else shape[1:]))
        own = self._tensor.shape
        fits = len(shape) == 1 + len(own) and all(
            want in (ANY, size) for size, want in zip(shape[1:], own, strict=True)
        )
        if not fits:
            first = " and the first is the batch's" if self._batched else ""
            raise InvalidRequest(
                f'input "{self._tensor.name}" has shape {self._sizes(shape)}, but {self._takes}, '
                f"where -1 is any size{first}"
            )
        # Sizes beside a 0 cost no bytes, but arrays have limits too.
        if prod(size or 1 for size in shape) * (self._datatype.size or 1) > MAX_BYTES:
            raise InvalidRequest(
                f'input "{self._tensor.name}" has shape {self._sizes(shape)}, which is too large'
            )
        return tuple(size for size, want in zip(shape[1:], own, strict=True) if want == ANY)

    def source(self, entry: dict[str, Any], shape: Shape, memory: ClientMemory) -> tuple[int, Any]:
        """Return the source of the values: a number of bytes behind the JSON text, or another.

        That is `IN_JSON` with the values, or `IN_CLIENT_MEMORY` with their reader.

        Raises:
            InvalidRequest: none are given, twice, or of a wrong size.
            RequestError: `ClientMemory.source` does.
        """
        where = f'input "{self._tensor.name}"'
        if parameters := parameters_of(entry, where):
            size = parameters.get("binary_data_size")
            if (span := span_of(parameters, where, memory)) is not None:
                if size is not None or entry.get("data") is not None:
                    raise InvalidRequest(f"{where} is in shared memory and has data as well")
                return IN_CLIENT_MEMORY, self.lazy(span, shape, memory)
            if size is not None:
                if entry.get("data") is not None:
                    raise InvalidRequest(f"{where} has both data and a binary_data_size")
                if type(size) is not int or size < 0:
                    raise InvalidRequest(
                        f"the binary_data_size of {where} is {shown(size)}, not a whole number "
                        "from 0"
                    )
                self.expect_bytes(size, shape)
                return size, None
        values = entry.get("data")
        if type(values) is not list:
            found = "neither data nor a binary_data_size" if values is None else shown(values)
            raise InvalidRequest(f"{where} has {found}; its values are a list, or binary data")
        if self._raw_only:
            raise InvalidRequest(
                f"{where} is {self._datatype.name}, which V2 does not carry as JSON; "
                "send it as binary data"
            )
        return IN_JSON, values

    def expect_bytes(self, size: int, shape: Shape, source: str = "binary data") -> None:
        """Refuse a `source` of another size than that of the shape, if the shape gives one.

        Raises:
            InvalidRequest
        """
        if self.fixed and size != prod(shape) * self._datatype.size:
            raise InvalidRequest(
                f'input "{self._tensor.name}" has {size} bytes of {source}, but '
                f"{self._datatype.name} of shape {self._sizes(shape)} takes "
                f"{prod(shape) * self._datatype.size}"
            )

    def expect_elements(self, count: int, shape: Shape) -> None:
        """Refuse another number of elements than that of the shape.

        Raises:
            InvalidRequest
        """
        if count != prod(shape):
            raise InvalidRequest(
                f'input "{self._tensor.name}" has {count} elements, but shape '
                f"{self._sizes(shape)} has {prod(shape)}"
            )

    def packed(
        self, values: list[Any], shape: Shape, *, booleans: bool, where: str = "data"
    ) -> bytes:
        """Return the tensor's bytes from JSON values, nested in any way.

        Args:
            values: from the request.
            shape: from the request.
            booleans: True if there may be a true or false in them.
            where: their name in the request.

        Raises:
            InvalidRequest: they are too many, too few, or not of the tensor's datatype.
        """
        count = prod(shape)
        if len(values) != count or (values and type(values[0]) is list):
            try:
                values = flattened(values)
            except Misfit:
                raise InvalidRequest(
                    f'the data of input "{self._tensor.name}" has lists and single values '
                    "side by side"
                ) from None
        self.expect_elements(len(values), shape)
        assert self._reader is not None
        if not self.fixed and not set(map(type, values)) <= self._texts:
            odd = next(i for i, value in enumerate(values) if type(value) not in self._texts)
            raise InvalidRequest(
                f"{where}[{odd}] is {shown(values[odd])}, but {self._owner} takes BYTES, strings"
            )
        try:
            return self._reader.pack_flat(values, booleans=booleans)
        except UNFIT:
            raise InvalidRequest(self._reader.flat_fault(values, where)) from None

    def unpacked(self, data: memoryview, shape: Shape) -> Bytes:
        """Return the tensor's bytes from binary data, of the right size if elements have one.

        Raises:
            InvalidRequest: the lengths of BYTES elements make no sense.
        """
        if not self.fixed:
            try:
                elements(data, 0, len(data), prod(shape))
            except Unsound as error:
                raise InvalidRequest(
                    f'the binary data of input "{self._tensor.name}" is no BYTES of shape '
                    f"{self._sizes(shape)}: {error}"
                ) from None
        elif self._datatype.name == "BOOL":
            return _booleans(data)
        return data

    def lazy(self, span: RegionSpan, shape: Shape, memory: ClientMemory) -> LazyBytes:
        """Return the reader of the tensor, of the right size if elements are of one size.

        Raises:
            InvalidRequest: the span is of another size than the tensor.
            RequestError: `ClientMemory.source` does.
        """
        self.expect_bytes(span.size, shape, "shared memory")
        return memory.source(span)

    def settled(self, lazy: LazyBytes, shape: Shape) -> Bytes | LazyBytes:
        """Return the reader if any bytes are a sound tensor; else the bytes, read once and checked.

        The client may change its memory at any time.

        Raises:
            InvalidRequest: they are no longer there, or the lengths of BYTES make no sense.
        """
        if self.fixed and self._datatype.name != "BOOL":
            return lazy
        return self.unpacked(memoryview(lazy.read()), shape)

    def cuts(self, tensor: Bytes, shape: Shape, cap: int) -> list[int]:
        """Return the offsets that cut the tensor's bytes into parts of up to `cap` instances.

        Both ends are included.

        Args:
            tensor: sound.
            shape: at least one instance.
            cap: at least 1.
        """
        rows = shape[0]
        stops = [*range(0, rows, cap), rows]
        if self.fixed:
            row_bytes = len(tensor) // rows
            return [stop * row_bytes for stop in stops]
        spans = elements(tensor, 0, len(tensor), prod(shape))
        ends = [0, *(end for _, end in spans)]
        return [ends[stop * (len(spans) // rows)] for stop in stops]

    def raw_shape(self, size: int) -> tuple[Shape, Shape]:
        """As `fitted`, for one instance that takes `size` bytes, without a length before them.

        Raises:
            InvalidRequest: it has no such shape.
        """
        own = self._tensor.shape
        if own.count(ANY) > 1:
            raise InvalidRequest(f"a body without JSON text gives no shape, but {self._takes}")
        open_size = 1
        if not self.fixed:
            if any(want not in (1, ANY) for want in own):
                raise InvalidRequest(f"a body without JSON text is one string, but {self._takes}")
        else:
            known = prod(want for want in own if want != ANY) * self._datatype.size
            if ANY in own and known:
                open_size = size // known
            if known * open_size != size or (ANY in own and not known):
                each = f"a multiple of {known}" if ANY in own else str(known)
                raise InvalidRequest(
                    f"the body has {size} bytes, but {self._takes}, of which one instance takes "
                    f"{each}"
                )
        shape = tuple(open_size if want == ANY else want for want in own)
        return (1, *shape), (open_size,) * own.count(ANY)

    def _sizes(self, shape: Shape) -> str:
        """Return a shape as the client has it."""
        own = shape if self._batched else shape[1:]
        if len(own) > _SHOWN_SIZES:
            return f"[{', '.join(map(str, own[:_SHOWN_SIZES]))}, ...]"
        return str(list(own))


def _booleans(data: memoryview) -> Bytes:
    """Return the truths with 1 for each byte but 0."""
    array: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
    if array.size and array.max() > 1:
        return np.not_equal(array, 0).tobytes()
    return data


def _shown_shape(sizes: Any) -> str:
    if not isinstance(sizes, list):
        return shown(sizes)
    more = ["..."] if len(sizes) > _SHOWN_SIZES else []
    return f"[{', '.join([*map(shown, sizes[:_SHOWN_SIZES]), *more])}]"
