"""The first dimension of a model file's tensors, which must be the batch."""

from collections.abc import Sequence
from typing import Final

from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import ANY

NO_BATCH: Final = (
    "or set max_batch_size = 0 to run each request alone, with its tensors as they are"
)


def instance_shape(subject: str, shape: Sequence[int], max_batch_size: int) -> Sequence[int]:
    """Return the shape of one instance of a tensor.

    Args:
        subject: the file and the tensor, as messages begin.
        shape: as the file declares it; `ANY` if a size is open.
        max_batch_size: of the configuration; if it is 0, the shape is already the instance's.

    Raises:
        StartupError: the first dimension cannot be a batch of that many; with the remedy.
    """
    if not max_batch_size:
        return shape
    if not shape:
        raise StartupError(
            f"{subject} has no batch dimension in the file; export the model with one, {NO_BATCH}"
        )
    if shape[0] not in (ANY, 1) or (shape[0] == 1 and max_batch_size > 1):
        one = "set max_batch_size = 1, " if shape[0] == 1 else ""
        raise StartupError(
            f"{subject} has a first dimension of {shape[0]}, but max_batch_size is "
            f"{max_batch_size}; export the model with a dynamic batch dimension, {one}{NO_BATCH}"
        )
    return shape[1:]
