"""Functions of `ringbatch.shm.slot` for many slots at once, on arrays of uint64."""

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.slot import FLAG_BITS, SLOT_BITS, SLOT_MASK, Status


def slot_array(references: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the `slot_of` of each reference."""
    return (references & np.uint64(SLOT_MASK)).astype(np.intp)


def done_array(references: NDArray[np.uint64], status: Status) -> NDArray[np.uint64]:
    """Return the `done_word` of each request."""
    return references >> np.uint64(SLOT_BITS) << np.uint64(FLAG_BITS) | np.uint64(status)


def answered_array(
    controls: NDArray[np.uint64], dones: NDArray[np.uint64], status: Status
) -> NDArray[np.bool_]:
    """Return a mask of slots whose latest request was answered with that status."""
    bits = np.uint64(FLAG_BITS)
    found: NDArray[np.bool_] = dones == (controls >> bits << bits | np.uint64(status))
    return found


def open_array(controls: NDArray[np.uint64], dones: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return a mask of slots whose latest request has no answer."""
    bits = np.uint64(FLAG_BITS)
    found: NDArray[np.bool_] = controls >> bits != dones >> bits
    return found
