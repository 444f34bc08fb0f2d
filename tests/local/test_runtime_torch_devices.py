"""PyTorch's devices: those that are not there, that lack memory, and that have failed."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import ROWS, expected

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_models  # noqa: E402
from torch_models import (  # noqa: E402
    SIGNATURE,
    Calling,
    Linear,
    exported,
    opened,
    refused,
    scripted,
)

ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

threads_as_before = torch_models.threads_as_before


def test_a_torch_without_cuda_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert refused(tmp_path, exported(Linear(), "x: batch 3"), device="cuda:0") == (
        f'device is "cuda:0", but the torch that is installed, {torch.__version__}, has no CUDA; '
        'install one that has, or set device = "cpu"'
    )


def test_a_device_that_does_not_exist_is_named_beside_those_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = exported(Linear(), "x: batch 3")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert refused(tmp_path, data, device="cuda:0") == (
        'device is "cuda:0", but torch finds no CUDA device; nvidia-smi says what there is'
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert refused(tmp_path, data, device="cuda:2") == (
        'device is "cuda:2", but there is only cuda:0, cuda:1'
    )


@ON_CUDA
@pytest.mark.parametrize("kind", ["program", "script"])
def test_a_model_runs_on_a_cuda_device(tmp_path: Path, kind: str) -> None:
    data, more = (
        (exported(Linear(), "x: batch 3"), {})
        if kind == "program"
        else (scripted(Linear()), SIGNATURE)
    )
    model = opened(tmp_path, data, device="cuda:0", **more)
    for rows in (1, 7, 2):
        answers = model.predict(ROWS[:rows])
        np.testing.assert_allclose(answers, expected(ROWS[:rows]), rtol=1e-3)


@ON_CUDA
def test_a_program_with_devices_in_it_moves_as_a_whole(tmp_path: Path) -> None:
    module = Calling(lambda x: x + torch.arange(3, device=x.device) + torch.ones(3))
    model = opened(tmp_path, exported(module, "x: batch 3"), device="cuda:0")
    assert model.predict(np.zeros((2, 3), "f4")).tolist() == [[1, 2, 3]] * 2


@ON_CUDA
def test_too_little_memory_on_a_cuda_device_leaves_room_for_less(tmp_path: Path) -> None:
    module = Calling(lambda x: x + torch.ones(x.shape[0] * 2**36, device=x.device)[: x.shape[0]])
    model = opened(tmp_path, exported(module, "x: batch"), device="cuda:0")
    with pytest.raises(MemoryError, match="CUDA out of memory"):
        model.predict(np.ones(32, "f4"))
    before = torch.cuda.memory_allocated()
    with pytest.raises(MemoryError):
        model.predict(np.ones(32, "f4"))
    assert torch.cuda.memory_allocated() == before


@ON_CUDA
def test_a_device_that_has_failed_for_good_ends_the_worker(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(exported(Calling(lambda x: torch.ones(3)[x]), "x int64: batch"))
    program = (
        "import os; import numpy as np; from pathlib import Path\n"
        "from ringbatch.engine.models.model import RestartWorker, Options\n"
        "from ringbatch.engine.runtimes.opening import open_model\n"
        "options = Options(max_batch_size=1, threads=1, device='cuda:0')\n"
        f"model = open_model('torch', Path({str(path)!r}), options)\n"
        "try: model.predict(np.array([7]))\n"
        "except RestartWorker as lost: os.write(1, str(lost).encode()); os._exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert "CUDA error" in done.stdout


def test_a_failed_device_is_distinguished_from_a_failed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = opened(tmp_path, exported(Linear(), "x: batch 3"))

    def fail(*_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(model.predict, "_run", fail)
    monkeypatch.setattr(model.predict, "_tensor", lambda *_: None)
    monkeypatch.setattr(model.predict, "_on_gpu", True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with pytest.raises(RuntimeError, match="illegal"):
        model.predict(ROWS)
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    with (
        caplog.at_level(logging.CRITICAL, "ringbatch.worker"),
        pytest.raises(SystemExit, match="illegal"),
    ):
        model.predict(ROWS)
    assert "the worker ends" in caplog.text
