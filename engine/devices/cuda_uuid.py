"""UUID of a worker's CUDA device, as CUDA's driver tells it.

Numbers of devices differ from process to process, by CUDA_VISIBLE_DEVICES and by MIG. Only the
process that uses a device knows which one its number is. The driver knows it for any library that
the model runs on.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final

_LIBRARY: Final = "libcuda.so.1"
_PREFIX: Final = "cuda:"
_BYTES: Final = 16


def cuda_uuid(device: str, library: Callable[[str], Any] = ctypes.CDLL) -> int:
    """Return the UUID of a device, of a MIG instance its own; 0 for none that CUDA knows.

    Args:
        device: ``cpu``, or ``cuda:N``.
        library: loads a shared library.
    """
    if not device.startswith(_PREFIX):
        return 0
    handle, uuid = ctypes.c_int(), (ctypes.c_ubyte * _BYTES)()
    try:
        cuda = library(_LIBRARY)
        # The first of two that are named alike tells the board of a MIG instance.
        steps = (
            cuda.cuInit(0),
            cuda.cuDeviceGet(ctypes.byref(handle), int(device[len(_PREFIX) :])),
            cuda.cuDeviceGetUuid_v2(ctypes.byref(uuid), handle),
        )
    except (OSError, AttributeError):
        # CUDA of another maker, or a driver older than CUDA 11.4.
        return 0
    return 0 if any(steps) else int.from_bytes(bytes(uuid), "big")
