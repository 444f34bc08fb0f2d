"""Doctor's facts about NVIDIA's driver, on made-up hosts with a simulated NVML."""

import os
import resource
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pytest
from played_nvml import UUID_A, UUID_B, Board, PlayedNvml, spelled

from ringbatch.engine.doctor import facts
from ringbatch.engine.doctor.facts import Nvidia, Torch
from ringbatch.engine.doctor.nvidia import installed_torch, nvidia

VERSION: Final = {
    "closed": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC"
    " 2024\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
    "open": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  "
    "(dvs-builder@U22-I3)  Sun Jul 27 07:12:37 UTC 2025\n",
}
H100: Final = "NVIDIA H100 80GB HBM3"


def missing() -> Any:
    raise ImportError("No module named 'pynvml'")


def host(root: Path, version: str = "", *nodes: str) -> Path:
    (root / "dev").mkdir()
    for node in nodes:
        (root / "dev" / node).touch()
    if version:
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text(version)
    return root


def read(root: Path, nvml: Callable[[], Any] = missing) -> Nvidia:
    return nvidia(root, nvml, 60.0)


def test_of_a_host_without_a_driver_there_is_nothing(tmp_path: Path) -> None:
    found = read(host(tmp_path))
    assert (found.loaded, found.driver, found.version, found.boards) == ("", "", "", ())
    assert (found.nodes, found.package, found.container) == ({}, False, False)
    assert found.nvml == "the package nvidia-ml-py is not installed"


@pytest.mark.parametrize(("kind", "version"), [("closed", "535.183.01"), ("open", "580.65.06")])
def test_the_loaded_driver_and_its_devices_are_found(
    tmp_path: Path, kind: str, version: str
) -> None:
    nodes = ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps")
    found = read(host(tmp_path, VERSION[kind], *nodes))
    assert (found.loaded, found.version) == (version, version)
    assert {*found.nodes} == {"nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm"}
    assert all(found.nodes.values())


def test_an_unreadable_device_node_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def access(path: Path, mode: int) -> bool:
        asked.append(mode)
        return path.name != "nvidia0"

    root = host(tmp_path, VERSION["open"], "nvidia0", "nvidiactl")
    monkeypatch.setattr(os, "access", access)
    assert read(root).nodes == {"nvidia0": False, "nvidiactl": True}
    assert {*asked} == {os.R_OK | os.W_OK}


def test_nvml_tells_of_each_board(tmp_path: Path) -> None:
    lacks = frozenset({"mig", "persistence", "name"})
    boards = {
        spelled(UUID_A): Board(mig=1, persistence=0),
        spelled(UUID_B): Board(lacks=lacks),
    }
    found = read(host(tmp_path), lambda: PlayedNvml(boards))
    assert found.boards == (
        facts.Board(name=H100, mig=True, persistence=False),
        facts.Board(name="a GPU without a name", mig=False, persistence=None),
    )
    assert (found.driver, found.version, found.nvml) == ("580.65.06", "580.65.06", "")
    assert found.package


def test_a_refusing_or_hanging_nvml_is_reported_and_nothing_waits(tmp_path: Path) -> None:
    root = host(tmp_path)
    found = read(root, lambda: PlayedNvml({}, refuses="Driver Not Loaded"))
    assert (found.driver, found.nvml, found.package) == ("", "Driver Not Loaded", True)
    hung = threading.Event()

    class Hangs(PlayedNvml):
        def nvmlInit(self) -> None:  # noqa: N802
            hung.wait(60)

    found = nvidia(root, lambda: Hangs({}), 0.01)
    hung.set()
    assert (found.driver, found.nvml) == ("", "no answer in 0.01 s")


@pytest.mark.parametrize("file", [".dockerenv", "run/.containerenv"])
def test_a_container_is_known_by_its_file(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert read(host(tmp_path)).container


def test_a_pod_is_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert read(host(tmp_path)).container


@pytest.mark.parametrize(("limit", "found"), [(resource.RLIM_INFINITY, None), (8 << 20, 8 << 20)])
def test_the_limit_of_locked_memory_is_the_soft_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, found: int | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, 1))
    assert read(host(tmp_path)).memory_lock == found


class Installed(metadata.Distribution):
    """torch in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def version(self) -> str:
        return "2.11.0"

    def read_text(self, filename: str) -> None:
        return None

    def locate_file(self, path: Any) -> Path:
        return self._folder / str(path)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (
            "cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n",
            Torch(version="2.11.0", cuda="12.8"),
        ),
        ("cuda = '13.0'\n", Torch(version="2.11.0", cuda="13.0")),
        ("cuda: Optional[str] = None\nhip = None\n", Torch(version="2.11.0", cuda="")),
        ("cuda = None\nhip: Optional[str] = '6.2'\n", Torch(version="2.11.0", cuda="", rocm=True)),
    ],
)
def test_torchs_build_is_read_from_its_file(tmp_path: Path, lines: str, found: Torch) -> None:
    (tmp_path / "torch").mkdir()
    head = "from typing import Optional\n\n__all__ = ['cuda', 'hip']\n__version__ = '2.11.0'\n"
    (tmp_path / "torch/version.py").write_text(head + lines)
    assert installed_torch(lambda _: Installed(tmp_path)) == found


def test_torch_may_be_missing() -> None:
    def find(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    assert installed_torch(find) is None


def test_the_installed_torch_says_the_same_of_itself() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    found = installed_torch()
    assert found is not None
    assert found.cuda == (torch.version.cuda or "")
