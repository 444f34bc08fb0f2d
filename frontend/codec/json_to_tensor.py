"""JSON values to the bytes of one tensor, and words for those that do not fit.

Lists are opened level by level down to the innermost, which are packed one call each; if these
are short they are opened too, and all values are packed in one call. Only if that fails are the
values searched for the first that does not fit, by halving: good requests pay nothing for the texts
that bad ones get, and bad ones little.
"""

import json
import math
import re
import struct
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from itertools import chain, starmap
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.shm.tensor import ANY, Datatype, Tensor

T = TypeVar("T")

_SHOWN_CHARACTERS: Final = 60
_SHOWN_SIZES: Final = 8
_ROUNDED: Final = re.compile(r" is (-?\d(?:\.\d+)?e\+\d+), but ")
_LONG: Final = re.compile(rb"(?<![\d.eE+-])-?\d{19,309}(?![\d.eE])")
_INTEGERS: Final = range(-(1 << 63), 1 << 64)
"""Whole numbers that orjson decodes as such; others become floating-point numbers."""
_LISTS: Final = {list}
_BOOLEANS: Final = {bool}
_WIDE: Final = 8
"""Values in a list from which packing it alone is faster than opening it first."""


class Misfit(ValueError):
    """A value does not fit its tensor."""


UNFIT: Final = (Misfit, struct.error, OverflowError)
"""Errors of reading a value that does not fit: `Misfit`, or those of packing numbers."""


class Opened(NamedTuple):
    """Some instances without the outer lists around their values.

    Attributes:
        dimensions: the sizes that stand for the tensor's open dimensions, in order.
        items: instance after instance; an equal number from each.
        width: the length of each item, a list of values; 0 if the items are values.
    """

    dimensions: tuple[int, ...]
    items: list[Any]
    width: int


