"""GPUs of workers, for the commands that look at an engine."""

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from ringbatch.shm.host.background import short_thread
from ringbatch.shm.snapshot.gpus import Gpu, figures

LIMIT_S: Final = 2.0
"""The longest wait for NVML, which may take for ever with a device that has failed."""


def pynvml() -> Any:
    """Return the module pynvml, initialized; None if it or NVML cannot be had."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def look(
    uuids: Collection[int], nvml: Callable[[], Any] = pynvml, limit_s: float = LIMIT_S
) -> Mapping[int, Gpu]:
    """Return the figures of GPUs, as `Look`; none if NVML cannot be had, or does not answer.

    Args:
        uuids: of the GPUs.
        nvml: imports and initializes the module pynvml.
        limit_s: the longest wait, in seconds.
    """
    found: dict[int, Gpu] = {}

    def ask() -> None:
        if (module := nvml()) is not None:
            found.update(figures(module, uuids))

    thread = short_thread("the look at GPUs", ask)
    if thread is None:
        return {}
    thread.join(limit_s)
    return {} if thread.is_alive() else found
