"""Reading NVIDIA's driver, its devices, and what PyTorch is built with. CUDA is not started.

torch is not imported: that takes seconds, and its files tell the same.
"""

import importlib
import os
import re
import resource
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeVar

from ringbatch.engine.doctor.facts import Board, Nvidia, Torch
from ringbatch.shm.cpus import text_of
from ringbatch.shm.host.background import short_thread

T = TypeVar("T")

LIMIT_S: Final = 5.0
"""The longest wait for NVML, which may take for ever with a device that has failed."""
_DRIVER: Final = re.compile(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", re.MULTILINE)
_NODE: Final = re.compile(r"nvidia(\d+|ctl|-uvm)")
_CONTAINERS: Final = (".dockerenv", "run/.containerenv")
"""Files that Docker and Podman put into each."""
_BUILT: Final = r"^%s\s*(?::[^=]*)?=\s*'([^']*)'"
"""A line of torch/version.py."""


def nvidia(
    root: Path = Path("/"),
    nvml: Callable[[], Any] = lambda: importlib.import_module("pynvml"),
    limit_s: float = LIMIT_S,
) -> Nvidia:
    """Return what is known of NVIDIA's driver and devices.

    Args:
        root: where ``proc`` and ``dev`` are.
        nvml: imports the module pynvml.
        limit_s: the longest wait for NVML, in seconds.
    """
    loaded = _DRIVER.search(text_of(root / "proc/driver/nvidia/version"))
    nodes = {
        entry.name: os.access(entry, os.R_OK | os.W_OK)
        for entry in sorted((root / "dev").glob("nvidia*"))
        if _NODE.fullmatch(entry.name)
    }
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    driver, boards, package, why = _asked(nvml, limit_s)
    return Nvidia(
        loaded="" if loaded is None else loaded[1],
        driver=driver,
        nodes=nodes,
        boards=boards,
        nvml=why,
        package=package,
        container=any((root / name).exists() for name in _CONTAINERS)
        or "KUBERNETES_SERVICE_HOST" in os.environ,
        memory_lock=None if limit == resource.RLIM_INFINITY else limit,
        torch=installed_torch(),
    )


def _asked(nvml: Callable[[], Any], limit_s: float) -> tuple[str, tuple[Board, ...], bool, str]:
    """Return the driver, the boards, whether the package is there, and why NVML tells nothing."""
    try:
        module = nvml()
    except ImportError:
        return "", (), False, "the package nvidia-ml-py is not installed"
    found: list[tuple[str, tuple[Board, ...], str]] = []

    def ask() -> None:
        try:
            module.nvmlInit()
            handles = map(module.nvmlDeviceGetHandleByIndex, range(module.nvmlDeviceGetCount()))
            boards = tuple(_board(module, handle) for handle in handles)
            found.append((module.nvmlSystemGetDriverVersion(), boards, ""))
        except module.NVMLError as error:
            found.append(("", (), str(error)))

    thread = short_thread("NVML", ask)
    if thread is not None:
        thread.join(limit_s)
    driver, boards, why = found[0] if found else ("", (), f"no answer in {limit_s:g} s")
    return driver, boards, True, why


def _board(module: Any, handle: Any) -> Board:
    mig = _known(module, lambda: module.nvmlDeviceGetMigMode(handle)[0])
    persistence = _known(module, lambda: module.nvmlDeviceGetPersistenceMode(handle))
    return Board(
        name=_known(module, lambda: module.nvmlDeviceGetName(handle)) or "a GPU without a name",
        # Boards that cannot be divided do not support the question.
        mig=bool(mig),
        persistence=None if persistence is None else bool(persistence),
    )


def _known(module: Any, ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except module.NVMLError:
        return None


def installed_torch(
    find: Callable[[str], metadata.Distribution] = metadata.distribution,
) -> Torch | None:
    """Return what PyTorch is built with; None if it is not installed.

    Args:
        find: returns an installed distribution.
    """
    try:
        own = find("torch")
    except metadata.PackageNotFoundError:
        return None
    built = text_of(Path(str(own.locate_file("torch/version.py"))))
    cuda, rocm = (re.search(_BUILT % name, built, re.MULTILINE) for name in ("cuda", "hip"))
    return Torch(version=own.version, cuda="" if cuda is None else cuda[1], rocm=rocm is not None)