class TensorReader:
    """Reads instances of one input from JSON values.

    Args:
        tensor: what the signature says of it; any datatype but BF16.
        model: the model's name, for the texts of errors.
        nulls: whether nulls and booleans are read as in a table, see `ModelSpec`.
    """

    pack: Callable[[Sequence[Any], int], bytes]
    """``pack(items, width)``: the tensor's bytes from opened items; raises one of `UNFIT`."""

    def __init__(self, tensor: Tensor, model: str, *, nulls: bool = False) -> None:
        self.name = tensor.name
        self.fixed = tensor.datatype.fixed
        self._shape = tensor.shape
        self._datatype = tensor.datatype
        self._owner = f'input "{tensor.name}" of model "{model}"'
        self._numeric = tensor.datatype.name not in ("BOOL", "BYTES")
        packed = _packer(tensor.datatype)
        self._refuses_booleans = self._numeric and not (nulls and tensor.datatype.floating)
        may_miss = nulls and (not self.fixed or tensor.datatype.floating)
        self.pack = _packer_of_nulls(packed, self.fixed) if may_miss else packed

    def open(self, instances: list[Any], *, booleans: bool) -> Opened:
        """Take away the outer lists of instances that all have the tensor's shape.

        Args:
            instances: at least one.
            booleans: whether there may be a true or false in them, which Python would take for
                numbers; only then is every value's type looked at.

        Raises:
            Misfit: an instance has another shape, or the instances differ in an open dimension.
        """
        dimensions = []
        level = instances
        width = 0
        for depth, wanted in enumerate(self._shape, 1):
            if not set(map(type, level)) <= _LISTS:
                raise Misfit
            size = wanted
            if wanted == ANY:
                size = len(level[0]) if level else 0
                dimensions.append(size)
            if not set(map(len, level)) <= {size}:
                raise Misfit
            if self._numeric and size >= _WIDE and depth == len(self._shape):
                width = size
            else:
                level = list(chain.from_iterable(level))
        if booleans and self._refuses_booleans and _has_booleans(level if width else [level]):
            raise Misfit
        return Opened(tuple(dimensions), level, width)

    def pack_flat(self, values: list[Any], *, booleans: bool) -> bytes:
        """Return the tensor's bytes from values without any lists around them.

        Args:
            values: all of the tensor's, in row-major order.
            booleans: as in `open`.

        Raises:
            Misfit, struct.error, OverflowError: `UNFIT`; a value is not of the tensor's datatype.
        """
        if booleans and self._refuses_booleans and _has_booleans([values]):
            raise Misfit
        return self.pack(values, 0)

    def flat_fault(self, values: list[Any], where: str) -> str:
        """Return the fault of values that `pack_flat` refused; `where` names them all."""
        unfit = _first_unfit(values, self._reads_values)
        found = self._shown_item(values[unfit])
        return f"{where}[{unfit}] is {found}, but {self._owner} takes {self._values()}"

    def fault(self, instances: list[Any], describe: Callable[[int], str]) -> str:
        """Return the fault of instances that could not be read.

        Args:
            instances: all of the request.
            describe: the words for the instance with that index.
        """
        first = instances[0]
        index = _first_unfit(instances, lambda some: self._reads([first, *some]))
        where = describe(index)
        try:
            shape, values = _unnest(instances[index])
        except Misfit as ragged:
            return f"{where} is ragged, {ragged}, but {self._owner} takes {self._instance()}"
        if not _has_shape(shape, self._shape):
            found = f"has shape {_sizes(shape)}" if shape else f"is {shown(values[0])}"
            return f"{where} {found}, but {self._owner} takes {self._instance()}"
        unfit = _first_unfit(values, self._reads_values)
        if not self._reads_values(values[unfit : unfit + 1]):
            indices = np.unravel_index(unfit, shape) if shape else ()
            where += "".join(f"[{i}]" for i in indices)
            return (
                f"{where} is {self._shown_item(values[unfit])}, but {self._owner} takes "
                f"{self._values()}"
            )
        return (
            f"{where} has shape {_sizes(shape)} and {describe(0)} {_sizes(_unnest(first)[0])}, but "
            f"the instances of one request must agree in their shape for {self._owner}"
        )

    def _reads(self, instances: list[Any]) -> bool:
        try:
            opened = self.open(instances, booleans=True)
            self.pack(opened.items, opened.width)
        except UNFIT:
            return False
        return True

    def _reads_values(self, values: list[Any]) -> bool:
        try:
            self.pack(values, 0)
        except UNFIT:
            return False
        return not (self._refuses_booleans and _has_booleans([values]))

    def _shown_item(self, value: Any) -> str:
        if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
            # Numbers have no such form, be it base64 or not.
            why = "" if self.fixed else ", which is no base64"
            return f'{{"b64": {shown(value["b64"])}}}{why}'
        return shown(value)

    def _instance(self) -> str:
        return _sizes(self._shape) if self._shape else f"one value: {self._values()}"

    def _values(self) -> str:
        return f"{self._datatype.name}, {_range(self._datatype)}"


def _packer(datatype: Datatype) -> Callable[[Sequence[Any], int], bytes]:
    """Return the pack function of a datatype.

    That of numbers takes whole ones for floating-point ones, never the reverse, and raises if
    one is beyond the datatype; it cannot tell booleans from numbers.
    """
    if datatype.name == "BOOL":
        return _pack_booleans
    if datatype.name == "BYTES":
        return _pack_bytes
    code = number_code(datatype)

    def pack(items: Sequence[Any], width: int) -> bytes:
        if width:
            return b"".join(starmap(struct.Struct(f"<{width}{code}").pack, items))
        return struct.pack(f"<{len(items)}{code}", *items)

    return pack


def _packer_of_nulls(
    packed: Callable[[Sequence[Any], int], bytes], numbers: bool
) -> Callable[[Sequence[Any], int], bytes]:
    """Return the same pack function for values of which some are missing."""
    missing: Any = math.nan if numbers else ""

    def pack(items: Sequence[Any], width: int) -> bytes:
        try:
            return packed(items, width)
        except UNFIT:
            if width:
                return packed([[_or(v, missing) for v in item] for item in items], width)
            return packed([_or(value, missing) for value in items], width)

    return pack


def _or(value: Any, missing: Any) -> Any:
    return missing if value is None else value


def number_code(datatype: Datatype) -> str:
    """Return the `struct` character that packs a JSON number; FP16 has one here, not in V2."""
    code = "e" if datatype.name == "FP16" else datatype.code
    assert code, f"{datatype.name} does not travel as JSON numbers"
    return code


