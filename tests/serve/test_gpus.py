"""GPUs of a served engine, with a driver and an NVML that are played: from the worker to the eye.

The driver is a library in C under CUDA's name, the module pynvml a file in front of the others.
"""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from played_nvml import UUID_A, spelled
from serve.browser import Browser
from serve.server import COMMAND, Server, Start
from tiers import exhaustive

WaitUntil = Callable[..., object]
DRIVER: Final = """
int cuInit(unsigned flags) { return flags; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    static const unsigned char own[16] = {%s};
    for (int i = 0; i < 16; i++) uuid[i] = own[i];
    return device;
}
"""
NVML: Final = """
from played_nvml import Board, NVMLError, PlayedNvml
played = PlayedNvml({"%s": Board(bits=4)})
def __getattr__(name):
    return getattr(played, name)
"""
MODEL: Final = """
def load(device):
    return {"cuda:0": 10, "cpu": 20}[device]
def predict(instances):
    return instances
"""
GPU: Final = spelled(UUID_A)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both, which processes of the test look into first."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    folder = tmp_path / "played"
    folder.mkdir()
    numbers = ", ".join(map(str, UUID_A.to_bytes(16, "big")))
    (folder / "cuda.c").write_text(DRIVER % numbers)
    (folder / "pynvml.py").write_text(NVML % GPU)
    library = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-o", library, folder / "cuda.c"], check=True)
    harness = Path(__file__).resolve().parents[1] / "harness"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(harness)]))
    return folder


def metrics(server: Server) -> list[str]:
    address = f"http://127.0.0.1:{server.control_port}/metrics"
    with urllib.request.urlopen(address, timeout=60) as answer:
        text: str = answer.read().decode()
    return [line for line in text.splitlines() if "gpu" in line and line[0] != "#"]


def command(server: Server, *words: str) -> str:
    argv = [*COMMAND, *words, str(server.pid)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def page_state(server: Server) -> str:
    """Return the first state that the page is told of GPUs."""
    address = f"http://127.0.0.1:{server.control_port}/live"
    with urllib.request.urlopen(address, timeout=60) as events:
        for line in events:
            if line.startswith(b"data: ") and b'"gpus":[{' in line:
                return json.dumps(json.loads(line[6:])["gpus"])
    raise AssertionError("the stream ended")


def test_the_device_of_a_worker_is_shown_wherever_somebody_looks(
    start: Start, tmp_path: Path, played: Path, wait_until: WaitUntil
) -> None:
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    on_gpu = {"path": str(model), "workers": 3, "devices": ["cuda:0", "cpu", "cuda:0"]}
    server = start({"m": on_gpu}, control_port=0)
    wait_until(lambda: metrics(server), "NVML was asked")
    lines = metrics(server)
    assert f'ringbatch_gpu_utilization{{gpu_uuid="{GPU}"}} 0.87' in lines
    assert f'ringbatch_gpu_throttled{{gpu_uuid="{GPU}",reason="sw_power_cap"}} 1' in lines
    users = [line for line in lines if line.startswith("ringbatch_worker_gpu")]
    assert [line.partition('worker="')[2][0] for line in users] == ["0", "2"]
    status = command(server, "status")
    assert f"GPU {GPU} of workers 0, 2: busy 87%, memory 12.0 GiB of 80.0 GiB, 61 °C" in status
    assert GPU in command(server, "top", "--once")
    assert GPU in page_state(server)
    assert server.stop() == 0
    assert "GPU" not in server.stderr


@exhaustive
def test_the_page_has_a_row_for_each_gpu(
    start: Start, tmp_path: Path, played: Path, wait_until: WaitUntil
) -> None:
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    server = start({"m": {"path": str(model), "device": "cuda:0"}}, control_port=0)
    browser = Browser(tmp_path)
    try:
        browser.open(f"http://127.0.0.1:{server.control_port}/")
        row = "document.querySelector('#gpus tbody tr')"
        wait_until(lambda: browser.value(f"!!{row}"), "a GPU is there")
        cells = browser.value(f"[...{row}.cells].map((cell) => cell.textContent)")
        shown = [" ".join(cell.split()) for cell in cells]
        assert shown == [GPU, "0", "87 %", "12 GiB of 80 GiB", "61 °C", "sw_power_cap"]
        assert browser.value("document.getElementById('gpu-card').hidden") is False
        browser.look_like(1280, 900, "light")
        around = "document.querySelector('#gpu-card .scroll')"
        assert browser.value(f"{around}.scrollWidth <= {around}.clientWidth")
        assert browser.complaints == []
    finally:
        browser.close()
    assert server.stop() == 0


@exhaustive
def test_without_a_device_no_process_loads_nvml(
    start: Start, tmp_path: Path, played: Path, wait_until: WaitUntil
) -> None:
    (played / "pynvml.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')\n{NVML % GPU}")
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    server = start({"m": {"path": str(model)}}, control_port=0)
    assert metrics(server) == []
    assert "GPU" not in command(server, "status") + command(server, "top", "--once")
    assert not (tmp_path / "loaded").exists()
    assert server.stop() == 0
