"""Checks of NVIDIA's GPUs, their driver and PyTorch for them. Pure.

They say nothing on a host without a driver, unless a model is to run on a GPU.
"""

import re
from collections.abc import Iterator
from typing import Final

from ringbatch.engine.doctor.case import Case, Topic
from ringbatch.engine.doctor.facts import Nvidia
from ringbatch.engine.doctor.findings import Finding, counted, sized
from ringbatch.shm.errors import how_to_install

LEAST_DRIVER: Final = {11: 450, 12: 525, 13: 580}
"""The oldest series of the driver for all programs of a CUDA release, by that release: NVIDIA's
table of minor version compatibility."""

_DRIVER: Final = Topic("gpu-driver", "CUDA is a part of it")
_DEVICES: Final = Topic("gpu-devices", "CUDA opens them by these files")
_MODES: Final = Topic("gpu-modes", "they decide what a worker sees, and how soon it starts")
_LOCKED: Final = Topic(
    "gpu-memory-lock", "a GPU reads requests out of shared memory that is locked for it, all of it"
)
_TORCH: Final = Topic("gpu-torch", "programs of PyTorch run with the CUDA that it brings")
_FIGURES: Final = Topic(
    "gpu-figures", "metrics, the page, status and top show utilization, memory and temperature"
)
_IN_CONTAINER: Final = (
    "start it with docker run --gpus all, or nvidia.com/gpu among the limits of the pod; the host "
    "needs nvidia-container-toolkit"
)
_ON_HOST: Final = "run nvidia-modprobe -u -c=0 as root, and nvidia-persistenced at boot"


def driver(case: Case) -> Iterator[Finding]:
    """Check that a driver is loaded."""
    wanted = _wanted(case)
    if not _concerns(case):
        return
    found = case.facts.nvidia
    if found is None:
        yield _DRIVER.unknown("NVIDIA's driver")
    elif found.version:
        yield _DRIVER.ok(f"NVIDIA's driver {found.version}")
    else:
        yield _DRIVER.error(
            f"a model is to run on {wanted[0]}, and no driver of NVIDIA's is loaded: there is no "
            "/proc/driver/nvidia/version",
            'install NVIDIA\'s driver on the host, or set device = "cpu"',
        )


def devices(case: Case) -> Iterator[Finding]:
    """Check that the files of the devices are there, and that this user can open them."""
    found = case.facts.nvidia
    if not _concerns(case) or found is None or not found.version:
        return
    wanted, remedy = _wanted(case), _IN_CONTAINER if found.container else _ON_HOST
    numbered = [name for name in found.nodes if re.fullmatch(r"nvidia\d+", name)]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in found.nodes]
    shut = [f"/dev/{name}" for name, usable in found.nodes.items() if not usable]
    say = _DEVICES.error if wanted else _DEVICES.note
    # Windows' subsystem for Linux has the driver without a module, and other files.
    if found.loaded and not numbered:
        where = "in this container" if found.container else "on this host"
        yield say(f"the driver is loaded, and there is no /dev/nvidia0 {where}", remedy)
    elif found.loaded and missing:
        yield say(
            f"there is no /dev/{missing[0]}, which CUDA needs beside /dev/{numbered[0]}",
            f"{_ON_HOST}; then start the container again" if found.container else _ON_HOST,
        )
    elif shut:
        yield say(
            f"this user cannot open {', '.join(shut)} to read and write",
            "allow it: DeviceAllow= of the unit, as systemd/README.md says, the device's group, or "
            "--device of the container",
        )
    elif (short := _out_of_reach(case, found)) is not None:
        yield _DEVICES.error(*short)
    else:
        names = ", ".join(board.name for board in found.boards)
        yield _DEVICES.ok(names or f"{counted(len(numbered), 'device')} in /dev")


def _out_of_reach(case: Case, found: Nvidia) -> tuple[str, str] | None:
    """Return which configured device is not there and the remedy; None if all are, or who knows."""
    highest = max((int(name.partition(":")[2]) for name in _wanted(case)), default=-1)
    divided = any(board.mig for board in found.boards)
    visible = case.facts.environment.get("CUDA_VISIBLE_DEVICES")
    if divided:
        count, why = 1, "MIG is on, and a process sees one instance"
    elif visible is not None:
        count = len([part for part in visible.split(",") if part.strip()])
        why = f"CUDA_VISIBLE_DEVICES is {visible!r}"
    elif found.boards:
        count, why = len(found.boards), f"the driver has {counted(len(found.boards), 'device')}"
    else:
        return None
    if highest < count:
        return None
    right = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0" if count else "cpu"
    return (
        f"a model is to run on cuda:{highest}, but {why}",
        f"set device and devices to {right}, or let the engine see more devices",
    )


