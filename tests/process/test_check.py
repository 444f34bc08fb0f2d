"""``ringbatch check`` refuses what ``ringbatch serve`` refuses, and loads models where it is asked
to.

Tests engine/supervisor/load_check.py.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from text_models import write_directory
from tiers import exhaustive, only

from ringbatch.shm.shm_objects import DIRECTORY, remove_dead_engines

COMMAND: Final = (sys.executable, "-m", "ringbatch.engine")
APART: Final = f"ringbatch-check-{os.getpid()}"
"""Prefix of names in /dev/shm here, apart from those of all other engines."""
PROGRAM: Final = f"""
import sys
from ringbatch.shm import shm_objects
shm_objects.PREFIX = {APART!r}
from ringbatch.engine.__main__ import main
sys.exit(main())
"""
GOOD: Final = """\
from ringbatch.engine import Tensor
inputs = outputs = [Tensor("x", "FP32", [2])]
def predict(x):
    return x
"""
MODEL: Final = '[models.m]\npath = "model.py"\nmax_batch_size = 4\n'


class Case(NamedTuple):
    """Configuration whose start fails.

    Attributes:
        server: the section of the configuration.
        model: keys of the model.
        words: of what is said.
    """

    server: str
    words: str
    model: str = ""


CASES: Final = {
    "a port that is taken": Case("port = {taken}", "127.0.0.1:{taken}"),
    "a port for gRPC that is taken": Case("grpc_port = {taken}", "127.0.0.1:{taken}"),
    "a port for metrics that is taken": Case("control_port = {taken}", "127.0.0.1:{taken}"),
    "a port for agent-checks that is taken": Case(
        "agent_check_port = {taken}", "127.0.0.1:{taken}"
    ),
    "an address of another host": Case('host = "192.0.2.1"', "192.0.2.1"),
    "a host that nobody knows": Case('host = "no.such.invalid"', "no.such.invalid"),
    "CPUs of a worker": Case(
        "", 'the configuration names CPUs "9999": these cannot all be used', 'cpus = ["9999"]'
    ),
    "CPUs of frontends": Case(
        'frontend_cpus = "9999"', 'the configuration names CPUs "9999": these cannot all be used'
    ),
    "a certificate that is none": Case(
        'tls_certificate = "model.py"\ntls_key = "key.pem"', "model.py"
    ),
    "API keys that everybody reads": Case('api_keys_file = "open_keys"', "open_keys"),
    "API keys that are too short": Case('api_keys_file = "short_keys"', "short_keys"),
    "more shared memory than there is": Case(
        "max_request_bytes = 1_000_000_000\nlane_bytes = 60_000_000_000\nfrontends = 64", "/dev/shm"
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "model.py").write_text(GOOD)
    for name, text, mode in (
        ("key.pem", "no key", 0o600),
        ("open_keys", "k" * 32 + "\n", 0o644),
        ("short_keys", "k\n", 0o600),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    yield tmp_path
    assert [entry.name for entry in DIRECTORY.iterdir() if f"{APART}." in entry.name] == []


def run(folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = (sys.executable, "-c", PROGRAM)
    return subprocess.run(
        [*program, command, "--config", "prod.toml", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def configure(folder: Path, server: str = "", model: str = "") -> None:
    port = "" if server.startswith("port") else "port = 0\n"
    (folder / "prod.toml").write_text(f"[server]\n{port}{server}\n{MODEL}{model}\n")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that this process has."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield int(listener.getsockname()[1])


@pytest.mark.parametrize(
    "name",
    only(
        {name: name for name in CASES},
        "a port that is taken",
    ),
)
def test_serve_and_check_refuse_the_same(folder: Path, taken: int, name: str) -> None:
    case = CASES[name]
    configure(folder, case.server.format(taken=taken), case.model)
    checked, served = run(folder, "check"), run(folder, "serve")
    for done in (checked, served):
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert case.words.format(taken=taken) in done.stderr
    assert all(line.startswith("ringbatch: ") for line in checked.stderr.splitlines())


def test_a_sound_configuration_is_printed(folder: Path) -> None:
    configure(folder)
    done = run(folder, "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[models.m]\n" in done.stdout
    assert "#  " not in done.stdout, "nothing was loaded"


def test_all_obstacles_are_reported_at_once(folder: Path, taken: int) -> None:
    configure(folder, f'port = {taken}\napi_keys_file = "short_keys"', 'cpus = ["9999"]')
    done = run(folder, "check")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 3), done.stderr


@exhaustive
def test_the_port_may_be_systemds_where_it_passes_the_sockets(folder: Path, taken: int) -> None:
    configure(folder, f"port = {taken}")
    assert run(folder, "check").returncode == 2
    assert run(folder, "check", "--sockets-passed").returncode == 0
    configure(folder, f"grpc_port = {taken}")
    assert run(folder, "check", "--sockets-passed").returncode == 2, "that port is the engine's own"


@contextmanager
def serving(folder: Path, port: int) -> Iterator[None]:
    """An engine that runs with the configuration of the folder."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--config", "prod.toml"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert f":{port}" in process.stdout.readline(), (folder / "log").read_text()
            yield
        finally:
            process.terminate()
            process.communicate()
            remove_dead_engines()


