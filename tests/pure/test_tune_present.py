"""Present settings as `ringbatch tune` reads them."""

from pathlib import Path

import pytest

from ringbatch.engine.command.cli import main
from ringbatch.engine.command.tune import present_in

MODEL = '[models.m]\npath = "m.onnx"\n'


def read(folder: Path, text: str, model: str | None = None) -> dict[str, int | float | str]:
    (folder / "m.onnx").touch()
    file = folder / "ringbatch.toml"
    file.write_text(text)
    return present_in(file, model)


def test_defaults_are_settings_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    usual = {"frontends": 2, "max_batch_size": 32, "policy": "eager", "workers": 1, "threads": 8}
    assert read(tmp_path, MODEL) == usual
    assert read(tmp_path, MODEL + "workers = 3\n") == {**usual, "workers": 3, "threads": 2}
    assert read(tmp_path, MODEL + "threads = 5\n") == {**usual, "threads": 5}


def test_a_wait_is_read_if_it_has_an_effect(tmp_path: Path) -> None:
    found = read(tmp_path, MODEL + 'policy = "fixed"\nmax_latency_ms = 7\n')
    assert (found["policy"], found["max_latency_ms"]) == ("fixed", 7)
    assert "max_latency_ms" not in read(tmp_path, MODEL)


def test_a_setting_without_one_value_is_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, MODEL + "workers = [1, 2]\n")
    assert found.keys() & {"workers", "threads"} == set()
    two = MODEL + '[models.n]\npath = "m.onnx"\nmax_batch_size = 4\n'
    assert read(tmp_path, two) == {"frontends": 2}
    found = read(tmp_path, two, "n")
    assert found["max_batch_size"] == 4
    # Which threads a worker has by default depends on the other model's workers.
    assert found.keys() & {"workers", "threads"} == set()


@pytest.mark.parametrize("text", ["not TOML", "[models.m]\nworkers = 1\n"])
def test_a_file_that_is_no_configuration_sets_nothing(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == {}
    assert present_in(tmp_path / "nothing.toml", None) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MODEL, '--model: found "n", but {file} has: m'),
        ("[models.m]\nworkers = 1\n", "{file}: [models.m] path: is missing"),
    ],
)
def test_a_wrong_model_or_file_is_named_before_a_busy_host(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    words: str,
) -> None:
    monkeypatch.setattr("ringbatch.bench.command.main.others", lambda: (0.4, []))
    (tmp_path / "m.onnx").touch()
    file = tmp_path / "ringbatch.toml"
    file.write_text(text)
    assert main(["tune", "--config", str(file), "--model", "n"]) == 2
    assert words.format(file=file) in capsys.readouterr().err