def modes(case: Case) -> Iterator[Finding]:
    """Check MIG and persistence mode."""
    found = case.facts.nvidia
    if not _concerns(case) or found is None or not found.boards:
        return
    divided = [board.name for board in found.boards if board.mig]
    loose = [board.name for board in found.boards if board.persistence is False]
    if divided:
        yield _MODES.note(
            f"MIG is on: {', '.join(divided)}",
            "give the engine the UUID of its instance in CUDA_VISIBLE_DEVICES; nvidia-smi -L lists "
            "them",
            "a process sees one instance, and it is cuda:0; NVML tells no utilization of it",
        )
    if loose:
        yield _MODES.note(
            f"persistence mode is off: {', '.join(loose)}",
            "start nvidia-persistenced at boot, or nvidia-smi -pm 1",
            "the driver lets go of a device that nobody uses, and the next start waits for it",
        )
    if not divided and not loose:
        yield _MODES.ok("MIG is off, and no device is let go")


def memory_lock(case: Case) -> Iterator[Finding]:
    """Check that the segment can be locked in memory."""
    found, memory = case.facts.nvidia, case.facts.memory
    if not _concerns(case) or found is None or not found.version:
        return
    size, group = case.needs.segment_bytes, case.facts.group
    left = [] if memory is None else [memory.available_bytes]
    left += [] if group is None or group.memory is None else [group.memory.left]
    if _wanted(case) and left and min(left) < size:
        yield _LOCKED.warning(
            f"{sized(size)} of requests' memory are locked for a GPU, and {sized(min(left))} of "
            "memory are left",
            "set lane_bytes lower, or give the host or the container more memory",
        )
        return
    limit = "unlimited" if found.memory_lock is None else sized(found.memory_lock)
    yield _LOCKED.ok(f"ulimit -l is {limit}; the driver locks memory for CUDA without counting it")


def torch(case: Case) -> Iterator[Finding]:
    """Check that PyTorch is built with CUDA, and that the driver is new enough for it."""
    found = case.facts.nvidia
    if not _concerns(case) or found is None or found.torch is None:
        return
    own = found.torch
    name = f"torch {own.version}"
    say = _TORCH.error if _wanted(case, "torch") else _TORCH.note
    if not own.cuda:
        yield say(
            f"{name} is built without CUDA",
            "install a build with it: pip install torch --index-url "
            "https://download.pytorch.org/whl/cu128",
        )
        return
    series, least = _major(found.version), LEAST_DRIVER.get(_major(own.cuda))
    if found.version and least is not None and series < least:
        yield say(
            f"{name} is built with CUDA {own.cuda}, which needs the driver {least} or newer, and "
            f"{found.version} is loaded",
            f"update the driver, or install torch for CUDA {_fitting(series)}",
        )
    else:
        yield _TORCH.ok(f"{name}, built with CUDA {own.cuda}")


def figures(case: Case) -> Iterator[Finding]:
    """Check that figures of GPUs can be had."""
    found = case.facts.nvidia
    if not _concerns(case) or found is None or not found.version:
        return
    if not found.package:
        yield _FIGURES.note(found.nvml, how_to_install("gpu"))
    elif found.nvml:
        yield _FIGURES.note(
            f"NVML cannot be asked: {found.nvml}",
            "give the container NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            if found.container
            else "see whether nvidia-smi works; a device that has failed needs a reset",
        )
    else:
        yield _FIGURES.ok(f"NVML tells of {counted(len(found.boards), 'device')}")


def _concerns(case: Case) -> bool:
    """Return whether there is a driver, or a model wants one; AMD's GPUs are called cuda too."""
    found = case.facts.nvidia
    if found is None:
        return bool(_wanted(case))
    rocm = found.torch is not None and found.torch.rocm
    return not rocm and bool(found.version or _wanted(case))


def _wanted(case: Case, platform: str = "") -> list[str]:
    """Return the CUDA devices of this host that models are to run on."""
    return [
        name
        for model in case.config.models
        if not (model.in_ray and all(model.in_ray)) and platform in ("", model.platform)
        for name in (model.devices or (model.device,))
        if name.startswith("cuda:")
    ]


def _major(version: str) -> int:
    return int(version.partition(".")[0] or 0)


def _fitting(series: int) -> str:
    """Return the newest CUDA release that a series of the driver can run."""
    fit = [cuda for cuda, least in LEAST_DRIVER.items() if least <= series]
    return str(max(fit)) if fit else f"{min(LEAST_DRIVER)} or older"


CHECKS: Final = (driver, devices, modes, memory_lock, torch, figures)