@exhaustive
def test_the_engine_that_is_checked_may_run_and_another_may_not_have_its_port(
    folder: Path, free_port_factory: Callable[[], int]
) -> None:
    port = free_port_factory()
    configure(folder, f'port = {port}\nname = "check-{os.getpid()}"')
    command = [*COMMAND, "check", "--config", "prod.toml"]
    with serving(folder, port):
        same = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert (same.returncode, same.stderr) == (0, "")
        configure(folder, f'port = {port}\nname = "another-{os.getpid()}"')
        other = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert other.returncode == 2
        assert "(ringbatch: supervisor)" in other.stderr


def test_models_are_loaded_and_their_use_is_reported(folder: Path) -> None:
    (folder / "beside.py").write_text(
        "import logging\nlogging.getLogger('lib').error('a word')\n"
        "def predict(values):\n    return values\n"
    )
    configure(folder, model='[models.u]\npath = "beside.py"')
    done = run(folder, "check", "--load")
    assert done.returncode == 0, done.stderr
    (word,) = [line for line in done.stderr.splitlines() if line.endswith("lib: a word")]
    assert "ringbatch worker u/0 [" in word, "workers log as in an engine"
    loaded = [line for line in done.stdout.splitlines() if line.startswith(("# m:", "# u:"))]
    assert loaded[0].startswith("# m: opened in ")
    assert ", warmed up in 0." in loaded[0]
    assert ", warmed up in " not in loaded[1], "it declares nothing to be warmed up with"
    sizes = [line.split()[1] for line in done.stdout.splitlines() if " instances/s" in line]
    assert sizes == ["1", "2", "4"]


FAILING: Final = {
    "a syntax error": ("def predict(x:\n", "", "model.py: line 1: "),
    "no such module": ("import nothing_there\n", "", "No module named 'nothing_there'"),
    "load() raises": (
        GOOD + "def load():\n    raise OSError('no weights')\n",
        "",
        "m: {folder}/model.py: line 6: load(): OSError: no weights",
    ),
    "warm-up fails": (
        GOOD.replace("return x", "return x[1:]"),
        "",
        "m: {folder}/model.py: warm-up of m with x FP32 [1, 2]: WrongCount: output 'x'",
    ),
    "the process dies": (
        "import os\n" + GOOD + "def load():\n    os.kill(os.getpid(), 9)\n",
        "",
        "m: its worker was killed by SIGKILL",
    ),
    "it hangs": (
        "import time\n" + GOOD + "def load():\n    time.sleep(1000)\n",
        "load_timeout_s = 3",
        "loading the model took longer than load_timeout_s = 3",
    ),
    "a thread of it goes on": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1e9,)).start()\n"
        "import nosuch\n",
        "",
        "No module named 'nosuch'",
    ),
    "it takes too much memory": (
        GOOD + "def load():\n    bytearray(1 << 30)\n",
        "worker_memory_bytes = 600_000_000",
        "load(): MemoryError",
    ),
}


