"""Default values of inputs that a request leaves out."""

from typing import Any, Final

import numpy as np

from ringbatch.frontend.codec.bytes_tensor import joined
from ringbatch.shm import default_values
from ringbatch.shm.brain_floats import narrowed
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.tensor import ANY, Tensor

MOST_BYTES: Final = 1 << 26
"""Most bytes of defaults in one request: a small request must not become a large one."""


class Default:
    """The default of one input.

    Attributes:
        shape: of one instance.
        dimensions: sizes of the tensor's open dimensions.
        value: as JSON has it.
        row: the bytes of one instance.

    Args:
        tensor: the input.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.shape = default_values.sizes_of(tensor.default, len(tensor.shape))
        pairs = zip(self.shape, tensor.shape, strict=True)
        self.dimensions = tuple(size for size, declared in pairs if declared == ANY)
        self.value: Any = default_values.plain(tensor.default)
        self._name = tensor.name
        self.row = _bytes(tensor)

    def tensor(self, rows: int) -> bytes:
        """Return the bytes of so many instances.

        Raises:
            InvalidRequest: they are too many.
        """
        self.expect_room(rows)
        return self.row * rows

    def expect_room(self, rows: int) -> None:
        """Refuse instances that are too many.

        Raises:
            InvalidRequest
        """
        if rows * len(self.row) > MOST_BYTES:
            raise InvalidRequest(
                f'the request leaves out input "{self._name}" for {rows} instances, which is done '
                f"for at most {MOST_BYTES // len(self.row)}"
            )


def _bytes(tensor: Tensor) -> bytes:
    values = list(default_values.elements(tensor.default))
    if not tensor.datatype.fixed:
        return joined(values)
    if tensor.datatype.name == "BF16":
        return narrowed(np.array(values, "<f4")).tobytes()
    return np.array(values, tensor.datatype.numpy).tobytes()
