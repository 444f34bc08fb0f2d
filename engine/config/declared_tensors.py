"""Tensors as text, for model files without a signature: ``x FP32 [3, 224, 224]``."""

import re
from typing import Final

from ringbatch.shm.tensor import Tensor

_TENSOR: Final = re.compile(r"\s*(\S+)\s+(\S+)\s*\[\s*((?:-?\d+\s*(?:,\s*-?\d+\s*)*)?)\]\s*")


def declared(text: str) -> Tensor:
    """Return the tensor that a text declares: its name, its datatype and the shape of one instance.

    Raises:
        ValueError: the text has another form, or describes no tensor; the error says which.
    """
    found = _TENSOR.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not of the form 'name DATATYPE [sizes]'")
    name, datatype, sizes = found.groups()
    return Tensor(name, datatype, [int(size) for size in sizes.split(",") if size.strip()])


def is_declaration(text: object) -> bool:
    """Return whether `declared` returns a tensor for it."""
    try:
        return isinstance(text, str) and declared(text) is not None
    except ValueError:
        return False
