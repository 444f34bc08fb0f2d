"""Failed starts as an operator sees them: an error text, an exit status, and nothing left."""

import re
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from serve.server import COMMAND, SMALL, Server
from tiers import exhaustive, only

from ringbatch.shm.shm_objects import DIRECTORY

GOOD = "def predict(instances):\n    return instances\n"
LOADED = f"{GOOD}def load():\n    raise OSError('no weights here')\n"
TYPED = """\
from ringbatch.engine import Tensor
inputs, outputs = [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])]
"""


class Case(NamedTuple):
    """A start that fails.

    Attributes:
        source: of model.py; None where there is no such file.
        config: of ringbatch.toml; None where there is no such file.
        words: a pattern for the whole of what stands on standard error behind "ringbatch: ".
        arguments: after ``ringbatch serve``; by default what serves the one or the other.
    """

    source: str | None
    config: str | None
    words: str
    arguments: str = ""


MODEL = "[models.m]\npath = 'model.py'\n"
CASES = {
    "no-model-file": Case(
        None, None, r'MODEL: found "model\.py", but it must be a file that exists; .*'
    ),
    "a-folder": Case(None, None, r".*folder\.py.*", "folder.py"),
    "syntax-error": Case(
        "def predict(x):\n  return (\n", None, r"\S+model\.py: line 2: '\(' was never closed"
    ),
    "no-predict": Case("x = 1\n", None, r"\S+model\.py: `predict` is missing; .*"),
    "predict-takes-too-few": Case(
        "def predict():\n    return []\n",
        None,
        r"\S+model\.py: predict\(\) must take 1 argument .*",
    ),
    "raises-at-import": Case(
        "import no_such_module\n",
        None,
        r"\S+model\.py: line 1: ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "leaves-a-thread": Case(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1e9,)).start()\n"
        "import no_such_module\n",
        None,
        r"\S+model\.py: line 3: ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "raises-in-load": Case(
        LOADED, None, r"\S+model\.py: line 4: load\(\): OSError: no weights here"
    ),
    "reads-arguments": Case(
        f"import sys\nraise ValueError(sys.argv[1:])\n{GOOD}",
        None,
        r"\S+model\.py: line 2: ValueError: \[\]",
    ),
    "exits-in-load": Case(
        f"{GOOD}def load():\n    raise SystemExit(0)\n",
        None,
        r"\S+model\.py: line 4: load\(\): SystemExit: 0",
    ),
    "raises-when-warmed-up": Case(
        TYPED + "def predict(x):\n    raise RuntimeError('no such kernel')\n",
        None,
        r"\S+model\.py: line 4: warm-up of model with x FP32 \[1, 2\]: RuntimeError: no such "
        r"kernel; the values were made up; .*; --warm-up required refuses a model that fails, .*",
    ),
    "loses-rows-when-warmed-up": Case(
        TYPED + "def predict(x):\n    return x[:2]\n",
        None,
        r"\S+model\.py: warm-up of model with x FP32 \[4, 2\]: WrongCount: output 'y' has .*",
    ),
    "another-kind-of-file": Case(None, None, r".*model\.h5.*\.py.*", "model.h5"),
    "no-configuration": Case(
        None, None, r"none\.toml: cannot be read: No such file or directory", "--config none.toml"
    ),
    "no-toml": Case(GOOD, "[server\n", r"ringbatch\.toml: not valid TOML: .*line 1.*"),
    "no-models": Case(GOOD, "[server]\n", r"ringbatch\.toml: models: there is no model; .*"),
    "unknown-key": Case(
        GOOD,
        MODEL + "max_batchsize = 3\n",
        r"ringbatch\.toml: \[models\.m\] max_batchsize: .*max_batch_size.*",
    ),
    "wrong-type": Case(
        GOOD,
        MODEL + "workers = '2'\n",
        r'ringbatch\.toml: \[models\.m\] workers: found "2", but it must be a whole number .*',
    ),
    "impossible-relation": Case(
        GOOD,
        MODEL + "timeout_s = 1\nmax_latency_ms = 2000\n",
        r"ringbatch\.toml: \[models\.m\] .*max_latency_ms.*timeout_s.*",
    ),
    "wrong-flag": Case(
        GOOD, None, r"--frontends: found 0, but it must be .*", "model.py --frontends 0"
    ),
    "an-address-of-nobody": Case(
        GOOD,
        None,
        r"cannot listen on 192\.0\.2\.1:\d+: no interface of this machine has that address; "
        "choose one that `ip address` lists with --host",
        "model.py --host 192.0.2.1",
    ),
    "a-host-of-nobody": Case(
        GOOD,
        None,
        r"--host: 'no\.such\.invalid' is no address of this machine: .*",
        "model.py --host no.such.invalid",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "model.h5").touch()
    return tmp_path


@pytest.mark.parametrize(
    "case",
    only(
        {name: name for name in CASES},
        "no-model-file",
        "raises-when-warmed-up",
        "wrong-flag",
    ),
)
def test_a_start_that_fails_says_why_in_one_line_and_leaves_nothing(
    folder: Path, case: str
) -> None:
    source, config, words, arguments = CASES[case]
    if source is not None:
        (folder / "model.py").write_text(source)
    if config is not None:
        (folder / "ringbatch.toml").write_text(config)
    usual = "model.py" if config is None else "--config ringbatch.toml"
    server = Server(folder, *(arguments or usual).split(), *SMALL, "--port", "0")
    while server.process.poll() is None:
        server.watch()
        time.sleep(0.02)
    lines = server.stderr.splitlines()
    messages = [
        line.removeprefix("ringbatch: ") for line in lines if line.startswith("ringbatch: ")
    ]
    assert (server.process.returncode, len(messages)) == (2, 1), server.stderr
    assert re.fullmatch(words, messages[0]), messages[0]
    assert lines[-1] == f"ringbatch: {messages[0]}"
    if case not in {
        "raises-in-load",
        "exits-in-load",
        "raises-when-warmed-up",
    }:  # whose traceback is the model's own, and logged
        assert "Traceback" not in server.stderr
        assert lines[:-1] == [line for line in lines[:-1] if " INFO " in line]
    assert server.stdout == ""
    assert server.gone()


def test_a_fault_of_the_worker_itself_is_named_in_the_last_line(folder: Path) -> None:
    """A model may replace parts of Python that its worker needs."""
    source = "import time\ntime.monotonic_ns = lambda: {}['no clock']\n"
    (folder / "model.py").write_text(f"{TYPED}{source}def predict(x):\n    return x\n")
    server = Server(folder, "model.py", *SMALL, "--port", "0")
    while server.process.poll() is None:
        server.watch()
        time.sleep(0.02)
    assert server.process.returncode == 2, server.stderr
    last = server.stderr.splitlines()[-1]
    assert last == "ringbatch: the worker failed: 'no clock'; the log has more"
    assert "CRITICAL the worker failed" in server.stderr
    assert "KeyError: 'no clock'" in server.stderr
    assert server.gone()


def test_a_vanished_working_directory_is_reported(folder: Path) -> None:
    """Gunicorn would not start there, and says so with a traceback."""
    gone = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh"]
    completed = subprocess.run(
        [*gone, *COMMAND, "serve", "--port", "0"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, completed.stdout) == (2, "")
    words = "the working directory is gone; start the engine in one that there is"
    assert completed.stderr == f"ringbatch: {words}\n"


def test_a_port_in_use_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(folder, "--port", str(port), *SMALL)
        assert server.process.wait() == 2
    assert server.stderr.splitlines()[-1] == (
        f"ringbatch: cannot listen on 127.0.0.1:{port}: the port is in use; "
        "stop what listens there, or choose another with --port"
    )
    assert "Traceback" not in server.stderr
    assert server.gone()


@exhaustive
def test_a_port_of_another_server_is_in_use(folder: Path, start: Callable[..., Server]) -> None:
    """The other server's sockets let its own frontends share the port."""
    other = start({"echo": {"path": "moody.py"}}, frontends=2)
    server = Server(folder, "--port", str(other.port), "--frontends", "2", *SMALL)
    assert server.process.wait() == 2
    assert "the port is in use" in server.stderr


def test_several_mistakes_are_reported_at_once(folder: Path) -> None:
    (folder / "ringbatch.toml").write_text("[server]\nport = -1\nhots = 'x'\n[models.m]\n")
    completed = subprocess.run(
        [*COMMAND, "serve", "--config", "ringbatch.toml"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    lines = completed.stderr.splitlines()
    assert (completed.returncode, len(lines)) == (2, 3), completed.stderr
    assert all(line.startswith("ringbatch: ringbatch.toml: [") for line in lines)


@exhaustive
def test_a_stop_during_the_start_leaves_nothing(folder: Path) -> None:
    (folder / "model.py").write_text(GOOD)
    before = {entry.name for entry in DIRECTORY.iterdir()}
    for _ in range(3):
        server = Server(folder, "model.py", *SMALL, "--port", "0")
        while "worker model/0: ready" not in server.stderr and server.process.poll() is None:
            server.watch()
        assert server.stop() == 0
        assert server.gone()
        assert not {name for name in server.names() if name not in before}
        assert "Traceback" not in server.stderr
