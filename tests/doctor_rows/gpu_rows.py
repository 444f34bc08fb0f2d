"""Rows of checks of GPUs, their driver, and PyTorch for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from doctor_rows.hosts import (
    ERROR,
    GIB,
    MIB,
    NOTE,
    NVIDIA,
    OK,
    WARNING,
    Row,
    config,
    room,
    row,
)
from ringbatch.engine.config.settings import Config
from ringbatch.engine.doctor import gpu_checks
from ringbatch.engine.doctor.case import Check
from ringbatch.engine.doctor.facts import Board, ControlGroup, Memory, Nvidia, Torch
from ringbatch.engine.doctor.findings import Level

NONE: Final = Nvidia()
TORCH: Final = Torch(version="2.11.0", cuda="13.0")
H100: Final = Board(name="NVIDIA H100", persistence=True)


def on(*names: str, path: str = "m.pt2", **model: Any) -> Config:
    """A model with a worker on each device."""
    return config(path=Path(path), devices=names, workers=len(names), **model)


WANTED: Final = on("cuda:0")
SECOND: Final = on("cuda:0", "cuda:1")


def of(check: Check, level: Level, words: str, do: str, known: Nvidia | None, **more: Any) -> Row:
    more.setdefault("configured", WANTED)
    return row(check, level, words, do, nvidia=known, **more)


def but(**changes: Any) -> Nvidia:
    return replace(NVIDIA, **changes)


def without(*names: str) -> dict[str, bool]:
    return {name: True for name in NVIDIA.nodes if name not in names}


GPU_ROWS: Final = (
    of(gpu_checks.driver, NOTE, "NVIDIA's driver cannot be known", "another user", None),
    of(gpu_checks.driver, ERROR, "no driver of NVIDIA's is loaded", "install NVIDIA's", NONE),
    of(
        gpu_checks.driver,
        ERROR,
        "to run on cuda:1, and no driver",
        "cpu",
        NONE,
        configured=on("cuda:1"),
    ),
    of(gpu_checks.driver, OK, "driver 580.65.06", "", NVIDIA),
    of(gpu_checks.driver, OK, "driver 570.1", "", but(driver="", loaded="570.1")),
    of(gpu_checks.devices, OK, "NVIDIA H100", "", NVIDIA),
    of(gpu_checks.devices, OK, "1 device in /dev", "", but(boards=())),
    of(
        gpu_checks.devices,
        ERROR,
        "there is no /dev/nvidia0 in this container",
        "docker run --gpus all",
        but(nodes={}, boards=(), nvml="x", container=True),
    ),
    of(
        gpu_checks.devices,
        ERROR,
        "there is no /dev/nvidia0 on this host",
        "nvidia-modprobe -u -c=0",
        but(nodes={"nvidiactl": True}),
    ),
    of(
        gpu_checks.devices,
        NOTE,
        "there is no /dev/nvidia0 in this container",
        "nvidia-container-toolkit",
        but(nodes={}, container=True),
        configured=config(),
    ),
    of(
        gpu_checks.devices,
        ERROR,
        "no /dev/nvidia-uvm, which CUDA needs beside /dev/nvidia0",
        "then start the container again",
        but(nodes=without("nvidia-uvm"), container=True),
    ),
    of(
        gpu_checks.devices,
        ERROR,
        "there is no /dev/nvidiactl",
        "nvidia-modprobe",
        but(nodes=without("nvidiactl")),
    ),
    of(
        gpu_checks.devices,
        ERROR,
        "cannot open /dev/nvidia0, /dev/nvidia-uvm to read",
        "DeviceAllow=",
        but(nodes={"nvidia0": False, "nvidiactl": True, "nvidia-uvm": False}),
    ),
    of(
        gpu_checks.devices,
        OK,
        "NVIDIA H100",
        "",
        but(loaded="", nodes={}),  # Windows' subsystem for Linux
    ),
    of(
        gpu_checks.devices,
        ERROR,
        "cuda:1, but the driver has 1 device",
        "set device and devices to cuda:0,",
        NVIDIA,
        configured=SECOND,
    ),
    of(
        gpu_checks.devices,
        ERROR,
        "cuda:4, but the driver has 2 devices",
        "to cuda:0 to cuda:1",
        but(boards=(H100, H100)),
        configured=on("cuda:4"),
    ),
    of(
        gpu_checks.devices,
        ERROR,
        "cuda:1, but CUDA_VISIBLE_DEVICES is '1'",
        "to cuda:0,",
        but(boards=(H100, H100)),
        configured=SECOND,
        environment={"CUDA_VISIBLE_DEVICES": "1"},
    ),
    of(
        gpu_checks.devices,
        ERROR,
        "cuda:0, but CUDA_VISIBLE_DEVICES is ''",
        "to cpu,",
        NVIDIA,
        environment={"CUDA_VISIBLE_DEVICES": ""},
    ),
    of(
        gpu_checks.devices,
        ERROR,
        "cuda:1, but MIG is on",
        "to cuda:0,",
        but(boards=(replace(H100, mig=True), H100)),
        configured=SECOND,
    ),
    of(
        gpu_checks.devices,
        OK,
        "NVIDIA H100, NVIDIA H100",
        "",
        but(boards=(H100, H100)),
        configured=SECOND,
        environment={"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"},
    ),
    of(gpu_checks.modes, OK, "MIG is off", "", NVIDIA),
    of(
        gpu_checks.modes,
        NOTE,
        "MIG is on: NVIDIA H100",
        "nvidia-smi -L",
        but(boards=(replace(H100, mig=True),)),
    ),
    of(
        gpu_checks.modes,
        NOTE,
        "persistence mode is off: NVIDIA A",
        "nvidia-smi -pm 1",
        but(boards=(Board(name="NVIDIA A", persistence=False), H100)),
    ),
    of(gpu_checks.modes, OK, "no device is let go", "", but(boards=(Board(name="x"),))),
    of(gpu_checks.memory_lock, OK, "ulimit -l is 8.0 MiB", "", NVIDIA),
    of(gpu_checks.memory_lock, OK, "ulimit -l is unlimited", "", but(memory_lock=None)),
    of(
        gpu_checks.memory_lock,
        WARNING,
        "and 1.0 MiB of memory are left",
        "set lane_bytes lower",
        NVIDIA,
        memory=Memory(available_bytes=MIB, swap_used_bytes=0, overcommit=0),
    ),
    of(
        gpu_checks.memory_lock,
        WARNING,
        "and 2.0 MiB of memory are left",
        "the container more memory",
        NVIDIA,
        group=ControlGroup(memory=room(GIB, 2 * MIB)),
    ),
    of(
        gpu_checks.memory_lock,
        OK,
        "ulimit -l",
        "",
        NVIDIA,
        group=ControlGroup(memory=room(GIB, 2 * MIB)),
        configured=config(),
    ),
    of(gpu_checks.torch, OK, "torch 2.11.0, built with CUDA 13.0", "", NVIDIA),
    of(
        gpu_checks.torch,
        ERROR,
        "torch 2.11.0 is built without CUDA",
        "https://download.pytorch.org",
        but(torch=replace(TORCH, cuda="")),
    ),
    of(
        gpu_checks.torch,
        NOTE,
        "torch 2.11.0 is built without CUDA",
        "https://download.pytorch.org",
        but(torch=replace(TORCH, cuda="")),
        configured=on("cuda:0", path="m.onnx"),
    ),
    of(
        gpu_checks.torch,
        ERROR,
        "CUDA 13.0, which needs the driver 580 or newer, and 570.99 is loaded",
        "or install torch for CUDA 12",
        but(driver="570.99"),
    ),
    of(
        gpu_checks.torch,
        ERROR,
        "CUDA 12.8, which needs the driver 525 or newer",
        "for CUDA 11",
        but(driver="524.9", torch=replace(TORCH, cuda="12.8")),
    ),
    of(gpu_checks.torch, ERROR, "needs the driver 580", "11 or older", but(driver="390.1")),
    of(gpu_checks.torch, OK, "CUDA 99.0", "", but(torch=replace(TORCH, cuda="99.0"))),
    of(gpu_checks.figures, OK, "NVML tells of 1 device", "", NVIDIA),
    of(
        gpu_checks.figures,
        NOTE,
        "the package nvidia-ml-py is not installed",
        "ringbatch[gpu]",
        but(driver="", boards=(), package=False, nvml="the package nvidia-ml-py is not installed"),
    ),
    of(
        gpu_checks.figures,
        NOTE,
        "NVML cannot be asked: NVML Shared Library Not Found",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        but(driver="", nvml="NVML Shared Library Not Found", container=True),
    ),
    of(
        gpu_checks.figures,
        NOTE,
        "NVML cannot be asked: no answer in 5 s",
        "nvidia-smi",
        but(driver="", nvml="no answer in 5 s"),
    ),
)