@pytest.mark.parametrize(("source", "keys", "words"), only(FAILING, "the process dies"))
def test_an_unservable_model_is_reported_and_the_others_are_loaded(
    folder: Path, source: str, keys: str, words: str
) -> None:
    (folder / "model.py").write_text(source)
    (folder / "good.py").write_text(GOOD)
    configure(folder, model=f'{keys}\n[models.good]\npath = "good.py"')
    done = run(folder, "check", "--load")
    assert done.returncode == 2
    assert words.format(folder=folder.resolve()) in done.stderr
    assert "# good: opened in " in done.stdout
    assert "# m: " not in done.stdout


@exhaustive
def test_mismatched_steps_of_a_chain_are_reported_once_they_are_loaded(folder: Path) -> None:
    (folder / "other.py").write_text(GOOD.replace("[2]", "[3]"))
    configure(folder, model='[models.other]\npath = "other.py"\n[models.c]\nsteps = ["m", "other"]')
    assert run(folder, "check").returncode == 0, "nobody knows before they are loaded"
    done = run(folder, "check", "--load")
    assert done.returncode == 2
    assert "[models.c] step 2 (other): its input 'x' is FP32 [3]" in done.stderr
    (folder / "other.py").write_text(GOOD)
    assert run(folder, "check", "--load").returncode == 0


NORMALISES: Final = """\
import numpy as np
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [2])]
outputs = [Tensor("y", "FP32", [2]), Tensor("kind", "BYTES", [])]
def predict(x):
    return x - x.mean(axis=0), np.array([b"a"] * len(x), dtype=object)
"""
PADS: Final = """\
from ringbatch.engine import Tensor
inputs = [Tensor("x", "INT64", [-1])]
outputs = [Tensor("y", "INT64", [-1]), Tensor("sum", "FP32", [])]
def predict(x):
    return x, x.sum(axis=1).astype("f4")
"""


SPANS: Final = """
from ringbatch.engine import Tensor
inputs = [Tensor("count", "INT64", [])]
outputs = [Tensor("pairs", "INT32", [-1, 2], padding=-1), Tensor("bare", "FP32", [-1])]
def predict(count):
    return [[[i, i] for i in range(n)] for n in count], [[0.5] * int(n) for n in count]
"""


def of(done: subprocess.CompletedProcess[str], name: str) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith(f"# {name}: ")][1:]


def test_a_model_whose_answers_depend_on_company_is_found(folder: Path) -> None:
    (folder / "norms.py").write_text(NORMALISES)
    configure(folder, model='[models.n]\npath = "norms.py"\nmax_batch_size = 4')
    done = run(folder, "check", "--parity")
    assert done.returncode == 2
    assert of(done, "m") == [
        "# m: 16 samples alone and in batches of 2, 4",
        "# m: output x: no difference",
    ]
    assert of(done, "n")[1].startswith("# n: output y: largest difference ")
    assert of(done, "n")[2] == "# n: output kind: no difference"
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ringbatch: ")]
    assert line.startswith("ringbatch: n: output y: largest difference ")
    assert line.endswith(
        "beyond the tolerance of 0.0001, so its answers depend on the company that a sample has"
    )
    assert run(folder, "check", "--parity", "--tolerance", "100").returncode == 0


@exhaustive
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"instances": [[1, 2], [5, 6], [7, 9]]}', "# m: 3 samples alone and in batches of 2, 4"),
        (
            '[{"inputs": [{"name": "x", "shape": [2, 2], "data": [1, 2, 3, 4]}]},'
            ' {"inputs": [{"name": "x", "shape": [1, 2], "data": [[1, 2]]}]}]',
            "# m: 3 samples alone and in batches of 2, 4",
        ),
    ],
)
def test_samples_come_from_a_file(folder: Path, text: str, words: str) -> None:
    configure(folder)
    (folder / "samples.json").write_text(text)
    done = run(folder, "check", "--parity", "samples.json")
    assert (done.returncode, of(done, "m")[0]) == (0, words), done.stderr