def _pack_booleans(values: Sequence[Any], _width: int) -> bytes:
    if not set(map(type, values)) <= _BOOLEANS:
        raise Misfit
    return bytes(values)


def _pack_bytes(values: Sequence[Any], _width: int) -> bytes:
    return joined(
        [value.encode() if isinstance(value, str) else _from_b64(value) for value in values]
    )


def _from_b64(value: Any) -> bytes:
    if not isinstance(value, dict) or value.keys() != {"b64"}:
        raise Misfit
    text = value["b64"]
    if not isinstance(text, str):
        raise Misfit
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):  # ValueError: characters outside ASCII
        raise Misfit from None


def may_hold_booleans(body: bytes | bytearray) -> bool:
    """Return False only if the text has no true or false.

    It looks for one letter, which is found faster than a word.
    """
    return (b"r" in body and b"true" in body) or (b"f" in body and b"false" in body)


def flattened(values: list[Any]) -> list[Any]:
    """Return the values in nested lists, in order, however deep and long the lists are.

    Raises:
        Misfit: a list has lists and single values side by side.
    """
    while list in (kinds := set(map(type, values))):
        if kinds != _LISTS:
            raise Misfit("with lists and single values side by side")
        values = list(chain.from_iterable(values))
    return values


def _has_booleans(lists: list[list[Any]]) -> bool:
    return any(bool in set(map(type, values)) for values in lists)


def shown(value: Any) -> str:
    """Return a client's value in JSON or words, short enough for the text of an error."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return json.dumps(value[:_SHOWN_CHARACTERS], ensure_ascii=False) + "..."
    return json.dumps(value, ensure_ascii=False)


def as_written(fault: str, text: bytes | bytearray) -> str:
    """Return a fault with the number that it shows as the client wrote it.

    Args:
        fault: as `TensorReader` returns it.
        text: the JSON text of the request. It is searched only if the number shown may be a whole
            one beyond 64 bits, which orjson rounds.
    """
    rounded = _ROUNDED.search(fault)
    if rounded is None:
        return fault
    for found in _LONG.finditer(text):
        number = int(found[0])
        if repr(float(number)) == rounded[1] and number not in _INTEGERS:
            return f"{fault[: rounded.start(1)]}{number}{fault[rounded.end(1) :]}"
    return fault


def _first_unfit(items: list[T], fits: Callable[[list[T]], bool]) -> int:
    """Return the index of the first item that does not fit, else of the last."""
    start, end = 0, len(items)
    while end - start > 1:
        middle = (start + end) // 2
        if fits(items[start:middle]):
            start = middle
        else:
            end = middle
    return start


def _unnest(value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of nested lists, up to the first size of 0, and their leaves.

    Raises:
        Misfit: they have no shape; the text names the kinds that stand side by side.
    """
    shape: list[int] = []
    level = [value]
    while list in (kinds := set(map(type, level))):
        if kinds != _LISTS:
            raise Misfit("with lists and single values side by side")
        sizes = set(map(len, level))
        if len(sizes) > 1:
            raise Misfit(f"with lists of {min(sizes)} and of {max(sizes)} values side by side")
        shape += sizes
        level = list(chain.from_iterable(level))
    return tuple(shape), level


def _has_shape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether lists of that shape are such a tensor; sizes behind a 0 are unknown."""
    whole = len(shape) == len(wanted) or (len(shape) < len(wanted) and shape[-1:] == (0,))
    return whole and all(want in (ANY, size) for size, want in zip(shape, wanted, strict=False))


def _sizes(shape: tuple[int, ...]) -> str:
    if len(shape) > _SHOWN_SIZES:
        return f"[{', '.join(map(str, shape[:_SHOWN_SIZES]))}, ...]"
    return str(list(shape))


def _range(datatype: Datatype) -> str:
    if datatype.name == "BOOL":
        return "true or false"
    if datatype.name == "BYTES":
        return 'strings or {"b64": "..."}'
    if datatype.name.startswith("FP"):
        largest = float(np.finfo(datatype.numpy).max)
        return f"numbers from {-largest:.9g} to {largest:.9g}"
    limits = np.iinfo(datatype.numpy)
    return f"whole numbers from {limits.min} to {limits.max}"
