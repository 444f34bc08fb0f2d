"""GPUs of an engine's workers, as NVML sees them at one instant.

NVML is a library of NVIDIA's driver. Only processes that show the figures ask it, because it may
take for ever with a device that has failed.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from ringbatch.shm import device_notes
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.memory_order import load_acquire
from ringbatch.shm.segment import Segment

T = TypeVar("T")

SLOWED: Final = {
    "sw_power_cap": "nvmlClocksThrottleReasonSwPowerCap",
    "hw_slowdown": "nvmlClocksThrottleReasonHwSlowdown",
    "sync_boost": "nvmlClocksThrottleReasonSyncBoost",
    "sw_thermal_slowdown": "nvmlClocksThrottleReasonSwThermalSlowdown",
    "hw_thermal_slowdown": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "hw_power_brake_slowdown": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
}
"""Why a device may run below the clocks that it was given, by the words of nvidia-smi: the names
of NVML's bits. Idleness and clocks that somebody has set are none of these."""
_KINDS: Final = ("GPU", "MIG")
"""Prefixes of UUIDs. A worker publishes the number alone, which may belong to either kind."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Figures of a GPU or a MIG instance; None for what NVML does not tell of it.

    Attributes:
        uuid: as nvidia-smi spells it.
        busy: share of NVML's last period, up to a second, in which it ran anything.
        used_bytes: of its memory, by all processes.
        total_bytes: of its memory.
        temperature_c: of the board, in degrees Celsius.
        slowed: why the board runs below its clocks, by `SLOWED`; none if it does not.
    """

    uuid: str
    busy: float | None = None
    used_bytes: int | None = None
    total_bytes: int | None = None
    temperature_c: int | None = None
    slowed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class UsedGpu:
    """A GPU, and the numbers of the workers that use it."""

    gpu: Gpu
    workers: tuple[int, ...]


Look = Callable[[Collection[int]], Mapping[int, Gpu]]
"""Figures of GPUs by their UUIDs; those that are not known are left out."""


def unseen(uuids: Collection[int]) -> Mapping[int, Gpu]:
    """Return no figures, as `Look`."""
    del uuids
    return {}


def used_gpus(segment: Segment, look: Look) -> tuple[UsedGpu, ...]:
    """Return the GPUs that workers use, in the order of their workers.

    Args:
        segment: attached, with its models read.
        look: reads the figures; it is not called if no worker uses a GPU.
    """
    workers: dict[int, list[int]] = {}
    for number in sorted(number for spec in segment.models for number in spec.workers):
        # The note of a worker that has ended stays.
        state = load_acquire(segment.words, segment.layout.worker(number) + WorkerWords.STATE)
        if state != WorkerState.ABSENT and (uuid := device_notes.read_uuid(segment, number)):
            workers.setdefault(uuid, []).append(number)
    if not workers:
        return ()
    found = look(workers)
    return tuple(
        UsedGpu(found[uuid], tuple(numbers)) for uuid, numbers in workers.items() if uuid in found
    )


def figures(nvml: Any, uuids: Collection[int]) -> dict[int, Gpu]:
    """Ask NVML, some 100 µs for each device; those that it does not know are left out.

    Args:
        nvml: the module pynvml, initialized.
        uuids: of devices.
    """
    found = {uuid: _gpu(nvml, uuid) for uuid in uuids}
    return {uuid: gpu for uuid, gpu in found.items() if gpu is not None}


def _gpu(nvml: Any, uuid: int) -> Gpu | None:
    texts = [f"{kind}-{UUID(int=uuid)}" for kind in _KINDS]
    handles = [_known(nvml, partial(nvml.nvmlDeviceGetHandleByUUID, text)) for text in texts]
    known = [pair for pair in zip(texts, handles, strict=True) if pair[1] is not None]
    if not known:
        return None
    ((text, handle),) = known
    board = handle
    if text == texts[1]:
        board = _known(nvml, lambda: nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))
    busy = _known(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
    memory = _known(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return Gpu(
        text,
        busy,
        None if memory is None else memory.used,
        None if memory is None else memory.total,
        _known(nvml, lambda: nvml.nvmlDeviceGetTemperature(board, nvml.NVML_TEMPERATURE_GPU)),
        _known(nvml, lambda: _slowed(nvml, board)),
    )


def _slowed(nvml: Any, board: Any) -> tuple[str, ...]:
    bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(board)
    return tuple(word for word, name in SLOWED.items() if bits & getattr(nvml, name))


def _known(nvml: Any, ask: Callable[[], T]) -> T | None:
    """Return what NVML says, or None: not every device and driver has every figure."""
    try:
        return ask()
    except nvml.NVMLError:
        return None
