"""The datatypes and tensor descriptions that both sides of the memory agree on.

Names, sizes and the text form of a datatype are those of the Open Inference Protocol V2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from ringbatch.shm import default_values

ANY: Final = -1
"""A dimension of any size."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """Storage of one element.

    Attributes:
        name: the protocol's name, such as ``FP32``.
        size: bytes an element takes; 0 if elements differ in size.
        numpy: the numpy dtype string, little-endian; ``V2`` for BF16, which numpy lacks.
        code: the `struct` format character for a JSON number or boolean; empty if values
            of this type do not travel as JSON numbers.
    """

    name: str
    size: int
    numpy: str
    code: str

    @property
    def fixed(self) -> bool:
        """True if every element takes the same number of bytes."""
        return self.size > 0

    @property
    def floating(self) -> bool:
        """True if its values are floating-point numbers, which include NaN."""
        return self.name.startswith(("FP", "BF"))


DATATYPES: Final = {
    d.name: d
    for d in (
        Datatype("BOOL", 1, "?", "?"),
        Datatype("UINT8", 1, "<u1", "B"),
        Datatype("UINT16", 2, "<u2", "H"),
        Datatype("UINT32", 4, "<u4", "I"),
        Datatype("UINT64", 8, "<u8", "Q"),
        Datatype("INT8", 1, "<i1", "b"),
        Datatype("INT16", 2, "<i2", "h"),
        Datatype("INT32", 4, "<i4", "i"),
        Datatype("INT64", 8, "<i8", "q"),
        Datatype("FP16", 2, "<f2", ""),
        Datatype("BF16", 2, "V2", ""),
        Datatype("FP32", 4, "<f4", "f"),
        Datatype("FP64", 8, "<f8", "d"),
        Datatype("BYTES", 0, "O", ""),
    )
}

_HERE: Final = {
    **{name.lower(): name for name in DATATYPES},
    **{f"float{size}": f"FP{size}" for size in (16, 32, 64)},
    **{"half": "FP16", "bfloat16": "BF16", "float": "FP32", "single": "FP32", "double": "FP64"},
    **{"int": "INT64", "long": "INT64", "bool_": "BOOL"},
    **dict.fromkeys(("bytes_", "object", "str", "str_", "string"), "BYTES"),
}
"""Datatypes by the names that numpy, torch and Python have for them, in lower case."""


@dataclass(frozen=True, slots=True, init=False)
class Tensor:
    """Input or output of a model: a name, a datatype and the shape of one instance.

    Args:
        name: what V2 requests and V1 columns call it.
        datatype: a name of `DATATYPES`.
        shape: sizes of one instance, without the batch dimension; -1 is any size.
        labels: what the elements of one instance of an output stand for, in order, such as the
            names of classes; none if they have no names.
        default: of an input, the value of one instance if a request leaves the input out: a value
            of its shape; None if requests may not.
        padding: of an output with dimensions of any size, a single value that pads shorter rows of
            a request if an answer has to be one array; None if all rows of a request must have one
            shape.

    Raises:
        ValueError: in words, if one of them is not of that kind.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    default: Any
    padding: Any

    def __init__(
        self,
        name: str,
        datatype: str,
        shape: Sequence[int],
        labels: Sequence[str] = (),
        default: Any = None,
        padding: Any = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a tensor's name must be a non-empty string, not {name!r}")
        if not isinstance(datatype, str) or datatype not in DATATYPES:
            known = ", ".join(DATATYPES)
            here = _HERE.get(str(getattr(datatype, "__name__", datatype)).lower(), "")
            meant = f", which is {here} here" if here else ""
            raise ValueError(
                f"tensor {name!r}: unknown datatype {datatype!r}{meant}; known are {known}"
            )
        if not isinstance(shape, (list, tuple)):
            raise ValueError(f"tensor {name!r}: the shape must be a list of sizes, not {shape!r}")
        for size in shape:
            if isinstance(size, bool) or not isinstance(size, int) or size < ANY:
                raise ValueError(
                    f"tensor {name!r}: a size in the shape must be a whole number "
                    f"from 0, or -1 for any size, not {size!r}"
                )
        if not isinstance(labels, (list, tuple)) or not all(isinstance(one, str) for one in labels):
            raise ValueError(f"tensor {name!r}: its labels must be a list of texts")
        if labels and ANY not in shape and len(labels) != prod(shape):
            raise ValueError(
                f"tensor {name!r}: there are {len(labels)} labels for {prod(shape)} elements"
            )
        if default is not None:
            try:
                default = default_values.fitted(datatype, shape, default)
            except ValueError as error:
                raise ValueError(
                    f"tensor {name!r}: the default does not fit {datatype} {list(shape)}: {error}"
                ) from None
        if padding is not None:
            if ANY not in shape:
                raise ValueError(
                    f"tensor {name!r}: a padding is for dimensions of any size (-1), but its shape "
                    f"is {list(shape)}"
                )
            try:
                padding = default_values.fitted(datatype, (), padding)
            except ValueError as error:
                raise ValueError(f"tensor {name!r}: the padding does not fit: {error}") from None
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "datatype", DATATYPES[datatype])
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "labels", tuple(labels))
        object.__setattr__(self, "default", default)
        object.__setattr__(self, "padding", padding)

    @property
    def static(self) -> bool:
        """True if every instance has the same shape."""
        return ANY not in self.shape

    @property
    def row_bytes(self) -> int | None:
        """Bytes one instance takes; None if that depends on the request."""
        if self.static and self.datatype.fixed:
            return prod(self.shape) * self.datatype.size
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the V2 metadata without a batch dimension; with labels, default and padding."""
        fields: dict[str, Any] = {
            "name": self.name,
            "datatype": self.datatype.name,
            "shape": list(self.shape),
        }
        if self.labels:
            fields["labels"] = list(self.labels)
        if self.default is not None:
            fields["default"] = default_values.plain(self.default)
        if self.padding is not None:
            fields["padding"] = default_values.plain(self.padding)
        return fields
