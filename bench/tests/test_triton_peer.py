"""Triton's model repository and command, with an environment that only looks like Triton's."""

import json
import re
from pathlib import Path

import pytest
from peers import servers
from peers.servers import PeerUnfit
from peers.triton import DecoupledTriton, Triton, TritonEnsemble


def triton_environment(monkeypatch: pytest.MonkeyPatch, folder: Path, *stubs: str) -> None:
    """Make a folder look like Triton's environment, of Python 3.99, with these stubs."""
    triton = folder / "packages" / "pytriton" / "tritonserver"
    found = {"version": "3.99", "packages": str(folder / "packages"), "libraries": "/lib399"}
    python = folder / "triton" / "bin" / "python"
    files = {
        **{triton / "python_backend_stubs" / v / "triton_python_backend_stub": v for v in stubs},
        triton / "backends" / "python" / "libtriton_python.so": "",
        python: f"#!/bin/sh\necho '{json.dumps(found)}'\n",
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True)
        file.write_text(text)
    python.chmod(0o755)
    monkeypatch.setattr(servers, "ENVIRONMENTS", folder)


def test_triton_gets_the_stub_of_its_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    triton_environment(monkeypatch, tmp_path, "3.8", "3.99")
    folder = tmp_path / "run"
    found = Triton("image", (3, 224, 224), (3,), queue_delay_us=7).command(folder)
    assert (folder / "backends/python/triton_python_backend_stub").read_text() == "3.99"
    assert (folder / "backends/python/libtriton_python.so").exists()
    assert (folder / "repository/image/1/model.py").exists()
    config = (folder / "repository/image/config.pbtxt").read_text()
    assert "dims: [3, 224, 224]" in config
    assert "max_queue_delay_microseconds: 7 " in config
    assert found.env["LD_LIBRARY_PATH"].split(":")[0] == "/lib399"
    assert found.env["PATH"].split(":")[0] == str(tmp_path / "triton" / "bin")


def test_an_ensemble_of_tritons_hands_each_step_the_results_of_the_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    triton_environment(monkeypatch, tmp_path, "3.99")
    folder = tmp_path / "run"
    steps = [Triton(name, (16,), (16,)) for name in ("one", "two", "three")]
    found = TritonEnsemble("all", steps).command(folder)
    assert found.ready_path == "/v2/models/all/ready"
    served = sorted(path.name for path in (folder / "repository").iterdir())
    assert served == ["all", "one", "three", "two"]
    assert not (folder / "repository/all/1/model.py").exists()
    config = (folder / "repository/all/config.pbtxt").read_text()
    maps = re.findall(r'put_map \{ key: "([xy])" value: "(\w+)" \}', config)
    assert [value for key, value in maps if key == "x"] == ["x", "after_one", "after_two"]
    assert [value for key, value in maps if key == "y"] == ["after_one", "after_two", "y"]


def test_triton_without_a_stub_for_its_python_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    triton_environment(monkeypatch, tmp_path, "3.8", "3.9")
    with pytest.raises(PeerUnfit, match=r"Python 3\.99, only for 3\.8, 3\.9"):
        Triton("image", (3,), (3,)).command(tmp_path / "run")


def test_a_decoupled_model_is_its_own_script_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    triton_environment(monkeypatch, tmp_path, "3.99")
    folder = tmp_path / "run"
    found = DecoupledTriton("loop", 7).command(folder)
    assert found.ready_path == "/v2/models/loop/ready"
    model = folder / "repository" / "loop"
    assert "decoupled: true" in (model / "config.pbtxt").read_text()
    assert 'key: "places" value: { string_value: "7" }' in (model / "config.pbtxt").read_text()
    script = servers.SERVICES / "triton_steps.py"
    assert (model / "1/model.py").read_text() == script.read_text()
