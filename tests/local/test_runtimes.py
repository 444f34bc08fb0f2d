"""The seam between model files and the worker: the same model in every kind of file is the same."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import EVERY, EVERY_FORMAT, LINEAR, ROWS, expected, installed, signature, written
from model_server import ModelServer, running

from ringbatch.engine.config.kinds import OF_DIRECTORIES, RUNTIMES
from ringbatch.engine.models.model import Model, Options
from ringbatch.engine.runtimes.opening import OPENERS, open_model
from ringbatch.engine.runtimes.texts.directory import READERS
from ringbatch.engine.worker.parity import ComparedBatch, batches, compared
from ringbatch.shm.errors import StartupError

OPTIONS = Options(max_batch_size=32, threads=1)
EVERY_SOURCE = pytest.mark.parametrize("runtime", [*EVERY.args[1], "http-v2", "http-v2-json"])
"""Models that another server runs are no files."""
PACKAGES = {
    "onnx": ("onnxruntime",),
    "sklearn": ("sklearn", "skops.io"),
    **{
        name: (name,) for name in ("xgboost", "lightgbm", "catboost", "openvino") if installed(name)
    },
}
"""Packages of each runtime beyond the engine's own."""


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    path = list(sys.path)
    yield
    sys.path[:] = path


def refusal(runtime: str, path: Path, options: Options = OPTIONS) -> str:
    """Return the line with which a file is refused, less the path with which it starts."""
    with pytest.raises(StartupError) as caught:
        open_model(runtime, path, options)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


@pytest.fixture(scope="module")
def model_server() -> Iterator[ModelServer]:
    with running() as server:
        yield server


@pytest.fixture
def opened(tmp_path: Path, model_server: ModelServer) -> Callable[[str], Model]:
    """The linear model as a runtime opens it; over V2, in JSON or not, where that is http."""
    model_server.reset()

    def opened(runtime: str) -> Model:
        name, _, protocol = runtime.partition("-")
        if name == "http":
            options = replace(OPTIONS, name="linear", protocol=protocol)
            return open_model(name, model_server.url, options)
        return open_model(runtime, written(tmp_path, runtime), OPTIONS)

    return opened


def test_every_runtime_that_can_be_configured_is_there_and_held_to_this() -> None:
    assert set(OPENERS) == set(RUNTIMES) == {*LINEAR, "generator", "http", "ray", "text"}


def test_settings_take_directories_for_the_runtimes_that_read_them() -> None:
    assert set(READERS) == OF_DIRECTORIES


def only(answers: Any) -> Any:
    """The array of the only output."""
    return answers["y"] if isinstance(answers, dict) else answers


@EVERY_SOURCE
def test_the_signature_is_known_before_the_model_is_loaded(
    opened: Callable[[str], Model], runtime: str
) -> None:
    model = opened(runtime)
    assert (model.inputs, model.outputs) == signature(runtime)


@EVERY_SOURCE
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_batch_of_any_size_gets_its_answers(
    opened: Callable[[str], Model], runtime: str, rows: int
) -> None:
    model = opened(runtime)
    model.load()
    answers = model.predict(ROWS[:rows])
    answers = only(answers)
    dtype = np.dtype(signature(runtime)[1][0].datatype.numpy)
    assert (answers.shape, answers.dtype) == ((rows, 2), dtype)
    np.testing.assert_allclose(answers, expected(ROWS[:rows]), rtol=1e-6)


ALLOWED_DIFFERENCE = 1e-6
"""Allowed relative difference between answers alone and in a batch."""


@EVERY_SOURCE
def test_a_row_is_answered_alike_alone_and_in_company(
    opened: Callable[[str], Model], runtime: str
) -> None:
    model = opened(runtime)
    model.load()

    def run(batch: ComparedBatch) -> list[list[Any]]:
        return [[row] for row in only(model.predict(ROWS[list(batch.members)]))]

    tried = batches([range(len(ROWS))], [1, 2, 3, 7, 32], (), long=False)
    (found,) = compared(len(ROWS), ["y"], tried, run, ALLOWED_DIFFERENCE)
    assert found.excess <= 1, found.words


@EVERY_SOURCE
def test_an_input_it_cannot_take_raises_and_the_next_is_answered(
    opened: Callable[[str], Model], runtime: str
) -> None:
    model = opened(runtime)
    model.load()
    with pytest.raises(Exception, match=r"4"):
        model.predict(np.zeros((1, 4), np.float32))
    answers = model.predict(ROWS)
    answers = only(answers)
    np.testing.assert_allclose(answers, expected(ROWS), rtol=1e-6)


@EVERY
def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path, runtime: str) -> None:
    name = LINEAR[runtime][0]
    assert refusal(runtime, tmp_path / name) == "no such model file"
    (tmp_path / name).mkdir()
    assert refusal(runtime, tmp_path / name) == "is a folder, not a model file"


@EVERY
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda data: b"\x00\xff this is no model" + data[:7], id="foreign"),
        pytest.param(lambda _: b"", id="empty"),
    ],
)
def test_a_spoilt_file_is_refused_in_one_line(
    tmp_path: Path, runtime: str, spoil: Callable[[bytes], bytes]
) -> None:
    path = written(tmp_path, runtime)
    path.write_bytes(spoil(path.read_bytes()))
    assert refusal(runtime, path)


@EVERY_FORMAT
def test_no_part_of_a_file_is_taken_for_the_whole(tmp_path: Path, runtime: str) -> None:
    """Nor does one end the process: some libraries read on behind the end of their file."""
    path = written(tmp_path, runtime)
    whole = path.read_bytes().rstrip()
    for part in range(50):
        path.write_bytes(whole[: len(whole) * part // 50])
        assert refusal(runtime, path)


@pytest.mark.parametrize(
    ("runtime", "module"), [(key, name) for key, names in PACKAGES.items() for name in names]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, module: str
) -> None:
    path = written(tmp_path, runtime)
    monkeypatch.setitem(sys.modules, module, None)
    assert refusal(runtime, path) == (
        f"the runtime {runtime} needs the module {module}, which is not installed; "
        f"pip install 'ringbatch[{runtime}]', or in a clone '.[{runtime}]'"
    )


def test_a_forked_worker_has_the_modules_of_all_runtimes() -> None:
    """An upgrade may replace files under a running engine, whose workers still fit each other."""
    program = (
        "import importlib, pkgutil, sys\n"
        "from ringbatch.engine import devices, models, runtimes, worker\n"
        "from ringbatch.engine.supervisor.launching import PRELOADED\n"
        "for name in PRELOADED: importlib.import_module(name)\n"
        "packages = (devices, models, runtimes, worker)\n"
        "print(sorted(found.name for package in packages for found in "
        "pkgutil.walk_packages(package.__path__, package.__name__ + '.', onerror=print) "
        "if found.name not in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # The command that lists the actors of a cluster has it.
    assert done.stdout == "['ringbatch.engine.runtimes.ray.listing']\n"


def test_nothing_optional_is_imported_before_a_file_needs_it(tmp_path: Path) -> None:
    """A worker with a python model neither waits for these packages nor needs them."""
    program = (
        "import sys; from pathlib import Path\n"
        "from ringbatch.engine.models import model\n"
        "from ringbatch.engine.runtimes import opening\n"
        "options = model.Options(max_batch_size=1, threads=1)\n"
        f"opening.open_model('python', Path({str(written(tmp_path, 'python'))!r}), options)\n"
        "print({'onnxruntime', 'sklearn', 'skops', 'joblib', 'pandas', 'torch', 'xgboost', "
        "'lightgbm', 'catboost', 'openvino'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