@exhaustive
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"instances": [[1, 2, 3]]}', "has shape [3], declared is [2]"),
        (None, "samples.json: cannot be read: No such file"),
        ("{", "samples.json: is not JSON"),
        ('{"instances": []}', "at least one instance"),
        (
            '{"inputs": [{"name": "x", "shape": [2, 3], "data": [1, 2]}]}',
            "the data of input 'x' is not of the shape [2, 3]",
        ),
    ],
)
def test_a_file_without_samples_is_reported(folder: Path, text: str | None, words: str) -> None:
    configure(folder)
    if text is not None:
        (folder / "samples.json").write_text(text)
    done = run(folder, "check", "--parity", "samples.json")
    assert done.returncode == 2
    assert words in done.stderr


@exhaustive
@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ("length_buckets = [4, 8]", False),
        ('length_buckets = [4, 8]\npadding_values = ["x=1"]', False),
        ('padding_values = ["x=1"]', True),
    ],
)
def test_the_effect_of_long_neighbours_on_an_answer_is_found(
    folder: Path, keys: str, found: bool
) -> None:
    """In a bucket all are padded alike, alone too; without buckets, to the longest."""
    (folder / "pads.py").write_text(PADS)
    keys += "\nmax_batch_size = 4\npad_variable_length = true\nallowed_batch_sizes = [1, 4]"
    configure(folder, model=f'[models.p]\npath = "pads.py"\n{keys}')
    done = run(folder, "check", "--parity")
    assert done.returncode == (2 if found else 0), done.stderr
    first, own, summed = of(done, "p")
    assert first.endswith("in batches of 4, and beside long neighbours")
    assert own == "# p: output y: no difference", "it is cut to its own length"
    assert ("no difference" not in summed) == found


@exhaustive
def test_rows_of_unequal_length_are_compared_as_they_are(folder: Path) -> None:
    (folder / "spans.py").write_text(SPANS)
    (folder / "counts.json").write_text("[3, 0, 5]")
    model = '[models.s]\npath = "spans.py"\nmax_batch_size = 4\n'
    (folder / "prod.toml").write_text(f"[server]\nport = 0\n{model}")
    done = run(folder, "check", "--parity", "counts.json")
    assert done.returncode == 0, done.stderr
    assert of(done, "s")[1:] == [
        "# s: output pairs: no difference",
        "# s: output bare: no difference",
    ]


@exhaustive
def test_a_model_without_inputs_and_several_models_want_files_of_their_own(folder: Path) -> None:
    (folder / "beside.py").write_text("def predict(values):\n    return values\n")
    configure(folder, model='[models.u]\npath = "beside.py"')
    done = run(folder, "check", "--parity")
    assert "declares no inputs, so that nothing can be made up" in done.stderr
    done = run(folder, "check", "--parity", "samples.json")
    assert "there are 2 models, and a file is for one" in done.stderr
    (folder / "samples.json").write_text('["a", {"b": 1.5}]')
    configure(folder, model='[models.u]\npath = "beside.py"\nwarm_up_file = "samples.json"')
    done = run(folder, "check", "--parity")
    assert done.returncode == 0, done.stderr
    assert of(done, "u")[1] == "# u: output predictions: no difference"


@exhaustive
def test_texts_are_compared_by_tokens_that_are_made_up(folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    write_directory(folder / "texts")
    configure(folder, model='[models.t]\npath = "texts"\nmax_batch_size = 4')
    done = run(folder, "check", "--parity")
    assert done.returncode == 0, done.stderr
    assert of(done, "t")[0].endswith("in batches of 2, 4, and beside long neighbours")
    (folder / "texts.json").write_text('["a b"]')
    (folder / "prod.toml").write_text('[models.t]\npath = "texts"\n')
    done = run(folder, "check", "--parity", "texts.json")
    assert done.returncode == 2
    assert "texts become tokens before they come to a worker" in done.stderr
