"""Values of inputs that clients may leave out: whether they fit, and their form in a model table.

A value is that of one instance. Here it is made of tuples, numbers, truths and texts; BYTES that
are no text are ``{"b64": "..."}`` in JSON, as in V1.
"""

import struct
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, Final

_LARGEST: Final = {"FP16": "<e", "FP32": "<f"}
_BF16_LIMIT: Final = 3.3895313892515355e38


def fitted(datatype: str, shape: Sequence[int], value: Any) -> Any:
    """Return the value with its lists as tuples and its BYTES as `bytes`.

    Args:
        datatype: its name.
        shape: of one instance; -1 is any size.
        value: numbers, booleans or texts, in lists as deep as the shape, or in numpy arrays.

    Raises:
        ValueError: the value does not fit; the text says why.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    found = _nested(datatype, list(shape), value)
    sizes = _sizes(found, len(shape))
    if sizes is None:
        raise ValueError("its lists are of different lengths")
    return found


def _nested(datatype: str, shape: list[int], value: Any) -> Any:
    if not shape:
        return _element(datatype, value)
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"it is {value!r}, where a list is right")
    if shape[0] not in (-1, len(value)):
        raise ValueError(f"it has a list of {len(value)}, where one of {shape[0]} is right")
    return tuple([_nested(datatype, shape[1:], one) for one in value])


def _sizes(value: Any, depth: int) -> tuple[int, ...] | None:
    """Return the sizes of nested tuples; None if those of one level differ."""
    if not depth:
        return ()
    below = {_sizes(one, depth - 1) for one in value}
    if len(below) > 1 or None in below:
        return None
    return (len(value), *(below.pop() or () if below else (0,) * (depth - 1)))


def _element(datatype: str, value: Any) -> Any:
    if datatype == "BYTES":
        return _text(value)
    is_truth, is_whole = isinstance(value, bool), isinstance(value, int)
    if datatype == "BOOL":
        if not is_truth:
            raise ValueError(f"it has {value!r}, where true or false is right")
        return value
    if "FP" in datatype or datatype == "BF16":
        if is_truth or not isinstance(value, (int, float)) or not _in_range(datatype, value):
            raise ValueError(f"it has {value!r}, which is no finite {datatype}")
        return float(value)
    bits = int(datatype.lstrip("UINT"))
    low, high = (0, 1 << bits) if datatype.startswith("U") else (-1 << bits - 1, 1 << bits - 1)
    if is_truth or not is_whole or not low <= value < high:
        raise ValueError(f"it has {value!r}, which is no {datatype}")
    return int(value)


def _in_range(datatype: str, value: float) -> bool:
    try:
        value = float(value)
        if datatype in _LARGEST:
            struct.pack(_LARGEST[datatype], value)
        return isfinite(value) and (datatype != "BF16" or abs(value) <= _BF16_LIMIT)
    except OverflowError:
        return False


def _text(value: Any) -> bytes:
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        try:
            return b64decode(value["b64"], validate=True)
        except Error:
            raise ValueError("it has b64 that is no base64") from None
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError(f"it has {value!r}, where a text is right")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair, which UTF-8 does not have") from None


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": b64encode(value).decode()}


def elements(value: Any) -> Iterator[Any]:
    """Yield the elements of a value, in order."""
    if isinstance(value, tuple):
        for one in value:
            yield from elements(one)
    else:
        yield value


def sizes_of(value: Any, depth: int) -> tuple[int, ...]:
    """Return the shape of a value that fits a shape of as many dimensions."""
    return _sizes(value, depth) or ()
